//! Fail closed: what is missing is a refusal with a remedy, never a weaker box in silence.

use std::path::PathBuf;

use policy::{Surroundings, Tier, TierChoice};
use sandbox::SandboxError;

use crate::{host, plan, runtime};

fn refused(tier: TierChoice, floor: Tier, runsc: Option<&str>) -> (String, String) {
    let folder = tempfile::tempdir().unwrap();
    let mut plan = plan(Tier::Namespace, folder.path());
    plan.tier = tier;
    plan.floor = floor;
    plan.runsc = runsc.map(PathBuf::from);
    let host = host();
    let answer = runtime().block_on(async { plan.ready(&host).await.map(|ready| ready.tier()) });
    match answer {
        Err(SandboxError::Refused { reason, remedy }) => (reason, remedy),
        other => panic!("{other:?}"),
    }
}

#[test]
fn r51_a_tier_below_the_floor_is_refused_with_the_remedy() {
    let (reason, remedy) = refused(TierChoice::Namespace, Tier::Gvisor, None);
    assert_eq!(reason, "tier `namespace` is below the floor `gvisor`");
    assert!(remedy.contains("--floor namespace"), "{remedy}");
}

/// Presence of a program is not enough: this one exists, runs, and is no engine.
#[test]
fn r57_an_engine_that_does_not_work_is_a_refusal_not_a_weaker_tier() {
    for engine in ["/usr/bin/true", "/usr/bin/cat", "/nonexistent/runsc"] {
        let (reason, _) = refused(TierChoice::Auto, Tier::Gvisor, Some(engine));
        assert!(reason.contains("no tier at or above the floor `gvisor` works here"), "{engine}: {reason}");
        let (reason, _) = refused(TierChoice::Gvisor, Tier::Gvisor, Some(engine));
        assert!(reason.contains("the tier `gvisor` does not work here"), "{engine}: {reason}");
    }
}

/// Nothing is missing where an engine only does not answer in time: no refusal, and nothing weaker either.
#[test]
fn an_engine_that_never_answers_is_a_failure_and_no_refusal() {
    let folder = tempfile::tempdir().unwrap();
    let (_made, engine) = crate::engines::made("int pause(void); int main(void) { for (;;) pause(); }");
    let mut plan = plan(Tier::Namespace, folder.path());
    plan.tier = TierChoice::Gvisor;
    plan.floor = Tier::Gvisor;
    plan.runsc = Some(engine);
    let host = host();
    let answer = runtime().block_on(async { plan.ready(&host).await.map(|ready| ready.tier()) });
    match answer {
        Err(SandboxError::Start { tier: Tier::Gvisor, doing, .. }) => {
            assert!(doing.contains("did not answer within"), "{doing}");
        }
        other => panic!("{other:?}"),
    }
}

