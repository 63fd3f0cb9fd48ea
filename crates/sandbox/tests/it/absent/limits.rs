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

/// A socket as `core_pattern` is asked whatever the limit is.
#[test]
fn r57_a_server_that_is_handed_crashes_is_told() {
    for pattern in ["@/run/x", "@@/run/x"] {
        let put = format!("put:/proc/sys/kernel/core_pattern:{pattern}");
        let told = without(&["mounts", &put], &["confined"]);
        told.weaker("confined", "crashes", "a crash reaches the host's server");
    }
}

/// Debian gives the second user of a machine the ids from 165536 to 231071.
#[test]
fn r57_ids_of_sandboxes_that_are_a_users_as_well_are_told() {
    let lists = |first: u32| {
        ["subuid", "subgid"].map(|file| format!("put:/etc/{file}:alice:100000:65536\nbob:{first}:65536\n"))
    };
    let [users, groups] = lists(165_536);
    if !root() || !["/etc/subuid", "/etc/subgid"].iter().all(|file| std::path::Path::new(file).exists()) {
        return;
    }
    for list in [users, groups] {
        let told = without(&["mounts", &list], &ALL);
        for tier in ALL {
            told.weaker(tier, "ids", "given to `bob`");
        }
    }
    let [users, groups] = lists(265_536);
    let told = without(&["mounts", &users, &groups], &ALL);
    for tier in ALL {
        assert_eq!(told.layer(tier, "ids").0, "full", "{tier}");
    }
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

/// Runs a program in 128 MiB that no group counts, and gives what was said of it.
fn bomb(program: &str, tiers: &[&str]) -> super::Told {
    let folder = super::folder();
    let workspace = folder.path().join("workspace");
    std::fs::write(workspace.join("bomb.py"), program).unwrap();
    super::attempt(folder.path(), &workspace, &["mounts", "cover:/sys/fs/cgroup"], tiers, "")
}

/// What a process does not map is not among its memory. Each is far more than 128 MiB, and bounded.
#[test]
fn r38_without_a_group_what_the_kernel_keeps_for_a_guest_is_held_as_memory() {
    let sockets = "import socket as s,time
held=[]
for _ in range(400):
    a,b=s.socketpair(); held.append((a,b))
    for end in (a,b):
        end.setsockopt(s.SOL_SOCKET,s.SO_SNDBUF,4<<20); end.setblocking(False)
        try:
            while 1: end.send(b'x'*65536)
        except BlockingIOError: pass
time.sleep(5)
print('all')";
    // A page of zeros read in each 2 MiB costs no memory but a page table: 256 MiB of them for 128 GiB.
    let tables = "import mmap,os,time
for _ in range(4):
    if os.fork()==0:
        for _ in range(16):
            try: m=mmap.mmap(-1,2<<30,prot=mmap.PROT_READ)
            except OSError: break
            globals().setdefault('held',[]).append(m)
            for at in range(0,2<<30,2<<20): m[at]
        time.sleep(5); os._exit(0)
for _ in range(4): os.wait()
print('all')";
    let hidden = "import ctypes,os,threading,time
def hold(): time.sleep(.3); b=bytearray(60<<20); time.sleep(5); os._exit(0)
for _ in range(5):
    if os.fork()==0:
        threading.Thread(target=hold).start(); ctypes.CDLL(None).syscall(60,0)
for _ in range(5): os.wait()
print('all')";
    for program in [sockets, tables, hidden] {
        let told = bomb(program, &["confined", "namespace"]);
        for tier in ["confined", "namespace"] {
            let outcome = told.of(tier)["outcome"].as_str().unwrap_or_default();
            assert!(outcome.contains("stopped_by: Memory"), "{program}\n{}", told.of(tier));
        }
    }
}

/// A few sockets and pipes, and what asks for room in them, are no bomb.
#[test]
fn without_a_group_sockets_that_programs_use_are_left_alone() {
    let usual = "import socket as s,os,time
held=[s.socketpair() for _ in range(100)]+[os.pipe() for _ in range(200)]
for a,b in held[:100]: a.setsockopt(s.SOL_SOCKET,s.SO_SNDBUF,4<<20); a.send(b'x')
time.sleep(.5)
print('all')";
    let told = bomb(usual, &["confined", "namespace"]);
    for tier in ["confined", "namespace"] {
        assert_eq!(told.of(tier)["said"], "all\n", "{}", told.of(tier));
        told.weaker(tier, "memory", "each socket counts as 208 KiB and each pipe as 64");
    }
}
