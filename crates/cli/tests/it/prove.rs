//! `oubliette prove`: every tier holds against every attack, and a wall that does not is noticed.

use std::path::Path;
use std::process::Output;

use serde_json::Value;

fn prove(folder: &Path, args: &[&str]) -> Output {
    #[expect(clippy::disallowed_methods, reason = "the program is tested as a user runs it")]
    std::process::Command::new(env!("CARGO_BIN_EXE_oubliette"))
        .args(["prove", "--data"])
        .arg(folder)
        .args(args)
        .output()
        .unwrap()
}

/// A folder that the confined tier's own id can pass through.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o711)).unwrap();
    folder
}

fn rows(out: &Output) -> (Value, Vec<Value>) {
    let whole: Value = serde_json::from_slice(&out.stdout).unwrap();
    let proof = &whole["proofs"][0];
    let rows = [&proof["attacks"], &proof["afterwards"]].map(|r| r.as_array().unwrap().clone()).concat();
    (whole, rows)
}

/// What may be told as `held*` here, by the list that lies beside the tests.
fn may_be_around(tier: &str) -> Vec<&'static str> {
    let user = !rustix::process::geteuid().is_root();
    let lines =
        include_str!("../around.txt").lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| line.split(' ').collect::<Vec<_>>())
        .filter(|words| words[0] == "any" || (user && words[0] == "user"))
        .filter(|words| words[1] == "*" || words[1] == tier)
        .flat_map(|words| words[2..].to_vec())
        .collect()
}

