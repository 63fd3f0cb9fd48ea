//! The console text of a guide is what really happens.
//!
//! A block is a list of commands, each after `$ `, and what they print. `[..]` stands for anything on a line, a
//! line `...` for any lines.

use std::fs;
use std::process::Stdio;

use crate::place::{Place, ran};

const GUIDES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/guide");

struct Step {
    command: String,
    expected: Vec<String>,
    line: usize,
}

/// The steps of all `console` blocks, in order.
fn steps(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut inside = false;
    for (n, line) in text.lines().enumerate() {
        match (inside, line) {
            (false, "```console") => inside = true,
            (true, "```") => inside = false,
            (true, _) => match (line.strip_prefix("$ "), steps.last_mut()) {
                (Some(command), _) => {
                    steps.push(Step { command: command.to_owned(), expected: Vec::new(), line: n + 1 });
                }
                (None, Some(step)) => step.expected.push(line.to_owned()),
                (None, None) => panic!("line {}: output before any command", n + 1),
            },
            (false, _) => {}
        }
    }
    steps
}

/// Whether lines are as expected.
fn fits(expected: &[String], got: &[&str]) -> bool {
    match expected.split_first() {
        None => got.is_empty(),
        Some((any, rest)) if any == "..." => (0..=got.len()).any(|n| fits(rest, &got[n..])),
        Some((line, rest)) => {
            got.split_first().is_some_and(|(g, more)| line_fits(line, g) && fits(rest, more))
        }
    }
}

fn line_fits(expected: &str, got: &str) -> bool {
    match expected.split_once("[..]") {
        None => expected == got,
        Some((head, tail)) => got.strip_prefix(head).is_some_and(|rest| {
            (0..=rest.len()).filter(|n| rest.is_char_boundary(*n)).any(|n| line_fits(tail, &rest[n..]))
        }),
    }
}

#[test]
fn the_first_steps_are_what_happens() {
    happens(&Place::any(), "first-steps.md", 8, &["oubliette "]);
}

#[test]
fn the_guide_to_the_gate_is_what_happens() {
    // Its own changes to a Guild are part of the story.
    happens(&Place::quick(), "gate.md", 12, &["oubliette ", "cp ", "sed ", "mkdir ", "printf ", "echo "]);
}

pub(crate) fn happens(place: &Place, guide: &str, least: usize, commands: &[&str]) {
    std::os::unix::fs::symlink(
        fs::canonicalize(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples")).unwrap(),
        place.path("examples"),
    )
    .unwrap();
    let steps = steps(&fs::read_to_string(format!("{GUIDES}/{guide}")).unwrap());
    assert!(steps.len() >= least, "the guide has {} steps", steps.len());
    let mut status = Some(0);
    for step in steps {
        let known = commands.iter().any(|command| step.command.starts_with(command));
        assert!(known, "line {}: {}", step.line, step.command);
        let mut command = place.command("sh".as_ref());
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", place.bin().display());
        // Both streams in the order in which a terminal shows them.
        let line = format!("exec 2>&1; (exit {}); {}", status.unwrap_or(255), step.command);
        let ran = ran(command.args(["-c", &line]).env("PATH", path).stderr(Stdio::null()));
        status = ran.code;
        let got: Vec<&str> = ran.out.lines().collect();
        assert!(
            fits(&step.expected, &got),
            "line {}: {}\nexpected:\n{}\ngot:\n{}",
            step.line,
            step.command,
            step.expected.join("\n"),
            ran.out
        );
    }
}

#[test]
fn wildcards_stand_for_what_they_say() {
    let fits = |expected: &str, got: &str| {
        let expected: Vec<String> = expected.lines().map(str::to_owned).collect();
        super::guide::fits(&expected, &got.lines().collect::<Vec<_>>())
    };
    assert!(fits("a\n...\nd [..] f", "a\nb\nc\nd é f"));
    assert!(fits("...", ""));
    assert!(!fits("a", "a\nb"));
    assert!(!fits("a\n...\nz", "a\nb"));
    assert!(!fits("a [..] c", "a b d"));
}
