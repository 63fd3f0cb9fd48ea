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
    assert_eq!((out.status.code(), &whole["holds"]), (Some(0), &Value::Bool(true)));
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
        row("unstruck", "struck = true", &format!("{control} (call $attempt (i32.const 1))")),
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
        "good held",
    ];
    assert_eq!(verdicts, expected);
    assert_eq!(out.status.code(), Some(1));
}

#[test]
fn r65_every_attack_is_held_by_confined() {
    holds("confined", &[], 64);
}

#[test]
fn r65_every_attack_is_held_by_namespace() {
    holds("namespace", &[], 64);
}

#[test]
fn r65_every_attack_is_held_by_gvisor() {
    holds("gvisor", &[], 64);
}

/// Those that are particular to a machine, and one machine against another; an emulated one takes minutes for all.
#[test]
fn r65_attacks_on_a_machine_and_on_its_neighbour_are_held_by_microvm() {
    holds("microvm", &["--only", "of-a-machine", "--only", "neighbour"], 9);
}

#[test]
fn the_folder_to_work_in_is_made_and_one_that_cannot_be_is_told() {
    let folder = folder();
    let there = folder.path().join("not/there/yet");
    let args = ["--tier", "namespace", "--only", "host-file-by-dots"];
    let out = prove(&there, &args);
    assert_eq!(out.status.code(), Some(0), "{out:?}");
    assert_eq!(std::fs::read_dir(&there).unwrap().count(), 0);
    std::fs::write(folder.path().join("file"), "").unwrap();
    let out = prove(&folder.path().join("file/folder"), &args);
    let err = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{err}");
    assert!(err.contains("cannot make") && err.contains("file/folder"), "{err}");
}

/// Attacks that do get what they want, or cannot be tried: none of them may pass for held.
#[test]
fn a_broken_wall_and_an_attack_that_proves_nothing_are_told_as_such() {
    let folder = folder();
    let file = folder.path().join("mine.toml");
    let row = |id: &str, more: &str, program: &str| {
        format!(
            "[[attack]]\nid = 'mine-{id}'\ninvariant = 'nothing_outside'\nabout = 'x'\n\
             layers = {{ namespace = 'none' }}\n{more}\nprogram = '''\n{program}\n'''\n"
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
    ];
    assert_eq!(verdicts, expected);
    assert_eq!((out.status.code(), &whole["holds"]), (Some(1), &Value::Bool(false)));
}

/// What only the outside sees: an attack that lies about what it did.
#[test]
fn an_attack_that_says_nothing_is_still_seen_from_outside() {
    let folder = folder();
    let file = folder.path().join("mine.toml");
    // The control runs where nothing contains it and changes the canary; the sandboxed half claims success.
    let program = "if FACTS['where'] == 'host': write(FACTS['canary'])\nsay('held', 'nothing happened')";
    let text = format!(
        "[[attack]]\nid = 'mine-lies'\ninvariant = 'nothing_outside'\nabout = 'x'\n\
         layers = {{ namespace = 'none' }}\ncontrol = 'host'\nprogram = '''\n{program}\n'''\n"
    );
    std::fs::write(&file, text).unwrap();
    let args = ["--tier", "namespace", "--only", "mine-", "--json", "--attacks", file.to_str().unwrap()];
    let out = prove(folder.path(), &args);
    let (_, rows) = rows(&out);
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
    assert_eq!(prove(folder.path(), &["--only", "no-such-attack"]).status.code(), Some(2));
}
