//! Limits that the executor was started with.

use super::{root, without};

const ALL: [&str; 3] = ["confined", "namespace", "gvisor"];

fn limit(which: u32, soft: u64, hard: u64) -> String {
    format!("limit:{which}:{soft}:{hard}")
}

#[test]
fn r57_too_few_descriptors_are_missed_by_every_tier() {
    for most in [10, 64, 300, 900] {
        let told = without(&[limit(libc::RLIMIT_NOFILE, most, most)], &ALL);
        for tier in ALL {
            told.refused(tier, "open files", "ulimit -n");
        }
    }
    // A soft limit is only a habit.
    let told = without(&[limit(libc::RLIMIT_NOFILE, 64, 4096)], &["confined", "namespace"]);
    told.works("confined", "confined");
    told.works("namespace", "namespace");
}

/// Fewer processes than a guest is promised are told; so few that a guest could not even fork are refused.
#[test]
fn r57_fewer_processes_than_promised_are_told() {
    // An ordinary user's other processes count as well, so the limit is one that they leave room in.
    let told = without(&[limit(libc::RLIMIT_NPROC, 200, 200)], &ALL);
    told.refused("gvisor", "limit of processes is 200", "ulimit -u");
    told.weaker("namespace", "processes", "200 at most instead of 256");
    told.weaker("confined", "processes", "200 at most instead of 256");
    if root() {
        let told = without(&[limit(libc::RLIMIT_NPROC, 8, 8)], &ALL);
        for tier in ALL {
            told.refused(tier, "limit of processes is 8", "ulimit -u");
        }
    }
}

/// A host whose crashes go to a program: every core limit but 1 starts it for a guest's crash, as root and outside.
/// A file over one of `/proc` is all a test may do to such a setting, and that alone costs the namespace tier.
#[test]
fn r57_a_core_limit_that_cannot_keep_the_hosts_handler_away_is_told() {
    let piped = ["mounts", "put:/proc/sys/kernel/core_pattern:|/usr/bin/handler %p"].map(str::to_owned);
    let with =
        |soft, hard| without(&[&piped[..], &[limit(libc::RLIMIT_CORE, soft, hard)]].concat(), &["confined"]);
    assert_eq!(with(0, 100).layer("confined", "crashes").0, "full");
    let none = with(0, 0);
    let held = rustix::thread::capabilities(None).unwrap().effective;
    if held.contains(rustix::thread::CapabilitySet::SYS_RESOURCE) {
        // Who may raise it does.
        assert_eq!(none.layer("confined", "crashes").0, "full");
    } else {
        none.weaker("confined", "crashes", "starts the host's handler");
    }
    let plain = without(&[limit(libc::RLIMIT_CORE, 0, 0)], &["confined", "namespace"]);
    assert_eq!(plain.layer("namespace", "crashes").0, "full");
}

#[test]
fn r57_a_bound_of_file_sizes_or_addresses_around_the_executor_is_missed() {
    let told = without(&[limit(libc::RLIMIT_FSIZE, 1000, 1000)], &ALL);
    for tier in ["namespace", "gvisor"] {
        told.refused(tier, "File too large", "ulimit -f");
    }
    let told = without(&[limit(libc::RLIMIT_AS, 50_000_000, 50_000_000)], &ALL);
    told.refused("gvisor", "reserve", "ulimit -v");
    told.works("namespace", "namespace");
}
