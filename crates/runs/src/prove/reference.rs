//! The same attacks against bubblewrap with equal flags: what the tiers are measured against.
//!
//! bubblewrap 0.8 is a good tool for what it is: namespaces and mounts. What it does not hold is written down here,
//! attack by attack, and the test fails in both directions: when it lets something that is not on the list, and
//! when something on the list is held after all.

use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{
    Attack, Corpus, Said, corpus,
    outside::{self, Outside},
};

/// What bubblewrap lets, and why.
const LETS: &[(&str, &str)] = &[
    ("host-file-by-handle", "no filter: handles can be asked for, though not opened"),
    ("environment-theft", "it sets `PWD`, which is no secret; the attack counts every name that is not ours"),
    ("leaked-descriptors", "what its starter left open is handed on"),
    (
        "kernel-settings",
        "its first process has the guest's id, and so the guest sets how soon that one is killed",
    ),
    ("vsock", "no filter: sockets that lead to the hypervisor"),
    ("netlink", "no filter: every kind of netlink"),
    ("io-uring", "no filter"),
    ("userfaultfd", "no filter"),
    ("perf", "no filter: counters of its own part"),
    ("keyrings", "no filter: keys are shared by all that have the user's id outside"),
    (
        "nested-namespaces",
        "unless it is told so (`--disable-userns`): a namespace in which the guest is root",
    ),
    ("secrets-of-init", "its first process has the guest's id, and may be read"),
    (
        "changes-by-descriptor",
        "the host's own nodes below `/dev` can be changed: the times of `/dev/null` are",
    ),
    ("words-in-a-terminal", "no filter: words into a terminal of its own"),
    ("slow-down-others", "no filter: its first process has the guest's id, and is slowed down"),
    ("crash-dumps", "no limits: a crash makes the host start what it starts for one"),
    ("i386-entry", "no filter: the 32-bit entry of every call"),
];

/// What is not tried, and why: it sets no bounds, and then the host would be what is hurt.
const NOT_TRIED: &[(&str, &str)] = &[
    ("fork-bomb", "no bounds"),
    ("memory-bomb", "no bounds"),
    ("memory-of-nobody", "no bounds"),
    ("disk-bomb", "no bounds"),
    ("many-files-bomb", "no bounds"),
    ("temporary-files-bomb", "no bounds"),
    ("output-flood", "no bounds"),
    ("ignores-its-end", "no bounds"),
    ("a-neighbours-processes", "wants a neighbour that lives on between two commands, which it has not"),
];

#[derive(Debug, PartialEq, Eq)]
enum Answer {
    Held,
    Lets(String),
    Error(String),
}

/// A program of the corpus in a bubblewrap that unshares, drops and hides what the tier `namespace` does, but for what
/// `less` takes back.
fn in_bubblewrap(
    workspace: &Path,
    less: &[&str],
    program: &str,
    facts: &Value,
    longest: Duration,
) -> (String, bool) {
    let mut command = testkit::bubblewrap(workspace, rustix::process::geteuid().is_root());
    command.args(less);
    command.args(["/usr/bin/python3", "-c", &corpus::program(program), &facts.to_string()]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stdin.take());
    let began = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break Some(status);
        }
        if began.elapsed() > longest {
            child.kill().unwrap();
            child.wait().unwrap();
            break None;
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let mut said = String::new();
    child.stdout.take().unwrap().take(1 << 20).read_to_string(&mut said).unwrap();
    (said, status.is_some_and(|s| s.success()))
}