fn holds(tier: &str, only: &[&str], most: usize) {
    let folder = folder();
    let file = folder.path().join("proof.json");
    let args = [&["--tier", tier, "--json", "--out", file.to_str().unwrap()], only].concat();
    let out = prove(folder.path(), &args);
    let (whole, rows) = rows(&out);
    let bad: Vec<&Value> = rows
        .iter()
        .filter(|r| !["held", "held_around", "not_here"].contains(&r["verdict"].as_str().unwrap()))
        .collect();
    assert!(bad.is_empty(), "{bad:#?}");
    assert!(rows.len() >= most, "{}", rows.len());
    // What slid from `held` to `held*` shows nothing any more.
    let may = may_be_around(tier);
    let slid: Vec<&Value> = rows
        .iter()
        .filter(|r| r["verdict"] == "held_around" && !may.contains(&r["id"].as_str().unwrap()))
        .collect();
    assert!(slid.is_empty(), "no more than held*: {slid:#?}");
    assert_eq!((out.status.code(), &whole["holds"]), (Some(0), &Value::Bool(true)));
    assert_eq!((&whole["holds_on"], &whole["absent"]), (&serde_json::json!([tier]), &serde_json::json!([])));
    // What was refused outside as well, or by something else, says so; every attack says what showed that it could succeed.
    for row in whole["proofs"][0]["attacks"].as_array().unwrap() {
        let (verdict, detail) = (&row["verdict"], row["detail"].as_str().unwrap());
        if verdict == "held_around" {
            assert!(detail.contains("outside of any sandbox") || detail.contains("something else"), "{row}");
        }
        assert!(verdict == "not_here" || !row["control"].as_str().unwrap().is_empty(), "{row}");
    }
    // What the file is of stands in it.
    assert_eq!((&whole["format"], &whole["selection"]["tiers"]), (&2.into(), &serde_json::json!([tier])));
    let (tried, of) = (&whole["selection"]["attacks"], &whole["selection"]["of"]);
    assert_eq!(tried == of, only.is_empty(), "{whole}");
    assert_eq!(whole["corpus"].as_str().unwrap().len(), 64);
    for key in ["date", "kernel", "capabilities"] {
        assert!(whole["about"][key].as_str().is_some_and(|said| !said.is_empty()), "{key}");
    }
    let runsc = whole["about"]["runsc"].as_str().unwrap_or_default();
    assert!(tier != "gvisor" || runsc.chars().any(|c| c.is_ascii_digit()), "{runsc}");
    assert_eq!(whole["about"]["uid"], rustix::process::geteuid().as_raw());
    let kept: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(kept, whole);
    // Nothing but that file is left.
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[cfg(feature = "wasm")]
#[test]
fn r53_every_module_is_held_by_wasm() {
    let folder = folder();
    let out = prove(folder.path(), &["--tier", "wasm", "--json"]);
    let (whole, rows) = rows(&out);
    let held = rows.iter().filter(|r| r["verdict"] == "held").count();
    let other: Vec<&Value> =
        rows.iter().filter(|r| r["verdict"] != "held" && r["verdict"] != "not_here").collect();
    assert!(other.is_empty(), "{other:#?}");
    assert!(held >= 15, "{held}");
    assert_eq!((out.status.code(), &whole["holds"]), (Some(0), &Value::Bool(true)));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// A module that does reach what it tries to is told as such, and one that proves nothing as an error.
#[cfg(feature = "wasm")]
#[test]
fn a_module_that_gets_through_or_proves_nothing_is_told_as_such() {
    let folder = folder();
    let file = folder.path().join("mine.toml");
    let row = |id: &str, more: &str, module: &str| {
        format!(
            "[[attack]]\nid = 'mine-{id}'\ninvariant = 'nothing_outside'\nabout = 'x'\n\
             layers = {{ wasm = 'none' }}\n{more}\nmodule = \"\"\"\n{module}\n\"\"\"\n"
        )
    };
    let control = "(call $control (i32.const 0))";
    let text = [
        row("succeeds", "", &format!("{control} (call $attempt (call $make (i32.const 128) (i32.const 4)))")),
        row("tries-nothing", "", control),
        row("no-control", "", "(call $attempt (i32.const 1))"),
        row("dies", "", &format!("{control} (call $attempt (i32.const 1)) unreachable")),
        row("no-module", "", "(call $nothing)"),
        row("unstruck", "struck_by = ['cpu']", &format!("{control} (call $attempt (i32.const 1))")),
        row("struck-otherwise", "struck_by = ['memory']", &format!("{control} (loop (br 0))")),
        row("good", "", &format!("{control} (call $attempt (i32.const 1))")),
    ]
    .concat();
    std::fs::write(&file, text).unwrap();
    let args = ["--tier", "wasm", "--only", "mine-", "--json", "--attacks", file.to_str().unwrap()];
    let out = prove(folder.path(), &args);
    let (_, rows) = rows(&out);
    let verdicts: Vec<String> = rows
        .iter()
        .filter_map(|r| {
            let name = r["id"].as_str().unwrap().strip_prefix("mine-")?;
            Some(format!("{name} {}", r["verdict"].as_str().unwrap()))
        })
        .collect();
    let expected = [
        "succeeds broken",
        "tries-nothing error",
        "no-control error",
        "dies error",
        "no-module error",
        "unstruck broken",
        "struck-otherwise error",
        "good held",
    ];
    assert_eq!(verdicts, expected);
    assert_eq!(out.status.code(), Some(1));
}

/// Names of the list that are no attack's would let nothing slide but the reader.
#[test]
fn every_name_that_may_be_around_is_an_attacks() {
    let corpus = runs::Corpus::shipped().unwrap();
    let names: Vec<&str> = corpus.attacks().iter().map(|attack| attack.id.as_str()).collect();
    for line in include_str!("../around.txt").lines().filter(|l| !l.is_empty() && !l.starts_with('#')) {
        let mut words = line.split(' ');
        assert!(["any", "user", "container"].contains(&words.next().unwrap()), "{line}");
        let tier = words.next().unwrap();
        assert!(["*", "confined", "namespace", "gvisor", "microvm"].contains(&tier), "{line}");
        for name in words {
            assert!(names.contains(&name), "{name}");
        }
    }
}

/// R55: each attack names the layer that must stop it. 73 of them, and four looks afterwards; where there is a way out,
/// a fifth at what passed.
#[test]
fn r55_every_attack_is_held_by_confined() {
    holds("confined", &[], 77);
}

#[test]
fn r55_every_attack_is_held_by_namespace() {
    holds("namespace", &[], 78);
}

#[test]
fn r55_every_attack_is_held_by_gvisor() {
    holds("gvisor", &[], 78);
}

/// Those that are particular to a machine, one machine against another, and some on its way out; an emulated one takes
/// minutes for all.
#[test]
fn r55_attacks_on_a_machine_and_on_its_neighbour_are_held_by_microvm() {
    let only =
        ["of-a-machine", "neighbour", "no-way", "frames-of", "names-leading-in", "a-terminal-of-its-own"];
    holds("microvm", &only.map(|only| ["--only", only]).concat(), 14);
}

#[test]
fn the_folder_to_work_in_is_made_and_one_that_cannot_be_is_told() {
    let folder = folder();
    let there = folder.path().join("not/there/yet");
    let args = ["--tier", "namespace", "--only", "host-file-by-dots"];
    let out = prove(&there, &args);
    assert_eq!(out.status.code(), Some(0), "{out:?}");
    let said = String::from_utf8_lossy(&out.stdout);
    let selection = said.lines().find(|line| line.starts_with("of a selection: 2 of "));
    assert!(selection.unwrap().ends_with(" attacks; named host-file-by-dots; on namespace"), "{said}");
    assert_eq!(std::fs::read_dir(&there).unwrap().count(), 0);
    std::fs::write(folder.path().join("file"), "").unwrap();
    let out = prove(&folder.path().join("file/folder"), &args);
    let err = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{err}");
    assert!(err.contains("cannot make") && err.contains("file/folder"), "{err}");
}

/// Each row would be an error otherwise, since root's executor lends the folder to users without rights.
#[test]
fn a_folder_that_others_may_not_pass_to_is_told_before_anything_is_tried() {
    let folder = folder();
    let shut = folder.path().join("shut");
    std::fs::create_dir(&shut).unwrap();
    std::fs::set_permissions(&shut, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let out = prove(&shut.join("data"), &["--tier", "namespace", "--only", "host-file-by-dots"]);
    let err = String::from_utf8_lossy(&out.stderr);
    if rustix::process::geteuid().is_root() {
        assert_eq!(out.status.code(), Some(2), "{err}");
        assert!(err.contains("shut lets nobody else through") && err.contains("chmod o+x"), "{err}");
    } else {
        assert_eq!(out.status.code(), Some(0), "{err}");
    }
}

/// Attacks that do get what they want, or cannot be tried: none of them may pass for held.
#[test]
fn a_broken_wall_and_an_attack_that_proves_nothing_are_told_as_such() {
    let folder = folder();
    let file = folder.path().join("mine.toml");
    let row = |id: &str, more: &str, program: &str| {
        let control = if more.contains("control = ") { "" } else { "control = 'none: a row of a test'\n" };
        let layer = if id.starts_with("by-") { "seccomp" } else { "none" };
        format!(
            "[[attack]]\nid = 'mine-{id}'\ninvariant = 'nothing_outside'\nabout = 'x'\n{control}\
             layers = {{ namespace = '{layer}' }}\n{more}\nprogram = '''\n{program}\n'''\n"
        )
    };
    let text = [
        row("succeeds", "", "attempt('write', lambda: write('./mine'))"),
        row("tries-nothing", "", "pass"),
        row("dies", "", "say('held', 'first'); os.abort()"),
        row("no-program", "", "say('held', 'first'); run('no-such-program')"),
        row("control-fails", "", "say('held', 'first'); control('x', lambda: read('/nonexistent'))"),
        row("unplanted", "plant = \"raise SystemExit(1)\"", "say('held', 'first')"),
        row("bare", "control = 'host'", "attempt('x', lambda: read('/nonexistent'))"),
        row("good", "control = 'host'", "attempt('x', lambda: read(FACTS['canary']))"),
        // In this system no such family is known to anybody.
        row("nowhere", "control = 'host'", "attempt('x', lambda: socket.socket(200, 1, 0))"),
        row("inner", "control = 'inner'", "control('x', lambda: 0); say('held', 'first')"),
        row("inner-silent", "control = 'inner'", "say('held', 'first')"),
        row("by-it", "", "attempt('x', lambda: socket.socket(38, 5, 0)); say('held', 'more', 'ENOENT')"),
        row("by-another", "", "attempt('x', lambda: read('/nonexistent'))"),
        row("late", "struck_by = ['memory']\nseconds = 1", "say('held', 'first'); time.sleep(30)"),
        row("late-well", "struck_by = ['timeout']\nseconds = 8", "say('held', 'first'); time.sleep(30)"),
        row("signalled", "struck_by = ['memory']", "say('held', 'first'); os.abort()"),
        row("after", "after = [\"raise SystemExit(1)\"]", "say('held', 'first')"),
        row("after-nothing", "after = [\"pass\"]", "say('held', 'first')"),
        row("after-well", "after = [\"control('x', lambda: 0)\"]", "say('held', 'first')"),
        row("no-terminal", "", "say('held', 'first'); control('x', lambda: os.ttyname(0))"),
        row("terminal", "terminal = true", "say('held', 'first'); control('x', lambda: os.ttyname(0))"),
    ]
    .concat();
    std::fs::write(&file, text).unwrap();
    let more = ["--attacks", file.to_str().unwrap()];
    let out =
        prove(folder.path(), &[&["--tier", "namespace", "--only", "mine-", "--json"], &more[..]].concat());
    let (whole, rows) = rows(&out);
    let verdicts: Vec<String> = rows
        .iter()
        .filter_map(|r| {
            let name = r["id"].as_str().unwrap().strip_prefix("mine-")?;
            Some(format!("{name} {}", r["verdict"].as_str().unwrap()))
        })
        .collect();
    let expected = [
        "succeeds broken",
        "tries-nothing error",
        "dies error",
        "no-program error",
        "control-fails error",
        "unplanted error",
        "bare held_around",
        "good held",
        "nowhere held_around",
        "inner held",
        "inner-silent error",
        "by-it held",
        "by-another held_around",
        "late error",
        "late-well held",
        "signalled error",
        "after broken",
        "after-nothing broken",
        "after-well held",
        "no-terminal error",
        "terminal held",
    ];
    assert_eq!(verdicts, expected);
    let said = |id: &str, key: &str| {
        let row = rows.iter().find(|r| r["id"] == format!("mine-{id}")).unwrap();
        row[key].as_str().unwrap().to_owned()
    };
    let late = said("late", "detail");
    assert!(late.contains("timeout where only memory may end it"), "{late}");
    assert_eq!(said("late-well", "detail"), "ended: timeout");
    assert_eq!(said("nowhere", "detail"), "also refused outside of any sandbox here: EAFNOSUPPORT");
    assert_eq!(said("good", "control"), "outside 1 of 1 succeed");
    assert_eq!(said("by-it", "detail"), "1 of 2 stopped by something else than seccomp: ENOENT");
    assert_eq!(said("by-another", "detail"), "1 of 1 stopped by something else than seccomp: ENOENT");
    assert_eq!(said("by-it", "control"), "none: a row of a test");
    assert_eq!((out.status.code(), &whole["holds"]), (Some(1), &Value::Bool(false)));
    assert_eq!(whole["holds_on"], serde_json::json!([]));
}

/// An attack on a grant that gets through is told, by its own word or by those who stand outside; and the way that it is
/// made on does carry what is granted.
#[test]
fn what_gets_out_by_a_grant_is_seen_from_inside_and_from_outside() {
    let folder = folder();
    let file = folder.path().join("mine.toml");
    let row = |id: &str, program: &str| {
        format!(
            "[[attack]]\nid = 'mine-{id}'\ninvariant = 'no_network_by_default'\nabout = 'x'\n\
             layers = {{ namespace = 'none', gvisor = 'none' }}\ngranted = true\n\
             control = 'none: a row of a test'\nprogram = '''\n\
             name, port, zone = the_way()\n\
             ask = lambda path: b'GET http://%s:%d/%s HTTP/1.1\\r\\nHost: %s:%d\\r\\n\\r\\n' % (name, port, path, name, port)\n\
             {program}\n'''\n"
        )
    };
    let text = [
        row("good", "say('held', 'it only looked')"),
        row("reached", "through('x', ask(b''))"),
        row("by-connect", "through('x', asking(name, port)[0][1])"),
        row("for-another", "answered(ask(b'smuggled')); say('held', 'says nothing')"),
        row("again", "say('held', 'what was seen of the last one is not seen again')"),
    ]
    .concat();
    std::fs::write(&file, text).unwrap();
    for tier in ["namespace", "gvisor"] {
        let args = ["--tier", tier, "--only", "mine-", "--json", "--attacks", file.to_str().unwrap()];
        let out = prove(folder.path(), &args);
        let (_, rows) = rows(&out);
        let verdicts: Vec<&str> = rows.iter().map(|r| r["verdict"].as_str().unwrap()).take(5).collect();
        assert_eq!(verdicts, ["held", "broken", "broken", "broken", "held"], "{tier}: {rows:#?}");
        assert!(
            rows[3]["detail"].as_str().unwrap().starts_with("outside: a granted server got"),
            "{rows:#?}"
        );
        let passed = rows.iter().find(|r| r["id"] == "what-passed-is-recorded").unwrap();
        assert_eq!(passed["verdict"], "held", "{tier}");
    }
}

/// What only the outside sees: an attack that lies about what it did.
#[test]
fn an_attack_that_says_nothing_is_still_seen_from_outside() {
    let folder = folder();
    let file = folder.path().join("mine.toml");
    // Somebody outside changes the canary while the attack goes on, which waits for that and claims that nothing happened.
    let there = folder.path().to_path_buf();
    let inside = |folder: &Path| -> Vec<std::path::PathBuf> {
        std::fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()).collect()
    };
    let changed = std::thread::spawn(move || {
        let began = std::time::Instant::now();
        while began.elapsed() < std::time::Duration::from_secs(300) {
            for scratch in inside(&there) {
                let runs = inside(&scratch.join("runs-namespace"));
                let workspace = runs.iter().map(|run| run.join("workspace"));
                if let Some(workspace) = workspace.into_iter().find(|w| w.join("tries").exists()) {
                    std::fs::write(scratch.join("canary-namespace/canary"), "changed").unwrap();
                    std::fs::write(workspace.join("changed"), "").unwrap();
                    return true;
                }
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        false
    });
    let program = "write('tries')\nwhile not os.path.exists('changed'): time.sleep(0.02)\n\
         say('held', 'nothing happened')";
    let text = format!(
        "[[attack]]\nid = 'mine-lies'\ninvariant = 'nothing_outside'\nabout = 'x'\n\
         layers = {{ namespace = 'none' }}\ncontrol = 'none: a row of a test'\nprogram = '''\n{program}\n'''\n"
    );
    std::fs::write(&file, text).unwrap();
    let args = ["--tier", "namespace", "--only", "mine-", "--json", "--attacks", file.to_str().unwrap()];
    let out = prove(folder.path(), &args);
    let (_, rows) = rows(&out);
    assert!(changed.join().unwrap());
    assert_eq!(rows[0]["verdict"], "broken", "{rows:#?}");
    assert!(rows[0]["detail"].as_str().unwrap().contains("changed"), "{rows:#?}");
    assert_eq!(out.status.code(), Some(1));
}

#[test]
fn a_tier_that_cannot_be_had_is_told_with_its_remedy_and_a_code_of_its_own() {
    let folder = folder();
    // No machine is made of what lies in a folder that others may write to.
    let cache = folder.path().join("cache/oubliette/machine");
    std::fs::create_dir_all(&cache).unwrap();
    std::fs::set_permissions(&cache, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    #[expect(clippy::disallowed_methods, reason = "the program is tested as a user runs it")]
    let out = std::process::Command::new(env!("CARGO_BIN_EXE_oubliette"))
        .args(["prove", "--tier", "microvm", "--only", "host-file", "--json", "--data"])
        .arg(folder.path())
        .env("XDG_CACHE_HOME", folder.path().join("cache"))
        .output()
        .unwrap();
    let whole: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert!(whole["absent"][0]["remedy"].as_str().is_some_and(|r| !r.is_empty()), "{whole}");
    assert_eq!((out.status.code(), &whole["holds"]), (Some(3), &Value::Bool(false)));
    assert_eq!(
        (&whole["holds_on"], &whole["absent"][0]["tier"]),
        (&serde_json::json!([]), &"microvm".into())
    );
    assert_eq!(prove(folder.path(), &["--only", "no-such-attack"]).status.code(), Some(2));
}

/// On the host, before its attack is made: waits for that to run, and ends the executor's helper, so that no sandbox lives
/// on and none can be started.
const ENDS_THE_FORKER: &str = r#"
if FACTS["where"] == "host":
    above = os.getppid()
    if os.fork() == 0:
        os.setsid(); os.dup2(os.open("/dev/null", os.O_WRONLY), 1)
        inside = lambda: [p for p in os.listdir("/proc") if p.isdigit() and runs(p)]
        def runs(p):
            try: words = open("/proc/%s/cmdline" % p, "rb").read().split(b"\0")
            except OSError: return False
            # This test's program and no neighbour's, and told that it is inside; that this text asks for it is not that.
            told = [w for w in words if w[:1] == b"{" and b'"where":"namespace"' in w]
            return bool(told) and any(b"OF_THIS_TEST" in w for w in words)
        while not inside(): time.sleep(0.01)
        for thread in os.listdir("/proc/%d/task" % above):
            for kid in open("/proc/%d/task/%s/children" % (above, thread)).read().split():
                if int(kid) != os.getpid(): os.kill(int(kid), signal.SIGKILL)
        os._exit(0)
    say("broken", "x"); os._exit(0)
control("here", lambda: 0)
say("held", "x")
time.sleep(60)
"#;

/// What a tier let stays told when no sandbox can be had any more, in the middle of it: it was tried, and does not hold.
#[test]
fn what_broke_is_kept_when_no_further_sandbox_can_be_had() {
    let folder = folder();
    let file = folder.path().join("mine.toml");
    let row = |id: &str, more: &str, program: &str| {
        format!(
            "[[attack]]\nid = 'mine-{id}'\ninvariant = 'x'\nabout = 'x'\nlayers = {{ namespace = 'none' }}\n{more}\n\
             program = '''\n{program}\n'''\n"
        )
    };
    let root = rustix::process::geteuid().is_root();
    let own = ENDS_THE_FORKER.replace("OF_THIS_TEST", &folder.path().display().to_string());
    let ends = if root { "control = 'root'" } else { "control = 'host'" };
    let text = [
        row("breaks", "control = 'none: x'", "say('broken', 'x')"),
        row("ends", &format!("{ends}\nafter = ['control(\"x\", lambda: 0)']"), &own),
        row("later", "control = 'none: x'", "say('held', 'x')"),
    ]
    .concat();
    std::fs::write(&file, text).unwrap();
    let mut args =
        vec!["--tier", "namespace", "--only", "mine-", "--json", "--attacks", file.to_str().unwrap()];
    args.extend(root.then_some("--attacks-as-root"));
    let out = prove(folder.path(), &args);
    let (whole, rows) = rows(&out);
    let verdict = |id: &str| rows.iter().find(|r| r["id"] == id).unwrap_or_else(|| panic!("{whole}"));
    assert_eq!(verdict("mine-breaks")["verdict"], "broken");
    assert_eq!(verdict("mine-ends")["verdict"], "broken", "{}", verdict("mine-ends"));
    assert!(verdict("mine-ends")["detail"].as_str().unwrap().contains("the next call could not be made"));
    assert_eq!(verdict("mine-later")["verdict"], "error", "{}", verdict("mine-later"));
    assert_eq!((out.status.code(), &whole["holds"]), (Some(1), &Value::Bool(false)));
    assert_eq!((&whole["absent"], &whole["failed"]), (&serde_json::json!([]), &serde_json::json!([])));
}

/// Before minutes of work, and with nothing of what stood there lost.
#[test]
fn a_file_that_cannot_be_written_is_told_before_anything_is_attacked() {
    let folder = folder();
    let out = prove(folder.path(), &["--tier", "confined", "--json", "--out", "/nonexistent/proof.json"]);
    assert_eq!((out.status.code(), out.stdout.len()), (Some(2), 0), "{out:?}");
    assert!(String::from_utf8_lossy(&out.stderr).contains("/nonexistent/proof.json"), "{out:?}");
    let kept = folder.path().join("proof.json");
    std::fs::write(&kept, "of another day").unwrap();
    let args = ["--tier", "confined", "--only", "no-such-attack", "--out", kept.to_str().unwrap()];
    assert_eq!(prove(folder.path(), &args).status.code(), Some(2));
    assert_eq!(std::fs::read_to_string(&kept).unwrap(), "of another day");
}
