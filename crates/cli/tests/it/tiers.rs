//! Tiers and the floor: what is asked for is obtained and named, or refused with a way out.

use serde_json::{Value, json};
use testkit::Script;

use crate::place::{Place, Ran, finish, ran};
use crate::process::started;
use crate::{Who, everywhere};

/// R51: a shared kernel alone is below the default floor.
#[test]
fn r51_a_tier_below_the_floor_is_refused_with_a_way_out() {
    let place = Place::quick();
    place.guild(&["finish"]);
    let model = Script::new([finish()]).last_again().start();
    let url = model.base_url();
    let run = ["run", "--guild", "guild", "--task", "x", "--model-url", &url, "--tier", "namespace"];
    for args in [&["exec", "--tier", "namespace", "--", "true"][..], &run] {
        let ran = place.ran(args);
        ran.assert_refused(3, "gvisor");
        assert!(ran.err.contains("floor"), "the way out is not named: {ran:?}");
        assert!(ran.err.contains("namespace"), "{ran:?}");
    }
}

/// R51: less is had only where the operator says so, and the record says it.
#[test]
fn r51_an_accepted_weaker_tier_is_in_the_record() {
    let place = Place::quick();
    assert_eq!(place.exec(&["true"]).code, Some(0));
    let shown = place.ran(["runs", "show", &place.ids()[0], "--json"]).json();
    assert_eq!(
        shown["meta"]["asked"],
        json!({"tier": "namespace", "floor": "namespace", "surroundings": "none"})
    );
    assert_eq!(shown["meta"]["sandbox"]["tier"], "namespace");
    assert_eq!(shown["result"]["sandbox"]["tier"], "namespace");
}

