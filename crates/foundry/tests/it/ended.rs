//! A gate that begins takes back what an earlier one said: however it ends, nothing older lets the branch pass.

use std::fs;

use foundry::{Blame, FoundryError, GateVerdict, Refusal, RowVerdict, Standing};
use runs::RunError;

use crate::rig::{Meanwhile, Rig};

/// With a branch that has passed, and could be promoted.
fn passed() -> Rig {
    let rig = Rig::new();
    rig.branch("b", "You read well.");
    rig.gated("b", GateVerdict::Passed);
    assert_eq!(rig.make().show(&rig.id("b"), &rig.terms()).unwrap().standing, Standing::Ready);
    rig
}

#[test]
fn attacks_that_end_in_an_error_leave_no_older_pass_in_force() {
    let script = || FoundryError::Script { why: "it was lost".to_owned() };
    let io = || {
        FoundryError::Run(RunError::Io {
            doing: "write",
            path: "runs".into(),
            source: std::io::ErrorKind::StorageFull.into(),
        })
    };
    let ends: [(&dyn Fn() -> FoundryError, &str); 3] =
        [(&script, "it was lost"), (&|| RunError::Cancelled.into(), "cancelled"), (&io, "no storage space")];
    for (end, why) in ends {
        let rig = passed();
        let e = rig.gate_in("b", &Meanwhile(|_: &_, _: &_| Err(end()))).unwrap_err();
        assert_eq!((e.blame(), e.to_string()), (Blame::Machine, end().to_string()));
        rig.not_promoted("b", Refusal::NotPassed);
        let record = rig.make().show(&rig.id("b"), &rig.terms()).unwrap().gate.unwrap();
        assert_eq!(record.verdict, GateVerdict::Unproven, "{record:?}");
        assert!(record.reason.contains(why), "{}", record.reason);
        // It is gated again like every other.
        rig.gated("b", GateVerdict::Passed);
        rig.promote("b").unwrap();
    }
}

/// Who is killed writes nothing down, so there must be nothing to go by while it is under way.
#[test]
fn nothing_is_promoted_by_an_older_pass_while_a_branch_is_gated() {
    let rig = passed();
    let promoted = |_: &_, _: &_| {
        rig.not_promoted("b", Refusal::NotGated);
        Ok(RowVerdict::Held)
    };
    rig.gate_in("b", &Meanwhile(promoted)).unwrap();
    rig.promote("b").unwrap();
}

/// What a branch's author does to be spared a new verdict spares the old one neither.
#[test]
fn what_is_put_in_the_way_of_a_verdict_brings_no_older_one_back() {
    for name in ["gate.json", ".gate.json.half"] {
        let rig = passed();
        let (file, way) = (rig.at("branches/b/gate.json"), rig.at("branches/b").join(name));
        let before = fs::read(&file).unwrap();
        let put = |_: &_, _: &_| {
            fs::create_dir(&way).unwrap();
            Ok(RowVerdict::Broken)
        };
        let e = rig.gate_in("b", &Meanwhile(put)).unwrap_err();
        assert_eq!(e.blame(), Blame::Input, "{name}: {e}");
        assert!(e.to_string().contains("broken: 1 attacks got what they wanted"), "{name}: {e}");
        fs::remove_dir(&way).unwrap();
        rig.not_promoted("b", Refusal::NotGated);
        fs::write(&file, &before).unwrap();
        rig.not_promoted("b", Refusal::GateForged);
    }
}

/// A branch that cannot be looked at again is one of which nothing is known.
#[test]
fn what_keeps_a_branch_from_being_gated_again_keeps_it_from_being_promoted() {
    let rig = passed();
    fs::write(rig.at("branches/b/hypothesis.json"), "{").unwrap();
    assert_eq!(rig.gate("b").unwrap_err().blame(), Blame::Input);
    rig.not_promoted("b", Refusal::NotGated);
    let rig = passed();
    let before = fs::read(rig.at("branches/b/gate.json")).unwrap();
    fs::create_dir(rig.at("branches/b/.gate.json.half")).unwrap();
    assert_eq!(rig.gate("b").unwrap_err().blame(), Blame::Input);
    fs::write(rig.at("branches/b/gate.json"), before).unwrap();
    rig.not_promoted("b", Refusal::GateForged);
}
