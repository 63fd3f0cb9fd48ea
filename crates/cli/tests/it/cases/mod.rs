//! What went wrong elsewhere: `tests/cases/cases.jsonl`, played row by row by `oubliette prove --cases`.
//!
//! Each row is a small attack, accident or control from public reports about other executors, in neutral words. How it is
//! played and judged is the product's (`src/cases`); here it is a test for each tier it is asked on:
//! `cases::oc_19_1::namespace`. One that is neither asked nor among those that mean nothing here, each with why, fails a
//! test.

mod runner;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::place::{Place, Ran, Who};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases/cases.jsonl");

/// All rows, in order.
fn rows() -> Vec<Value> {
    let text = std::fs::read_to_string(FILE).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The row whose test has this name: `oc_19_1` is `OC-19.1`.
fn id(name: &str) -> String {
    name.replacen("oc_", "OC-", 1).replace('_', ".")
}

/// Rows of a file on a tier, and what is said of them.
fn prove(place: &Place, file: &str, only: &[String]) -> (Ran, Vec<Value>) {
    let mut args: Vec<&str> =
        vec!["prove", "--cases", file, "--tier", place.tier, "--data", "prove", "--json"];
    args.extend(only.iter().flat_map(|id| ["--only", id]));
    let ran = place.ran(args);
    let rows = ran.json()["rows"].as_array().unwrap().clone();
    // Nothing of any row is left.
    assert_eq!(std::fs::read_dir(place.path("prove")).unwrap().count(), 0, "{ran:?}");
    (ran, rows)
}

/// A row holds on a tier.
fn play(name: &str, tier: &'static str) {
    let (ran, rows) = prove(&Place::new(tier, Who::Own), FILE, &[id(name)]);
    assert_eq!((rows.len(), &rows[0]["verdict"], ran.code), (1, &"held".into(), Some(0)), "{rows:#?}");
}

/// Classes whose every row holds on every one of the three tiers.
const MUST: [&str; 4] = ["limits", "process-lifecycle", "output", "run-isolation"];

macro_rules! rows {
    ($($(#[$doc:meta])+ $group:ident $tiers:tt { $($name:ident)+ })+) => {
        /// Rows and their tiers, by group.
        const ASKED: &[(&[&str], &[&str])] = &[$((&[$(stringify!($name)),+], rows! { @tiers $tiers })),+];

        $($(rows! { @row $name $tiers })+)+
    };
    (@tiers [$($tier:ident)+]) => { &[$(stringify!($tier)),+] };
    (@row $name:ident [$($tier:ident)+]) => {
        mod $name {
            $(#[test]
            fn $tier() {
                super::play(stringify!($name), stringify!($tier));
            })+
        }
    };
}

rows! {
    /// What a sandbox does.
    everywhere [namespace gvisor confined] {
        oc_01_1 oc_01_2 oc_01_3 oc_02_1 oc_02_2 oc_03_1 oc_03_2 oc_03_3
        oc_04_1 oc_04_2 oc_05_1 oc_05_2 oc_05_3 oc_06_1 oc_06_2
        oc_14_1
        oc_19_1 oc_19_2 oc_19_3 oc_20_1 oc_20_2 oc_20_3 oc_21_1 oc_21_2 oc_21_3 oc_21_4
        oc_22_1 oc_22_2 oc_22_3 oc_22_4 oc_23_1 oc_23_2 oc_24_1 oc_24_2 oc_24_3 oc_24_4 oc_25_1 oc_25_2
        oc_27_1 oc_27_2 oc_27_3 oc_28_1 oc_28_2 oc_30_1 oc_30_2 oc_30_3
        oc_31_1 oc_31_2 oc_31_3 oc_31_4 oc_32_1 oc_32_2 oc_33_1 oc_33_2 oc_33_3 oc_33_4 oc_33_5
        oc_34_1 oc_34_2 oc_42_1 oc_42_2 oc_43_1
    }
    /// Not in the tier confined, which has no socket at all and no shared memory; what it stands on is taken away otherwise
    /// (`sandbox`, absent/). The rest is the executor's own: two tiers show that none changes it.
    walled [namespace gvisor] {
        oc_07_1 oc_07_2 oc_14_2 oc_15_1 oc_26_1 oc_29_1 oc_36_1 oc_36_2 oc_36_3 oc_36_4 oc_36_5 oc_39_1
    }
    /// What the executor decides, whatever the tier.
    decided [namespace] {
        oc_08_1 oc_08_2 oc_08_3 oc_08_4 oc_08_5 oc_08_6 oc_09_1 oc_09_2 oc_09_3 oc_09_4 oc_09_5 oc_09_6
        oc_10_1 oc_10_2 oc_10_3 oc_11_1 oc_11_2 oc_11_3 oc_11_4 oc_11_5 oc_11_6 oc_11_7 oc_11_8
        oc_12_1 oc_12_2 oc_12_3
        oc_35_1 oc_35_2 oc_35_3 oc_35_5 oc_37_1 oc_37_2
        oc_40_1 oc_40_2 oc_40_3
    }
    /// What the gate says of a change.
    gate [namespace] { oc_41_1 oc_41_2 oc_41_3 oc_41_4 oc_41_5 oc_41_6 oc_41_7 }
    /// Where the way out leads, decided by itself: these rows start no sandbox, so on every tier they are the same.
    reached [namespace] {
        oc_13_1 oc_13_2 oc_13_3 oc_13_4 oc_13_5 oc_16_1 oc_16_2 oc_16_3 oc_16_4 oc_16_5
        oc_17_1 oc_17_2 oc_17_3 oc_17_4 oc_17_5 oc_17_6 oc_17_7 oc_17_8 oc_17_9 oc_17_10 oc_18_1 oc_18_2
    }
    /// What is refused when it is read.
    files [namespace] { oc_16_6 oc_16_7 oc_16_8 oc_35_4 oc_38_1 oc_38_2 oc_38_3 oc_38_4 oc_38_5 }
}

/// Rows that mean nothing here, each with why: in the runner's own words.
const NOT_HERE: [(&str, &[&str]); 1] =
    [("without groups memory is bounded otherwise: nothing fails for want of them", &["oc_39_2"])];

/// What means nothing here is told as such, with why; it is neither held nor failed.
#[test]
fn rows_that_mean_nothing_here_are_told_with_why() {
    let pairs = NOT_HERE.iter().flat_map(|(why, names)| names.iter().map(|name| (id(name), *why)));
    let expected: BTreeMap<String, &str> = pairs.collect();
    let only: Vec<String> = expected.keys().cloned().collect();
    let (ran, rows) = prove(&Place::quick(), FILE, &only);
    assert_eq!((rows.len(), ran.code), (expected.len(), Some(0)), "{rows:#?}");
    for row in rows {
        let why = expected[row["id"].as_str().unwrap()];
        assert_eq!((&row["verdict"], &row["why"]), (&"not_applicable".into(), &why.into()), "{row:#?}");
    }
}

/// Rows that need no deployment of their own, in one machine: without KVM a boot takes its time.
#[test]
fn rows_without_a_deployment_of_their_own_hold_in_a_machine() {
    let names = [
        "oc_14_1", "oc_15_1", "oc_19_1", "oc_19_2", "oc_19_3", "oc_21_1", "oc_21_2", "oc_21_3", "oc_21_4",
        "oc_26_1", "oc_27_1", "oc_27_2", "oc_27_3", "oc_29_1", "oc_30_1", "oc_30_3", "oc_31_1", "oc_31_2",
        "oc_31_3", "oc_32_1", "oc_32_2", "oc_33_1", "oc_33_3", "oc_33_4",
    ];
    let (ran, rows) = prove(&Place::new("microvm", Who::Own), FILE, &names.map(id));
    let other: Vec<&Value> = rows.iter().filter(|row| row["verdict"] != "held").collect();
    assert!(other.is_empty(), "{other:#?}");
    assert_eq!((rows.len(), ran.code), (names.len(), Some(0)));
}

/// Every row is asked somewhere or listed with why not, and the classes that must hold are asked everywhere.
#[test]
fn every_row_is_asked_or_listed_with_why_not() {
    let pairs = ASKED.iter().flat_map(|(names, tiers)| names.iter().map(|name| (*name, *tiers)));
    let asked: BTreeMap<&str, &[&str]> = pairs.clone().collect();
    assert_eq!(asked.len(), pairs.count(), "a row is listed twice");
    let not_here: BTreeSet<&str> = NOT_HERE.iter().flat_map(|(_, rows)| rows.iter().copied()).collect();
    let mut all = BTreeSet::new();
    for row in rows() {
        let name = row["id"].as_str().unwrap().replacen("OC-", "oc_", 1).replace('.', "_");
        let (here, there) = (asked.get(name.as_str()), not_here.contains(name.as_str()));
        assert!(here.is_some() != there, "{name} must be asked or listed with why not");
        let class = row["class"].as_str().unwrap();
        if MUST.contains(&class) {
            assert_eq!(
                here.map(|t| t.len()),
                Some(3),
                "{name} of the class {class} must be asked everywhere"
            );
        }
        all.insert(name);
    }
    let unknown = asked.keys().chain(&not_here).find(|name| !all.contains(**name));
    assert_eq!(unknown, None, "there is no such row");
}
