//! The program where something it stands on was taken away: what it says, with which code, and what it records.

use crate::place::{Place, Ran, ran};

/// The same means as in the sandbox's own claims.
const WITHOUT: &str = include_str!("../../../sandbox/tests/it/absent/without.py");
/// As a container's default profile has it: no user namespaces (`clone`, `unshare`), and no `clone3`.
pub(crate) const NO_USER_NAMESPACES: [&str; 3] =
    ["bits:56:0:0x10000000:1", "bits:272:0:0x10000000:1", "call:435:38"];

pub(crate) fn without(place: &Place, taken: &[&str], args: &[&str]) -> Ran {
    place.write("without.py", WITHOUT);
    let mut command = place.command("/usr/bin/python3".as_ref());
    command.arg("-I").arg(place.path("without.py")).args(taken).arg("--");
    ran(command.arg(place.bin().join("oubliette")).args(args))
}

/// R52, R57: what is left, what it stops, and what would bring the rest.
#[test]
fn r52_doctor_names_what_forbids_namespaces_and_what_is_left() {
    let place = Place::any();
    let told = without(&place, &NO_USER_NAMESPACES, &["doctor"]);
    assert_eq!(told.code, Some(3), "{told:?}");
    for line in [
        "tier namespace: create the namespaces",
        "remedy: something around this program",
        "--security-opt seccomp=unconfined",
        "tier confined (Linux",
        "stops: reading and writing outside the workspace, any socket",
        "does not stop: sight of names",
        "floor gvisor: nothing here reaches it, runs are refused",
    ] {
        assert!(told.out.contains(line), "{line} is not in {}", told.out);
    }
    let told = without(&place, &NO_USER_NAMESPACES, &["doctor", "--floor", "confined", "--json"]);
    assert_eq!((told.code, &told.json()["auto"]), (Some(0), &"confined".into()));
}

/// R52: what `exec` would be answered by this deployment, and not only what this machine could do for some other.
#[test]
fn r52_doctor_answers_for_the_deployment_that_it_is_given() {
    let place = Place::any();
    for (deployment, says) in [
        ("[isolation]\ntier = 'namespace'\nfloor = 'gvisor'\n", "is below the floor"),
        ("[isolation]\nfloor = 'confined'\nrootfs = '/nonexistent'\n", "the root file system cannot be used"),
    ] {
        place.write("oubliette.toml", deployment);
        let exec = place.ran(["exec", "--data", "data", "--", "true"]);
        let told = place.ran(["doctor"]);
        assert_eq!((exec.code, told.code), (Some(3), Some(3)), "{told:?}");
        let line =
            told.out.lines().find(|l| l.starts_with("this deployment: no sandbox")).unwrap_or_default();
        assert!(line.contains(says), "{told:?}");
        assert!(
            place.ran(["doctor", "--json"]).json()["deployment"]["problem"].as_str().unwrap().contains(says)
        );
    }
    place.write("oubliette.toml", "[isolation]\ntier = 'namespace'\nfloor = 'confined'\n");
    let told = place.ran(["doctor"]);
    assert_eq!(told.code, Some(0));
    assert!(told.out.contains("this deployment: a sandbox of its own started, namespace"), "{told:?}");
}

#[test]
fn r57_exec_is_refused_where_the_floor_cannot_be_held_and_nothing_ran() {
    let place = Place::any();
    let told = without(&place, &NO_USER_NAMESPACES, &["exec", "--data", "data", "--", "true"]);
    told.assert_refused(3, "no tier at or above the floor `gvisor` works here");
    assert!(told.err.contains("remedy: ") && told.err.contains("--floor confined"), "{told:?}");
    place.assert_whole("sandbox_error");
    assert!(place.events_of("tool_start").is_empty());
}

/// R54: a gVisor of the executor's own has not what any tier stands on, whatever floor is accepted. It says so, and what
/// would help, and runs nothing.
#[test]
fn r54_inside_gvisor_a_run_is_refused_with_the_ways_on() {
    let place = Place::any();
    for floor in ["gvisor", "confined"] {
        let mut command = place.command("/usr/bin/runsc".as_ref());
        // The engine of `do` wants no user's root, and may be anybody.
        command.args(["--rootless", "--network=none", "--ignore-cgroups", "do"]);
        command.arg(place.bin().join("oubliette")).args(["exec", "--floor", floor, "--data", "/tmp/data"]);
        let told = ran(command.args(["--", "sh", "-c", "echo it ran"]));
        told.assert_refused(3, "no tier at or above the floor");
        assert!(told.err.contains("remedy: "), "{told:?}");
        assert!(!told.out.contains("it ran"), "{told:?}");
    }
}

#[test]
fn r57_a_weaker_tier_that_was_accepted_is_in_the_record() {
    let place = Place::any();
    let args = ["exec", "--data", "data", "--floor", "confined", "--", "true"];
    assert_eq!(without(&place, &NO_USER_NAMESPACES, &args).code, Some(0));
    assert_eq!(place.file_of_run("meta.json")["sandbox"]["tier"], "confined");
}

/// R52: a layer that could hold more says what it takes, and one that is older says what it lacks.
#[test]
fn r52_doctor_says_what_would_make_a_weak_layer_whole() {
    let place = Place::any();
    // Without machines, which take long to emulate and are not what is asked here.
    let quick = ["mounts", "cover:/usr/bin/qemu-system-x86_64"];
    let told = without(&place, &[&quick[..], &["cover:/sys/fs/cgroup"]].concat(), &["doctor"]);
    assert!(told.out.contains("more of groups: "), "{}", told.out);
    let told = without(&place, &[&quick[..], &["answer:444:1:3"]].concat(), &["doctor"]);
    assert!(
        told.out.contains("part  version 3 of an older kernel, without ioctl of devices"),
        "{}",
        told.out
    );
    assert!(told.out.contains("more of landlock: take a newer kernel"), "{}", told.out);
    assert!(told.out.contains("the kernel offers version 3, 6 is needed"), "{}", told.out);
}

/// R52: an emulated machine says what would let the processor run it.
#[test]
fn r52_doctor_says_what_a_machine_lacks() {
    let place = Place::any();
    let covered = ["mounts", "cover:/usr/bin/qemu-system-x86_64"];
    let told = without(&place, &covered, &["doctor"]);
    assert!(told.out.contains("tier microvm: "), "{}", told.out);
    assert!(told.out.contains("apt-get install --no-install-recommends qemu-system-x86"), "{}", told.out);
    let json = place.ran(["doctor", "--json"]).json();
    let machine = &json["tiers"][0];
    if machine["auto"] == false && machine["report"].is_object() {
        for key in ["problem", "remedy"] {
            assert!(machine[key].as_str().unwrap().contains("kvm"), "{machine}");
        }
    }
}
