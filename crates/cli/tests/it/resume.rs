//! `runs resume`: what was interrupted goes on in its own folder and record, or is refused and left as it was.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use testkit::{Reply, Script, ScriptedModel};

use crate::place::{Place, Ran, act, finish, ran, sh, told_in};
use crate::process::{assert_nothing_left, begun, started, until};
use crate::{Who, everywhere};

const SLEEPER: &str = "echo once >> log; setsid sleep 1000 & touch ready; sleep 1000";

fn resume_command(place: &Place, id: &str, url: &str) -> std::process::Command {
    let tier = ["--tier", place.tier, "--floor", place.tier];
    let fixed = ["runs", "resume", id, "--model-url", url, "--data", "data", "--json"];
    place.oubliette(fixed.into_iter().chain(tier))
}

fn resumed(place: &Place, url: &str) -> Ran {
    let id = place.ids().pop().unwrap();
    ran(&mut resume_command(place, &id, url))
}

/// A run that was killed in the middle of its second call.
fn killed(place: &Place) -> ScriptedModel {
    place.guild(&["run_shell", "finish"]);
    place.write("source/kept", "old\n");
    let model = Script::new([sh("echo first > new"), sh(SLEEPER)]).start();
    let program = started(place, &mut place.run_command(&model.base_url()));
    let (forker, guests) = (program.forker, program.guests());
    program.signal(Signal::KILL);
    assert_eq!(program.output().status.signal(), Some(9));
    assert_nothing_left(forker, &guests);
    model
}

/// Every file of a run, for comparison.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap().map(Result::unwrap) {
        if entry.file_type().unwrap().is_file() {
            found.insert(entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap());
        }
    }
    found
}

/// Refused with this code and sentence, and the run is as it was.
#[track_caller]
fn assert_left_alone(place: &Place, command: &mut std::process::Command, code: i32, sentence: &str) {
    let before = files(&place.newest());
    ran(command).assert_refused(code, sentence);
    assert_eq!(files(&place.newest()), before, "{sentence}");
}

everywhere! {
    /// W5: the workspace is as the guest left it; the call under way is told as unknown and not made again.
    fn a_killed_run_goes_on_and_does_nothing_twice(place: &Place) {
        killed(place);
        let model = Script::new([sh("cat log; cat new"), finish()]).start();
        let ran = resumed(place, &model.base_url());
        assert_eq!((ran.code, model.left()), (Some(0), 0), "{ran:?}");
        let card = ran.json();
        assert_eq!((&card["stop"], &card["resumed"], &card["calls"]), (&json!("finished"), &json!(1), &json!(2)));
        let messages = model.asked()[0].body["messages"].to_string();
        assert!(messages.contains("Its outcome is not known"), "{messages}");
        assert_eq!(messages.matches("programs that ran in the background").count(), 1, "{messages}");
        let told = told_in(&model, 1);
        assert!(told.contains("once\nfirst"), "{told}");
        assert_eq!(place.events_of("tool_start").len(), 3);
        place.assert_whole("finished");
        let resume = &place.events_of("resume")[0];
        assert_eq!(resume["unknown"], json!([{"call": 2, "tool": "run_shell", "ended": false}]));
        assert_eq!((&resume["times"], &resume["restarted"]), (&json!(1), &json!(false)));
        let patch = fs::read_to_string(place.newest().join("changes.patch")).unwrap();
        assert!(patch.contains("+first") && !patch.contains("kept"), "{patch}");
        assert_eq!(place.ids().len(), 1, "the same run");
    }
}

/// Killed while the model thought: it is asked once more, and what was done stays done.
#[test]
fn a_run_killed_while_its_model_thinks_asks_again() {
    let place = Place::quick();
    place.guild(&["run_shell", "finish"]);
    let late = Reply::After(Duration::from_secs(100), Box::new(finish()));
    let model = Script::new([sh("echo once >> log; touch ready"), late]).start();
    let program = started(&place, &mut place.run_command(&model.base_url()));
    until("the second question", || model.asked().len() == 2);
    program.signal(Signal::KILL);
    program.output();
    let model = Script::new([sh("cat log"), finish()]).start();
    let ran = resumed(&place, &model.base_url());
    assert_eq!((ran.code, model.left()), (Some(0), 0), "{ran:?}");
    assert!(told_in(&model, 1).contains("once") && !told_in(&model, 1).contains("once\nonce"));
    place.assert_whole("finished");
}