/// It may be that the machine had too much to do: nobody's wall gets weaker by that.
#[test]
fn auto_takes_nothing_weaker_than_an_engine_that_never_answers() {
    let folder = tempfile::tempdir().unwrap();
    let (_made, engine) = crate::engines::made("int pause(void); int main(void) { for (;;) pause(); }");
    let mut plan = plan(Tier::Namespace, folder.path());
    (plan.tier, plan.floor, plan.runsc) = (TierChoice::Auto, Tier::Namespace, Some(engine));
    let host = host();
    let answer = runtime().block_on(async { plan.ready(&host).await.map(|ready| ready.tier()) });
    match answer {
        // Where machines start, nobody is asked for an engine.
        Ok((Tier::Microvm, _)) => {}
        Err(SandboxError::Start { tier: Tier::Gvisor, doing, .. }) => {
            assert!(doing.contains("nothing weaker"), "{doing}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_stated_surrounding_is_accepted_and_said() {
    let folder = tempfile::tempdir().unwrap();
    let mut plan = plan(Tier::Namespace, folder.path());
    plan.floor = Tier::Gvisor;
    plan.surroundings = Surroundings::Gvisor;
    let host = host();
    let (tier, accepted) = runtime().block_on(async { plan.ready(&host).await.unwrap().tier() });
    assert_eq!(tier, Tier::Namespace);
    assert_eq!(accepted, policy::Acceptance::Surroundings { stated: Surroundings::Gvisor });
}

#[test]
fn auto_takes_a_weaker_tier_only_where_the_floor_allows_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut plan = plan(Tier::Namespace, folder.path());
    plan.tier = TierChoice::Auto;
    plan.floor = Tier::Namespace;
    plan.runsc = Some(PathBuf::from("/nonexistent/runsc"));
    let host = host();
    let (tier, _) = runtime().block_on(async { plan.ready(&host).await.unwrap().tier() });
    assert_eq!(tier, Tier::Namespace);
}

/// Debian 12's own build: it runs, and its fault is told by the probe, not found by the user.
#[test]
fn an_old_gvisor_works_and_its_fault_is_told() {
    let old = old_runsc();
    let inside = crate::Inside::with(Tier::Gvisor, |plan| plan.runsc = Some(old));
    let tools = inside.running().report().layers.iter().find(|l| l.name == "tools").cloned().unwrap();
    assert!(tools.detail.contains("statx") && tools.detail.contains("fails"), "{tools:?}");
    assert_eq!(inside.python("print(sum(range(10)))").out, "45\n");
    // Everything of a call dies there too, though that engine cannot say whose a process is.
    let line = "setsid sh -c 'sleep 60' >/dev/null 2>&1 </dev/null & sleep 60";
    let ran = inside.call(crate::shell(line), b"", std::time::Duration::from_secs(1), 1 << 20);
    assert_eq!(ran.outcome.stopped_by, policy::StoppedBy::Timeout);
    assert_eq!(inside.sh("ps ax | grep -c 'slee[p] 60'").out.trim(), "0");
}

/// Declared: `scripts/test` unpacks that build; without it this test fails, it is not skipped.
pub(crate) fn old_runsc() -> PathBuf {
    #[expect(clippy::disallowed_methods, reason = "the declaration of scripts/test")]
    let path = std::env::var_os("OUBLIETTE_TEST_RUNSC_OLD");
    PathBuf::from(path.expect("OUBLIETTE_TEST_RUNSC_OLD names Debian 12's runsc; run scripts/test"))
}

#[test]
fn a_root_file_system_that_is_none_is_refused_with_what_would_be_right() {
    let folder = tempfile::tempdir().unwrap();
    let layout = folder.path().join("image");
    std::fs::create_dir(&layout).unwrap();
    std::fs::write(layout.join("oci-layout"), "{}").unwrap();
    for root in [folder.path().join("missing"), layout] {
        let mut plan = plan(Tier::Namespace, folder.path());
        plan.rootfs = policy::Rootfs::Folder(root);
        let host = host();
        let refused = runtime().block_on(async { plan.ready(&host).await.unwrap_err() }).to_string();
        assert!(refused.contains("the root file system cannot be used"), "{refused}");
        assert!(refused.contains("rootfs = \"host\""), "{refused}");
    }
}

/// An emulated machine must be asked for by name: `auto` does not take it over a tier that is as fast as the host.
#[test]
fn auto_takes_a_machine_only_where_the_processor_runs_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut wanted = plan(Tier::Namespace, folder.path());
    wanted.tier = TierChoice::Auto;
    wanted.floor = Tier::Microvm;
    let host = host();
    match runtime().block_on(async { wanted.ready(&host).await.map(|r| r.start().destroy()) }) {
        Ok(report) => {
            let report = runtime().block_on(report);
            assert!(report.engine.contains(" kvm,"), "{}", report.engine);
        }
        Err(refused) => assert!(refused.to_string().contains("microvm: "), "{refused}"),
    }
}
