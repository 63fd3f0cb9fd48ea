//! Rules of the source that no compiler holds.

use std::fs;
use std::path::{Path, PathBuf};

use toml::Table;

/// Production lines a file may have.
const MOST_LINES: usize = 800;

/// Ours, with what of ours each may depend on.
const ARROWS: [(&str, &[&str]); 8] = [
    ("policy", &[]),
    ("egress", &["policy"]),
    ("sandbox", &["policy"]),
    ("runs", &["policy", "egress", "sandbox"]),
    ("agent", &["policy", "runs"]),
    ("foundry", &["policy", "runs", "agent"]),
    ("oubliette", &["policy", "runs", "agent", "foundry"]),
    ("testkit", &[]),
];

fn root() -> PathBuf {
    fs::canonicalize(concat!(env!("CARGO_MANIFEST_DIR"), "/../..")).unwrap()
}

/// Every file beneath a folder of the repository whose name ends so.
fn files(under: &str, end: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut left = vec![root().join(under)];
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if entry.file_type().unwrap().is_dir() {
                left.push(path);
            } else if path.to_string_lossy().ends_with(end) {
                found.push(path);
            }
        }
    }
    found.sort();
    assert!(!found.is_empty(), "nothing is looked at in {under}");
    found
}

fn told(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

fn is_test(path: &Path) -> bool {
    let path = told(path);
    path.contains("/tests/") || path.ends_with("/tests.rs") || path.starts_with("crates/testkit/")
}

/// What is compiled into the program: a file up to its own tests.
fn production(path: &Path) -> String {
    let text = fs::read_to_string(path).unwrap();
    text.split("#[cfg(test)]").next().unwrap_or_default().to_owned()
}

/// Every crate: its name and its manifest.
fn crates() -> Vec<(String, Table)> {
    let manifests = files("crates", "/Cargo.toml");
    let parsed = manifests.iter().map(|path| {
        let table: Table = fs::read_to_string(path).unwrap().parse().unwrap();
        (table["package"]["name"].as_str().unwrap().to_owned(), table)
    });
    parsed.collect()
}

fn names(table: &Table, section: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut add = |part: &Table| {
        if let Some(list) = part.get(section).and_then(toml::Value::as_table) {
            found.extend(list.keys().cloned());
        }
    };
    add(table);
    for target in table.get("target").and_then(toml::Value::as_table).into_iter().flat_map(Table::values) {
        target.as_table().into_iter().for_each(&mut add);
    }
    found
}

#[test]
fn arrows_between_crates_go_one_way() {
    let ours: Vec<&str> = ARROWS.iter().map(|(name, _)| *name).collect();
    let mut seen = Vec::new();
    for (name, manifest) in crates() {
        let (_, may) =
            ARROWS.iter().find(|(n, _)| *n == name).unwrap_or_else(|| panic!("{name} has no arrows"));
        for section in ["dependencies", "build-dependencies"] {
            for other in names(&manifest, section).iter().filter(|d| ours.contains(&d.as_str())) {
                assert!(may.contains(&other.as_str()), "{name} must not depend on {other}");
            }
        }
        for other in names(&manifest, "dev-dependencies").iter().filter(|d| ours.contains(&d.as_str())) {
            assert!(
                other == "testkit" || may.contains(&other.as_str()),
                "the tests of {name} must not use {other}"
            );
        }
        seen.push(name);
    }
    assert_eq!(seen.len(), ARROWS.len(), "{seen:?}");
}

/// One door: only `runs` starts or drives a sandbox.
#[test]
fn nobody_but_runs_names_the_sandbox() {
    for path in files("crates", ".rs") {
        let crate_of = told(&path).split('/').nth(1).unwrap_or_default().to_owned();
        if ["sandbox", "runs"].contains(&crate_of.as_str()) || is_test(&path) {
            continue;
        }
        for (n, line) in production(&path).lines().enumerate() {
            assert!(!line.contains("sandbox::"), "{}:{}: {line}", told(&path), n + 1);
        }
    }
}

#[test]
fn every_crate_inherits_the_lints_and_stays_unpublished() {
    for (name, manifest) in crates() {
        assert_eq!(manifest["lints"]["workspace"].as_bool(), Some(true), "{name}");
        for key in ["version", "edition", "rust-version", "license", "publish"] {
            assert_eq!(manifest["package"][key]["workspace"].as_bool(), Some(true), "{name}: {key}");
        }
    }
}

#[test]
fn no_file_is_longer_than_a_reader_can_hold() {
    for path in files("crates", ".rs") {
        let lines = production(&path).lines().count();
        assert!(lines <= MOST_LINES, "{} has {lines} lines", told(&path));
    }
}

#[test]
fn code_without_guarantees_is_in_one_place() {
    let word = format!("{}{}", "un", "safe");
    for path in files("crates", ".rs") {
        let name = told(&path);
        if name == "crates/sandbox/src/sys.rs" || name.starts_with("crates/sandbox/src/sys/") {
            continue;
        }
        for (n, line) in fs::read_to_string(&path).unwrap().lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            let opens =
                [" {", " fn", " impl", " extern"].iter().any(|next| code.contains(&format!("{word}{next}")));
            assert!(!opens && !code.contains(&format!("({word}_code")), "{name}:{}: {line}", n + 1);
        }
    }
}