/// R51: the operator's word about the surroundings counts, and is recorded as such.
#[test]
fn r51_stated_surroundings_are_in_the_record() {
    let place = Place::quick();
    let ran = place.ran(["exec", "--tier", "namespace", "--surroundings", "microvm", "--", "true"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let shown = place.ran(["runs", "show", &place.ids()[0], "--json"]).json();
    assert_eq!(shown["meta"]["asked"]["surroundings"], "microvm");
    assert_ne!(shown["meta"]["accepted"]["because"]["by"], "tier", "{}", shown["meta"]["accepted"]);
}

/// R51: a Guild or a workspace cannot say it.
#[test]
fn r51_a_workspace_cannot_lower_the_floor() {
    let place = Place::quick();
    place.write("source/oubliette.toml", "[isolation]\nfloor = \"confined\"\ntier = \"namespace\"\n");
    let ran = place.ran(["exec", "--tier", "namespace", "--workspace", "source", "--", "true"]);
    ran.assert_refused(3, "floor");
}

/// R51, R52: the default is the strongest that works, and at least the floor.
#[test]
fn r51_auto_takes_a_tier_that_meets_the_floor() {
    let place = Place::any();
    assert_eq!(place.ran(["exec", "--", "true"]).code, Some(0));
    let strongest = place.ran(["doctor", "--json"]).json()["auto"].clone();
    assert!([json!("gvisor"), json!("microvm")].contains(&strongest), "{strongest}");
    assert_eq!(place.file_of_run("meta.json")["sandbox"]["tier"], strongest);
}

/// The program where no machine can be made, whatever is installed: a kernel is taken from no folder that others
/// may write to.
fn without_machines(place: &Place, args: &[&str]) -> Ran {
    let cache = place.path("cache/oubliette/machine");
    std::fs::create_dir_all(&cache).unwrap();
    std::fs::set_permissions(&cache, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    ran(place.oubliette(args).env("XDG_CACHE_HOME", place.path("cache")))
}

/// R57: what this machine cannot hold is refused, never replaced.
#[test]
fn r57_tiers_that_are_not_there_are_refused() {
    let place = Place::quick();
    let ran = without_machines(&place, &["exec", "--tier", "microvm", "--", "true"]);
    ran.assert_refused(3, "microvm");
    assert!(ran.err.contains("remedy: "), "{ran:?}");
    place.assert_whole("sandbox_error");
    assert!(place.events_of("tool_start").is_empty());
    place.ran(["exec", "--tier", "docker", "--", "true"]).assert_refused(2, "docker");
}

/// R57: `auto` with a floor that nothing here reaches is a refusal.
#[test]
fn r57_a_floor_that_nothing_reaches_is_a_refusal() {
    let place = Place::quick();
    without_machines(&place, &["exec", "--floor", "microvm", "--", "true"]).assert_refused(3, "microvm");
    assert_eq!(without_machines(&place, &["doctor", "--floor", "microvm"]).code, Some(3));
}

everywhere! {
    /// R30: from the host's side no process of a guest is root's.
    fn r30_no_guest_process_is_root_on_the_host(place: &Place) {
        let program = started(place, &mut place.exec_command(&[], &["sh", "-c", "touch ready; sleep 1000"]));
        let guests = program.guests();
        assert!(guests.len() >= 2, "{guests:?}");
        for process in guests {
            let Ok(status) = std::fs::read_to_string(format!("/proc/{}/status", process.id)) else { continue };
            let ids = status.lines().find(|l| l.starts_with("Uid:")).unwrap_or_default();
            let none_is_root = ids.split_whitespace().skip(1).all(|id| id != "0");
            assert!(none_is_root || !process.lives(), "{process:?} {ids}: {status}");
        }
        program.signal(rustix::process::Signal::INT);
        assert_eq!(program.ended().code, Some(5));
    }
}

/// R52: each tier is there with what held, layer by layer, or why it is not.
#[test]
fn r52_doctor_tells_each_tier() {
    let place = Place::any();
    let told = place.ran(["doctor", "--json"]);
    assert_eq!(told.code, Some(0), "{told:?}");
    let json = told.json();
    let tiers: Vec<&str> =
        json["tiers"].as_array().unwrap().iter().map(|t| t["tier"].as_str().unwrap()).collect();
    assert_eq!(tiers, ["microvm", "gvisor", "namespace", "confined", "wasm"]);
    for tier in json["tiers"].as_array().unwrap() {
        let (report, problem) = (&tier["report"], &tier["problem"]);
        assert!(report.is_object() || problem.is_string(), "{tier}");
        // Beside a report: why `auto` does not take it.
        assert_eq!(problem.is_string(), tier["remedy"].is_string(), "{tier}");
        assert!(tier["stops"].is_string() && tier["leaves"].is_string(), "{tier}");
        for layer in report["layers"].as_array().into_iter().flatten() {
            assert!(["full", "part", "none"].map(Value::from).contains(&layer["state"]), "{layer}");
            assert!(!layer["detail"].as_str().unwrap().is_empty(), "{layer}");
        }
    }
    let first = json["tiers"].as_array().unwrap().iter().find(|t| t["auto"] == true).unwrap();
    assert_eq!((&json["auto"], &json["floor"]), (&first["tier"], &json!("gvisor")));
}

#[test]
fn r52_doctor_tells_people_the_same() {
    let place = Place::any();
    let told = ran(&mut place.oubliette(["doctor"]));
    // Where it is the first that needs the image of the system, it says that it makes it.
    let err: Vec<&str> = told.err.lines().filter(|l| !l.contains("making the system's image")).collect();
    assert_eq!((told.code, err), (Some(0), vec![]));
    for line in [
        "tier microvm",
        "tier gvisor",
        "tier namespace",
        "tier confined",
        "tier wasm",
        "network-namespace",
        "floor gvisor",
    ] {
        assert!(told.out.contains(line), "{line} is not in {}", told.out);
    }
    let weaker = place.ran(["doctor", "--floor", "namespace"]);
    let strongest = place.ran(["doctor", "--json"]).json()["auto"].as_str().unwrap().to_owned();
    assert!(weaker.out.contains(&format!("floor namespace: `auto` takes {strongest}")), "{weaker:?}");
}

/// R57: a host without `runsc` has no such tier, and says what to install. Shown in a mount namespace of our own.
#[test]
fn r57_without_runsc_the_tier_is_refused_with_a_remedy() {
    let place = Place::new("gvisor", Who::Own);
    let program = place.bin().join("oubliette").display().to_string();
    let hide = "for f in $(which -a runsc); do mount --bind /dev/null $f || exit 99; done; exec";
    // An ordinary user is root of a namespace of its own for the mounts, and nobody's root afterwards.
    let (own, back) = if rustix::process::geteuid().is_root() {
        ("", "")
    } else {
        ("--map-root-user", "unshare --user --map-user=1000 --map-group=1000")
    };
    let script =
        format!("exec unshare --mount {own} sh -c '{hide} {back} {program} exec --tier gvisor -- true'");
    let ran = ran(place.command("sh".as_ref()).args(["-c", &script]));
    ran.assert_refused(3, "runsc");
}
