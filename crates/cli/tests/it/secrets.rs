//! Keys: from the environment only, and nowhere but in the one header they are for.

use serde_json::json;
use testkit::Script;

use crate::place::{Place, finish, ran, sh, told_in};
use crate::process::{holds, remembers};
use crate::{Who, everywhere};

const KEY: &str = "sk-canary-0123456789abcdef-key";

fn with_key(place: &Place) {
    place.write("oubliette.toml", "[model]\napi_key_env = \"TEST_MODEL_KEY\"\n");
}

everywhere! {
    /// R58: in no file of the run, not inside the sandbox, in no request body; in the one header only.
    fn r58_the_model_key_is_nowhere_but_in_its_header(place: &Place) {
        with_key(place);
        place.guild(&["run_shell", "finish"]);
        let model = Script::new([
            sh("env; cat /proc/*/environ /proc/*/cmdline | tr '\\0' '\\n'; set"),
            sh("echo sk-canary-0123456789; grep -rs sk-canary /tmp /workspace /dev/shm /etc; true"),
            finish(),
        ]).start();
        let mut command = place.run_command(&model.base_url());
        let ran = ran(command.env("TEST_MODEL_KEY", KEY).env("OTHER_TOKEN", "other-canary-of-the-environment"));
        assert_eq!(ran.code, Some(0), "{ran:?}");
        for secret in [KEY, "other-canary-of-the-environment"] {
            assert!(!place.run_folder_holds(secret), "{secret} is in the run's folder");
            assert!(!ran.out.contains(secret) && !ran.err.contains(secret));
            for seen in model.seen() {
                assert!(!String::from_utf8_lossy(&seen.raw).contains(secret), "{secret} is in {}", seen.path);
            }
        }
        let bearer = format!("Bearer {KEY}");
        assert!(model.asked().iter().all(|s| s.header("authorization") == Some(bearer.as_str())));
        place.assert_whole("finished");
    }
}

/// R58: a model that knows the key cannot bring it into the record either.
#[test]
fn r58_a_key_said_by_the_model_is_masked_in_the_record() {
    let place = Place::quick();
    with_key(&place);
    place.guild(&["run_shell", "finish"]);
    let model = Script::new([sh(&format!("echo {KEY}")), finish()]).start();
    let ran = ran(place.run_command(&model.base_url()).env("TEST_MODEL_KEY", KEY));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let dir = place.newest();
    for name in ["events.jsonl", "meta.json", "result.json", "artifacts", "changes.patch"] {
        assert!(!crate::place::holds(&dir.join(name), KEY.as_bytes()), "{name} holds the key");
    }
    assert!(!ran.err.contains(KEY), "{ran:?}");
}

/// R58: the value of a granted header. No guest is told it; one that has it from elsewhere brings it, in whatever
/// spelling, into no event, no artifact, no terminal and no model.
#[test]
fn r58_a_headers_value_that_a_guest_says_is_masked_in_every_record() {
    const TOKEN: &str = "swordfish-0123456789+canary";
    let (value, hex) =
        (format!("Bearer {TOKEN}"), TOKEN.bytes().map(|b| format!("{b:02x}")).collect::<String>());
    let base64 = "c3dvcmRmaXNoLTAxMjM0NTY3ODkrY2FuYXJ5";
    let spelt = [TOKEN, &hex, base64, "swordfish-0123456789%2Bcanary", "swordfish-0123456789\\u002bcanary"];
    let lines: String = spelt.iter().map(|spelling| format!("echo 'Bearer {spelling}'; ")).collect();
    let network = "\n[network]\nallow = [{ host = \"key.example:443\", header = { name = \"authorization\", secret_env = \"API_TOKEN\" } }]\n";
    for (tier, who) in [("namespace", Who::Own), ("namespace", Who::Ordinary), ("confined", Who::Own)] {
        let place = Place::new(tier, who);
        place.write("oubliette.toml", network);
        place.guild(&["run_shell", "finish"]);
        place.write(
            "guild/guild.toml",
            place.read("guild/guild.toml") + "\n[network]\nallow = [\"key.example:443\"]\n",
        );
        let hidden = |ran: &crate::place::Ran| {
            assert_eq!(ran.code, Some(0), "{ran:?}");
            for spelling in &spelt {
                assert!(!ran.out.contains(spelling) && !ran.err.contains(spelling), "{spelling}: {ran:?}");
                for name in ["events.jsonl", "meta.json", "result.json", "artifacts", "changes.patch"] {
                    let file = place.newest().join(name);
                    assert!(
                        !file.exists() || !crate::place::holds(&file, spelling.as_bytes()),
                        "{name}: {spelling}"
                    );
                }
            }
        };
        let alone =
            ran(place.exec_command(&[], &["sh", "-c", &format!("env; {lines}")]).env("API_TOKEN", &value));
        hidden(&alone);
        assert_eq!(alone.out.matches("[masked:API_TOKEN]").count(), spelt.len(), "{alone:?}");
        // So much that it is an artifact, and a file of the proposal besides.
        let much = format!("{{ {lines} }} | tee said; seq 100000; {lines}");
        let model = Script::new([sh(&much), finish()]).start();
        let long = ran(place.run_command(&model.base_url()).env("API_TOKEN", &value));
        hidden(&long);
        let artifacts = place.newest().join("artifacts");
        assert!(crate::place::holds(&artifacts, b"[masked:API_TOKEN]"), "no artifact");
        let heard = told_in(&model, 1);
        assert!(heard.contains("[masked:API_TOKEN]"), "{heard}");
        assert!(spelt.iter().all(|spelling| !heard.contains(spelling)), "{heard}");
        place.assert_whole("finished");
    }
}