/// A record that was ended by clearing up goes on behind that end, and twice.
#[test]
fn a_run_that_was_cleared_up_goes_on_and_so_does_one_that_was_resumed() {
    let place = Place::quick();
    killed(&place);
    assert_eq!(place.ran(["runs", "gc"]).code, Some(0));
    place.assert_whole("interrupted");
    let model = Script::new([sh("rm ready; touch ready; sleep 1000")]).start();
    let id = place.ids().pop().unwrap();
    fs::remove_file(place.newest().join("workspace/ready")).unwrap();
    let program = begun(&mut resume_command(&place, &id, &model.base_url()));
    until("the guest is ready", || place.newest().join("workspace/ready").exists());
    program.signal(Signal::KILL);
    program.output();
    let listed = place.ran(["runs", "list"]);
    assert!(listed.out.contains("incomplete") && listed.out.contains("resumed once"), "{listed:?}");
    assert!(listed.err.contains("runs resume"), "{listed:?}");
    assert_eq!(place.ran(["runs", "gc"]).code, Some(0));
    place.assert_whole("interrupted");
    assert_eq!(place.file_of_run("result.json")["resumed"], 1);
    let model = Script::new([finish()]).start();
    let ran = resumed(&place, &model.base_url());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    place.assert_whole("finished");
    assert_eq!(place.file_of_run("result.json")["resumed"], 2);
    assert_eq!(place.events_of("run_end").len(), 3);
    let shown = place.ran(["runs", "show", &id]);
    assert!(shown.out.contains("resumed  2 times") && shown.out.contains("the chain holds"), "{shown:?}");
    assert!(place.ran(["runs", "list"]).out.contains("resumed 2 times"));
}

/// Killed inside a role that another had started: it goes on inside that one, and its word comes back.
#[test]
fn a_run_killed_inside_a_role_below_goes_on_inside_it() {
    let place = Place::quick();
    place.write(
        "guild/guild.toml",
        "schema = 1\nname = \"two\"\nentry = \"lead\"\n\n[roles.lead]\nprompt = \"p.md\"\ntools = [\"agent\", \
         \"finish\"]\nagents = [\"hand\"]\n\n[roles.hand]\nprompt = \"p.md\"\ntools = [\"run_shell\", \"finish\"]\n",
    );
    place.write("guild/p.md", "Work.\n");
    let hand = act("agent", json!({"role": "hand", "task": "do it"}));
    let model = Script::new([hand, sh(SLEEPER)]).start();
    let program = started(&place, &mut place.run_command(&model.base_url()));
    program.signal(Signal::KILL);
    program.output();
    let done = act("finish", json!({"status": "done", "summary": "by hand"}));
    let model = Script::new([done, finish()]).start();
    let ran = resumed(&place, &model.base_url());
    assert_eq!((ran.code, model.left()), (Some(0), 0), "{ran:?}");
    assert!(told_in(&model, 1).contains("The run was interrupted here"), "{}", told_in(&model, 1));
    assert!(model.asked()[1].body["messages"].to_string().contains("by hand"));
    assert_eq!(place.events_of("role_start").len(), 2);
    place.assert_whole("finished");
}

#[test]
fn only_what_was_interrupted_is_resumed() {
    let place = Place::quick();
    place.guild(&["run_shell", "finish"]);
    let model = Script::new([finish()]).start();
    let url = model.base_url();
    for id in ["../x", "..", "", "/etc", "01M8KY8DKN26XFNZT8SWTAEB1R", "01m8ky8dkn26xfnzt8swtaeb1r/../x"] {
        ran(&mut resume_command(&place, id, &url)).assert_refused(2, "not a run id");
    }
    let nobody = "01m8ky8dkn26xfnzt8swtaeb1r";
    ran(&mut resume_command(&place, nobody, &url)).assert_refused(2, "there is no run");
    assert_eq!(place.run(&url).code, Some(0));
    let id = place.ids().pop().unwrap();
    let sentence = "is over (finished): only a run that was interrupted can be resumed";
    assert_left_alone(&place, &mut resume_command(&place, &id, &url), 2, sentence);
    let program = started(&place, &mut place.exec_command(&[], &["sh", "-c", "touch ready; sleep 1000"]));
    let id = place.ids().pop().unwrap();
    ran(&mut resume_command(&place, &id, &url)).assert_refused(2, "goes on right now");
    program.signal(Signal::KILL);
    program.output();
    assert_left_alone(&place, &mut resume_command(&place, &id, &url), 3, "it is a single command");
}