fn attacked(attack: &Attack, less: &[&str], folder: &Path, around: &Outside) -> Answer {
    let workspaces = ["one", "two"].map(|name| folder.join(name));
    for workspace in &workspaces {
        std::fs::create_dir_all(workspace).unwrap();
        testkit::give_to_bubblewrap(workspace, rustix::process::geteuid().is_root());
    }
    let mut facts = around.facts();
    facts["where"] = "bubblewrap".into();
    facts["host"] = rustix::system::uname().nodename().to_string_lossy().into();
    facts["pids"] = json!([std::process::id()]);
    facts["pids_began"] = json!([outside::began(std::process::id())]);
    facts["neighbours"] = json!([]);
    facts["neighbours_began"] = json!([]);
    facts["run"] = json!(folder);
    facts["neighbour"] = json!(workspaces[1]);
    facts["way"] = json!({ "open": false, "proxy": 61080, "name": "open.oubliette.invalid", "port": 47080, "zone": "inside.oubliette.invalid", "own": [] });
    let longest = Duration::from_secs(attack.seconds.unwrap_or(30));
    around.forget();
    if let Some(plant) = &attack.plant {
        in_bubblewrap(&workspaces[1], less, plant, &facts, longest);
    }
    let (text, ended) = in_bubblewrap(&workspaces[0], less, &attack.program, &facts, longest);
    let said = Said::of(&text);
    let mut broken = said.broken;
    broken.extend(around.seen());
    if !broken.is_empty() {
        Answer::Lets(broken.join("; "))
    } else if !ended || !said.failed.is_empty() || said.held.is_empty() {
        Answer::Error(format!("ended: {ended}, failed: {:?}, held: {}", said.failed, said.held.len()))
    } else {
        Answer::Held
    }
}

/// R55: the same walls but one, and the same attack. With the network's namespace alone taken back it reaches the host;
/// what the filter alone stops is every line of [`LETS`] that says so.
#[test]
fn r55_what_one_layer_alone_stops_gets_through_without_it() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o711)).unwrap();
    let corpus = Corpus::shipped().unwrap();
    let attack = corpus.attacks().iter().find(|a| a.id == "listeners-of-the-host").unwrap();
    let outside = Outside::new(&folder.path().join("canary")).unwrap();
    assert_eq!(attacked(attack, &[], &folder.path().join("all"), &outside), Answer::Held);
    let less = attacked(attack, &["--share-net"], &folder.path().join("less"), &outside);
    let Answer::Lets(what) = less else { panic!("nothing of the host was reached: {less:?}") };
    // By its own word, and as the listeners saw it.
    for seen in ["tcp", "abstract", "something came to the tcp", "something came to the udp"] {
        assert!(what.contains(seen), "{what}");
    }
    assert!(LETS.iter().filter(|(_, why)| why.starts_with("no filter")).count() >= 6);
}

#[test]
fn bubblewrap_holds_what_is_expected_of_it_and_nothing_less() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o711)).unwrap();
    let mut wrong = Vec::new();
    let corpus = Corpus::shipped().unwrap();
    // Something to be handed on, whoever starts this test and whatever they left open.
    let open = std::fs::File::open(folder.path()).unwrap();
    rustix::io::fcntl_setfd(&open, rustix::io::FdFlags::empty()).unwrap();
    let mut table = String::new();
    // What no namespace is asked to hold is not asked of it either.
    let asked = corpus.attacks().iter().filter(|a| a.layers.contains_key("namespace"));
    for (n, attack) in asked.enumerate() {
        let lets = LETS.iter().find(|(id, _)| *id == attack.id);
        let listed = NOT_TRIED.iter().find(|(id, _)| *id == attack.id).map(|(_, why)| *why);
        let nothing_to_grant = attack.granted.then_some("it has no way out that could be granted");
        let no_terminal = attack.terminal.then_some("it hands out no terminal");
        if let Some(why) = listed.or(nothing_to_grant).or(no_terminal) {
            table.push_str(&format!("{:<28} not tried: {why}\n", attack.id));
            continue;
        }
        let here = folder.path().join(n.to_string());
        std::fs::create_dir(&here).unwrap();
        let outside = Outside::new(&here.join("canary")).unwrap();
        let answer = attacked(attack, &[], &here, &outside);
        table.push_str(&format!("{:<28} {answer:?}\n", attack.id));
        match (&answer, lets) {
            (Answer::Held, None) | (Answer::Lets(_), Some(_)) => {}
            _ => wrong.push(format!("{}: {answer:?}", attack.id)),
        }
    }
    // Every name is of the list.
    let named = LETS.iter().chain(NOT_TRIED).map(|(id, _)| id);
    let unknown: Vec<_> = named.filter(|id| !corpus.attacks().iter().any(|a| a.id == **id)).collect();
    assert!(wrong.is_empty() && unknown.is_empty(), "{wrong:#?} {unknown:?}\n{table}");
}