/// What reaches a person passes one place, which cleans it.
#[test]
fn nobody_but_render_writes_to_a_person() {
    // `export` writes files for programs; a question is asked with its cleaned parts in place.
    let may =
        ["crates/cli/src/render.rs", "crates/cli/src/command/export.rs", "crates/cli/src/command/apply.rs"];
    let writes = |line: &str| {
        ["stdout()", "stderr()"].iter().any(|stream| line.contains(&format!("{stream}.lock")))
            || line.contains("write!(io::")
            || line.contains("writeln!(io::")
            || line.contains("().write")
    };
    for path in files("crates/cli/src", ".rs") {
        let name = told(&path);
        for (n, line) in production(&path).lines().enumerate() {
            assert!(!writes(line) || may.contains(&name.as_str()), "{name}:{}: {line}", n + 1);
        }
    }
}

#[test]
fn nothing_is_left_over() {
    // Put together here, so that this file does not find itself.
    let left =
        [["to", "do!("], ["dbg", "!("], ["FIX", "ME"], ["XX", "X"], ["TO", "DO"], ["unimple", "mented!("]]
            .map(|w| w.concat());
    for path in files("crates", ".rs").into_iter().chain(files("docs", ".md")).chain(files("scripts", "")) {
        let Ok(text) = fs::read_to_string(&path) else { continue };
        for (n, line) in text.lines().enumerate() {
            // `mktemp` takes a run of that letter.
            let found = left.iter().any(|word| line.contains(word.as_str())) && !line.contains("mktemp");
            assert!(!found, "{}:{}: {line}", told(&path), n + 1);
        }
    }
}

#[test]
fn no_name_says_nothing() {
    let empty = ["utils", "util", "common", "helpers", "helper", "core", "types", "errors", "misc"];
    for path in files("crates", ".rs").into_iter().chain(files("crates", "Cargo.toml")) {
        for part in told(&path).split('/') {
            let stem = part.split('.').next().unwrap_or_default();
            assert!(!empty.contains(&stem), "{}", told(&path));
        }
    }
}

/// Roles and models are data. The names are those of the examples.
#[test]
fn no_role_and_no_model_is_named_in_code() {
    let mut forbidden = vec![
        "qwen".to_owned(),
        "llama3".to_owned(),
        "smollm".to_owned(),
        "deepseek".to_owned(),
        "gpt-".to_owned(),
    ];
    for path in files("examples/guilds", "/guild.toml") {
        let guild: Table = fs::read_to_string(path).unwrap().parse().unwrap();
        forbidden.extend(guild["roles"].as_table().unwrap().keys().cloned());
    }
    assert!(forbidden.len() > 5);
    for path in files("crates", ".rs").into_iter().filter(|p| !is_test(p)) {
        for (n, line) in production(&path).lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default().to_lowercase();
            let word = |name: &String| {
                let inside = |c: char| c.is_ascii_alphanumeric() || c == '_';
                code.match_indices(name.as_str()).any(|(at, _)| {
                    let before = code[..at].chars().next_back().is_some_and(inside);
                    let after = code[at + name.len()..].chars().next().is_some_and(inside);
                    !before && (!after || !name.chars().all(char::is_alphabetic))
                })
            };
            if let Some(name) = forbidden.iter().find(|name| word(name)) {
                panic!("{}:{}: names {name}: {line}", told(&path), n + 1);
            }
        }
    }
}

/// Whoever reads the front page or the overview finds every page.
#[test]
fn every_page_of_the_documentation_is_linked() {
    let fronts =
        ["README.md", "docs/architecture.md"].map(|f| fs::read_to_string(root().join(f)).unwrap_or_default());
    if fronts.iter().all(String::is_empty) {
        return;
    }
    for path in files("docs", ".md").into_iter().chain(files("docs", ".json")) {
        let name = told(&path);
        let short = name.strip_prefix("docs/").unwrap_or(&name);
        let linked = name == "docs/architecture.md" || fronts[0].contains(&name) || fronts[1].contains(short);
        assert!(linked, "nothing links {name}");
    }
}