/// The folder's lock decides between two at once.
#[test]
fn of_two_that_resume_one_goes_on() {
    let place = Place::quick();
    killed(&place);
    let id = place.ids().pop().unwrap();
    let late = Reply::After(Duration::from_secs(100), Box::new(finish()));
    let model = Script::new([late]).start();
    let first = begun(&mut resume_command(&place, &id, &model.base_url()));
    until("the first asks its model", || model.asked().len() == 1);
    let lines = fs::read(place.newest().join("events.jsonl")).unwrap();
    ran(&mut resume_command(&place, &id, &model.base_url())).assert_refused(2, "goes on right now");
    assert_eq!(fs::read(place.newest().join("events.jsonl")).unwrap(), lines);
    first.signal(Signal::INT);
    assert_eq!(first.ended().code, Some(5));
    place.assert_whole("cancelled");
}

/// What it was started with must be what is there now; otherwise it is named, and nothing is touched.
#[test]
fn a_changed_guild_deployment_option_model_or_record_is_refused_by_name() {
    let place = Place::quick();
    place.write("oubliette.toml", "[limits]\nprocesses = 64\n");
    killed(&place);
    let id = place.ids().pop().unwrap();
    let model = Script::new([finish()]).start();
    let command = || resume_command(&place, &id, &model.base_url());
    let file = |name: &str| place.read(name);

    let prompt = file("guild/prompts/worker.md");
    place.write("guild/prompts/worker.md", "Something else.\n");
    assert_left_alone(&place, &mut command(), 3, "is not what the run was started with");
    place.write("guild/prompts/worker.md", prompt);

    place.write("oubliette.toml", "[limits]\nprocesses = 32\n");
    assert_left_alone(&place, &mut command(), 3, "the deployment is not what the run was started with");
    place.write("oubliette.toml", "[limits]\nprocesses = 64\n");

    let mut other = command();
    let args: Vec<_> =
        other.get_args().map(|a| if a == "namespace" { "gvisor".into() } else { a.to_owned() }).collect();
    other = place.oubliette(args);
    assert_left_alone(&place, &mut other, 3, "`isolation.tier` was namespace");

    assert_left_alone(&place, command().args(["--model", "another"]), 3, "give it with --model");
    let native = Script::new([finish()]).native().start();
    let mut other = resume_command(&place, &id, &native.base_url());
    assert_left_alone(&place, &mut other, 3, "actions travelled as schema");
    let mut other = resume_command(&place, &id, "http://127.0.0.1:1/v1");
    assert_left_alone(&place, &mut other, 5, "not available");

    let events = place.newest().join("events.jsonl");
    let whole = fs::read(&events).unwrap();
    let text = String::from_utf8(whole.clone()).unwrap().replacen("echo first", "echo firsT", 1);
    fs::write(&events, text).unwrap();
    assert_left_alone(&place, &mut command(), 3, "[chain]");
    fs::write(&events, &whole).unwrap();
    let artifact = fs::read_dir(place.newest().join("artifacts")).unwrap().next().unwrap().unwrap().path();
    let kept = fs::read(&artifact).unwrap();
    fs::write(&artifact, "other").unwrap();
    assert_left_alone(&place, &mut command(), 3, "[artifact]");
    fs::write(&artifact, kept).unwrap();

    assert!(model.asked().is_empty());
    let ran = ran(&mut command());
    assert_eq!(ran.code, Some(0), "put back as it was, it goes on: {ran:?}");
}

/// What is in a machine goes with it.
#[test]
fn a_run_whose_workspace_was_in_a_machine_is_not_resumed() {
    let place = Place::new("microvm", Who::Own);
    place.guild(&["run_shell", "finish"]);
    let model = Script::new([sh("touch ready; sleep 1000")]).start();
    let program = begun(&mut place.run_command(&model.base_url()));
    until("the call began", || !place.ids().is_empty() && holds(&place, "\"tool_start\""));
    program.signal(Signal::KILL);
    program.output();
    let id = place.ids().pop().unwrap();
    assert_left_alone(&place, &mut resume_command(&place, &id, &model.base_url()), 3, "inside the machine");
}

