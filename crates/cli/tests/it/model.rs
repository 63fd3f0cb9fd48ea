//! A whole run against a real model server. How clever its tiny model is proves nothing; the protocol counts.

use serde_json::json;

use crate::{Place, Who, declared};

/// R66: the run ends for a reason of the list, its record is whole, and the conversation was really held.
#[test]
fn r66_a_run_against_a_real_server_is_whole() {
    let place = Place::new("gvisor", Who::Own);
    place.guild(&["list_dir", "read_file", "finish"]);
    let manifest = place.read("guild/guild.toml");
    place.write(
        "guild/guild.toml",
        format!("{manifest}generation = {{ temperature = 0.0, max_tokens = 48 }}\n"),
    );
    place.write("source/hello.txt", "hello\n");
    place.write("oubliette.toml", "[model]\nmin_context = 512\n[budget]\nsteps = 3\nwall = \"15m\"\n");
    let ran = place.run(&declared("OUBLIETTE_TEST_MODEL_URL"));
    let ends =
        ["finished", "implicit_finish", "step_limit", "format_errors", "loop_detected", "context_exhausted"];
    let result = ran.json();
    let stop = result["stop"].as_str().unwrap().to_owned();
    assert!(ends.contains(&stop.as_str()), "{stop}: {ran:?}");
    assert!([Some(0), Some(1), Some(4)].contains(&ran.code), "{ran:?}");
    place.assert_whole(&stop);
    let responses = place.events_of("response");
    assert!(!responses.is_empty());
    for response in responses {
        assert_eq!((&response["status"], &response["error"]), (&json!(200), &json!(null)), "{response}");
    }
    assert!(result["tokens"].as_u64().unwrap() > 0, "the server counted nothing: {result}");
    assert_eq!(place.file_of_run("meta.json")["sandbox"]["tier"], "gvisor");
    assert!(place.file_of_run("meta.json")["model"]["probe"]["error"].is_null());
}