/// R58: a key in the file is refused, and not repeated.
#[test]
fn r58_a_literal_key_in_a_deployment_is_refused_without_echo() {
    let literal = [
        format!("api_key_env = \"{KEY}\""),
        format!("api_key = \"{KEY}\""),
        format!("base_url = \"http://user:{KEY}@127.0.0.1/v1\""),
    ];
    for line in literal {
        let place = Place::quick();
        place.guild(&["finish"]);
        place.write("oubliette.toml", format!("[model]\n{line}\n"));
        for ran in [place.run("http://127.0.0.1:9/v1"), place.exec(&["true"]), place.ran(["doctor"])] {
            assert_eq!(ran.code, Some(2), "{line}: {ran:?}");
            assert!(!ran.err.contains(KEY) && !ran.out.contains(KEY), "{line}: {ran:?}");
        }
        assert!(place.ids().is_empty());
    }
}

/// R58: the same in the manifest of a Guild, which has no entry for one.
#[test]
fn r58_a_guild_with_an_entry_for_a_key_is_refused_without_echo() {
    let place = Place::quick();
    place.guild(&["finish"]);
    let manifest = place.read("guild/guild.toml");
    place.write("guild/guild.toml", format!("{manifest}api_key = \"{KEY}\"\n"));
    let ran = place.ran(["guild", "check", "guild"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(!ran.err.contains(KEY), "{ran:?}");
}

/// R58: a key in a prompt is refused by whatever would send or keep it, and before that is done.
#[test]
fn r58_a_key_in_a_prompt_is_refused_and_leaves_no_trace() {
    let place = Place::quick();
    place.guild(&["finish"]);
    place.write("guild/prompts/worker.md", format!("You do it. Use {KEY} for it.\n"));
    let model = Script::new([finish()]).start();
    let told = [
        place.run(&model.base_url()),
        place.ran(["guild", "check", "guild"]),
        place.ran(["foundry", "init", "guild"]),
    ];
    for ran in told {
        assert_eq!(ran.code, Some(3), "{ran:?}");
        let told = format!("{}{}", ran.out, ran.err);
        assert!(told.contains("W-KEY-QUOTED") && !told.contains("canary"), "{ran:?}");
    }
    assert!(model.seen().is_empty(), "something was sent");
    assert!(place.ids().is_empty() && !crate::place::holds(&place.path("data"), b"sk-canary"));
}

#[test]
fn r58_a_variable_that_is_not_set_is_an_error_of_usage() {
    let place = Place::quick();
    with_key(&place);
    place.guild(&["finish"]);
    let model = Script::new([finish()]).start();
    place.run(&model.base_url()).assert_refused(2, "TEST_MODEL_KEY");
    assert!(model.seen().is_empty() && place.ids().is_empty());
}

/// What is passed on purpose arrives, and is masked wherever it comes back.
#[test]
fn a_passed_secret_arrives_and_is_masked_in_every_record() {
    let place = Place::quick();
    place.write("oubliette.toml", "[secrets]\npass = [\"REGISTRY_TOKEN\"]\n");
    place.guild(&["run_shell", "finish"]);
    let secret = "registry-canary-55aa55aa";
    let model =
        Script::new([sh("printf %s $REGISTRY_TOKEN | wc -c; echo token is $REGISTRY_TOKEN"), finish()])
            .start();
    let ran = ran(place.run_command(&model.base_url()).env("REGISTRY_TOKEN", secret));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(crate::place::told_in(&model, 1).contains(&secret.len().to_string()));
    assert!(!place.run_folder_holds(secret));
    assert!(model.seen().iter().all(|s| !String::from_utf8_lossy(&s.raw).contains(secret)));
    assert_eq!(place.file_of_run("meta.json")["secrets"], json!(["REGISTRY_TOKEN"]));
}

/// R58: the forker, the parent of every sandbox, has none of it either.
#[test]
fn r58_helper_processes_have_no_environment() {
    let place = Place::new("namespace", Who::Own);
    let mut command = place.exec_command(&[], &["sh", "-c", "touch ready; sleep 1000"]);
    command.env("TEST_MODEL_KEY", KEY);
    let program = crate::process::started(&place, &mut command);
    for process in program.guests().into_iter().chain([program.forker]) {
        assert!(!holds(&format!("/proc/{}/environ", process.id), KEY), "{process:?}");
        assert!(!holds(&format!("/proc/{}/cmdline", process.id), KEY), "{process:?}");
    }
    program.signal(rustix::process::Signal::TERM);
    assert_eq!(program.ended().code, Some(5));
}

/// R58: the forker is a copy of the program, and so is a guest's init: neither remembers what that was started with.
#[test]
fn r58_the_forker_remembers_neither_environment_nor_arguments() {
    let place = Place::new("namespace", Who::Own);
    let typed = "typed-canary-0123456789abcdef";
    let mut command = place.exec_command(&[], &["sh", "-c", "touch ready; sleep 1000", typed]);
    command.env("TEST_MODEL_KEY", KEY);
    let program = crate::process::started(&place, &mut command);
    for canary in [KEY, typed] {
        assert!(remembers(program.id(), canary), "the program itself has {canary}");
        assert!(!remembers(program.forker.id, canary), "the forker has {canary}");
    }
    // What is open in the program is not in the forker, but for the two locks that it keeps as long as the guest is
    // there; and a guest's init has neither.
    // Some of the guests are gone by now.
    let open = |pid: u32| std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let of_the_run = |pid: u32| -> Vec<std::path::PathBuf> {
        let targets = open(pid).filter_map(|fd| std::fs::read_link(fd.path()).ok());
        targets.filter(|target| target.starts_with(place.path(""))).collect()
    };
    let mut kept = of_the_run(program.forker.id);
    kept.sort();
    assert_eq!(kept, [place.path("data/ceiling/seat-0"), place.newest()]);
    for guest in program.guests() {
        assert_eq!(of_the_run(guest.id), Vec::<std::path::PathBuf>::new(), "{guest:?}");
    }
    program.signal(rustix::process::Signal::TERM);
    assert_eq!(program.ended().code, Some(5));
}

/// What steers programs from the environment (loaders, shells, interpreters, git) is not handed on: a guest's
/// environment is built anew (bug class D-8).
#[test]
fn nothing_that_steers_programs_is_handed_on() {
    const STEERS: [&str; 22] = [
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "LD_AUDIT",
        "BASH_ENV",
        "ENV",
        "PROMPT_COMMAND",
        "IFS",
        "GIT_DIR",
        "GIT_SSH_COMMAND",
        "GIT_EXTERNAL_DIFF",
        "GIT_CONFIG_GLOBAL",
        "PYTHONPATH",
        "PYTHONSTARTUP",
        "PYTHONHOME",
        "NODE_OPTIONS",
        "PERL5OPT",
        "PERL5LIB",
        "RUBYOPT",
        "JAVA_TOOL_OPTIONS",
        "GLIBC_TUNABLES",
        "EDITOR",
        "SSH_AUTH_SOCK",
    ];
    for tier in ["confined", "namespace", "gvisor"] {
        let place = Place::new(tier, Who::Own);
        std::fs::set_permissions(place.path(""), std::os::unix::fs::PermissionsExt::from_mode(0o711))
            .unwrap();
        let mut command = place.exec_command(&[], &["env", "-0"]);
        for name in STEERS {
            command.env(name, format!("steered-{name}"));
        }
        let ran = ran(&mut command);
        assert_eq!(ran.code, Some(0), "{tier}: {ran:?}");
        assert!(ran.out.contains("PATH=") && !ran.out.contains("steered-"), "{tier}: {}", ran.out);
        for name in STEERS {
            assert!(!ran.out.split('\0').any(|v| v.starts_with(&format!("{name}="))), "{tier}: {name}");
        }
    }
}