fn holds(place: &Place, text: &str) -> bool {
    fs::read_to_string(place.newest().join("events.jsonl")).is_ok_and(|lines| lines.contains(text))
}

/// As after a loss of power: the record is cut behind any byte, and everything that reads it answers.
#[test]
fn a_record_cut_behind_any_byte_is_told_cleared_up_and_resumed_sanely() {
    let place = Place::quick();
    place.guild(&["run_shell", "finish"]);
    let late = Reply::After(Duration::from_secs(100), Box::new(finish()));
    let model = Script::new([sh("echo first >> new; touch ready"), late]).start();
    let program = started(&place, &mut place.run_command(&model.base_url()));
    until("the second question", || model.asked().len() == 2);
    program.signal(Signal::KILL);
    program.output();
    let id = place.ids().pop().unwrap();
    let path = place.newest().join("events.jsonl");
    let (store, whole) = (place.path("data/runs"), fs::read(&path).unwrap());
    let ends = |n: usize| n == 0 || whole[n - 1] == b'\n';
    for cut in 0..=whole.len() {
        fs::write(&path, &whole[..cut]).unwrap();
        let listed = runs::list(&store).unwrap();
        assert_eq!(listed.runs[0].standing, runs::Standing::Incomplete, "cut at {cut}");
        let lines = whole[..cut].iter().filter(|b| **b == b'\n').count();
        if cut % 5 == 0 || ends(cut) {
            let shown = runs::show(&store, &id).unwrap();
            assert_eq!((shown.checked.events, shown.events.len()), (lines as u64, lines), "cut at {cut}");
        }
        match runs::Interrupted::open(&store, &id) {
            Ok(past) => assert_eq!(past.past().events().len(), lines + 1, "cut at {cut}"),
            Err(e) => assert!(lines == 0 && e.to_string().contains("no line"), "cut at {cut}: {e}"),
        }
        assert_eq!(fs::read(&path).unwrap(), &whole[..cut], "looking changes nothing");
    }
    // The whole way for each line: at its end, and in its middle.
    let newlines: Vec<usize> = (1..=whole.len()).filter(|n| ends(*n)).collect();
    let kept = place.path("kept");
    copy(&place.newest(), &kept);
    for (n, end) in newlines.into_iter().enumerate() {
        for cut in if n % 2 == 0 { vec![end] } else { vec![end, (end + 40).min(whole.len() - 1)] } {
            fs::remove_dir_all(place.newest()).unwrap();
            copy(&kept, &store.join(&id));
            fs::write(&path, &whole[..cut]).unwrap();
            if n % 3 == 0 {
                assert_eq!(place.ran(["runs", "gc"]).code, Some(0));
                place.assert_whole("interrupted");
            }
            let answered = whole[..cut].split(|b| *b == b'\n').filter(|l| is(l, "response")).count();
            let rest = [sh("echo second >> new"), finish()];
            let model = Script::new(rest.into_iter().skip(answered)).start();
            let ran = resumed(&place, &model.base_url());
            assert_eq!((ran.code, model.left()), (Some(0), 0), "cut at {cut}: {ran:?}");
            place.assert_whole("finished");
            let new = fs::read_to_string(place.newest().join("workspace/new")).unwrap();
            assert_eq!(new.matches("first").count(), 1 + again(&whole[..cut]), "cut at {cut}: {new}");
        }
    }
}

/// Whether the first call is made after this cut, on a workspace where it had been made: the answer that asked for it
/// was there, and its start was not.
fn again(lines: &[u8]) -> usize {
    let has = |kind| lines.split(|b| *b == b'\n').any(|line| is(line, kind));
    usize::from(has("response") && !has("tool_start"))
}

fn is(line: &[u8], kind: &str) -> bool {
    serde_json::from_slice::<Value>(line).is_ok_and(|event| event["type"] == kind)
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    fs::set_permissions(to, fs::metadata(from).unwrap().permissions()).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &to);
        } else {
            fs::copy(entry.path(), &to).unwrap();
        }
        let owner = std::os::unix::fs::MetadataExt::uid(&entry.metadata().unwrap());
        std::os::unix::fs::lchown(&to, Some(owner), Some(owner)).unwrap();
    }
}
