//! The rows that need no deployment of their own, in one machine: without KVM a boot takes its time.

use std::time::Instant;

use serde_json::{Value, json};

use super::by_run::{Drive, steps_of};
use super::judge::{Seen, judge};
use super::row;
use super::world::World;
use crate::place::act;

const ROWS: [&str; 22] = [
    "oc_19_1", "oc_19_2", "oc_19_3", "oc_21_1", "oc_21_2", "oc_21_3", "oc_21_4", "oc_26_1", "oc_27_1",
    "oc_27_2", "oc_27_3", "oc_29_1", "oc_30_1", "oc_30_3", "oc_31_1", "oc_31_2", "oc_31_3", "oc_32_1",
    "oc_32_2", "oc_33_1", "oc_33_3", "oc_33_4",
];

#[test]
fn rows_without_a_deployment_of_their_own_hold_in_a_machine() {
    let machine = World::new(json!({"id": "all", "policy": {"call": {"to_model": 100_000}}}), "microvm");
    let mut drive = Drive::start(&machine, &["run_command", "finish"], false);
    let mut played: Vec<(World, Seen, usize)> = Vec::new();
    let mut calls = 0;
    for name in ROWS {
        let world = World::new(row(name), "microvm");
        assert!(world.row["policy"].is_null() && world.row["setup"].as_array().is_none_or(Vec::is_empty));
        let argv: Value = world.filled(&world.row["input"], &world.source());
        let counts = world.row["expect"]["survivors"].is_number();
        let before = if counts { drive.inside() } else { 0 };
        let began = Instant::now();
        assert!(drive.say(act("run_command", json!({"argv": argv}))), "{name}");
        let took = began.elapsed();
        let texts = vec![drive.texts.pop().unwrap()];
        let at = calls + usize::from(counts);
        let survivors = counts.then(|| drive.inside().saturating_sub(before));
        calls += if counts { 3 } else { 1 };
        let seen = Seen { texts, took, survivors, runs: vec![drive.dir.clone()], ..Seen::default() };
        played.push((world, seen, at));
    }
    let (ran, dir, _) = drive.end();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let steps = steps_of(&dir);
    assert_eq!(steps.len(), calls);
    for (world, mut seen, at) in played {
        seen.steps = vec![steps[at].clone()];
        judge(&world, &seen);
    }
}
