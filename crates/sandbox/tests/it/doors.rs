//! What is around a grant: nothing without one, what the report says, and how connections end.

use std::time::{Duration, Instant};

use policy::{Tier, TierChoice};
use sandbox::{Doors, GuestStream, LayerState, Name, Plan};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

use crate::Inside;
use crate::egress::{Open, granted, tell};

/// Nothing changes for who is granted nothing (R12, R45): no socket listens, no variable tells of a proxy, no file
/// names a resolver.
#[test]
fn r45_without_a_grant_nothing_of_it_is_there() {
    for tier in [Tier::Namespace, Tier::Gvisor] {
        let inside = Inside::new(tier);
        assert!(inside.running().knocks().is_none());
        let ran = inside.python(
            "
import os, socket as s
print([n for n in os.environ if 'proxy' in n.lower()])
print(open('/etc/resolv.conf').read() + open('/etc/nsswitch.conf').read())
for file in ['tcp', 'tcp6', 'udp', 'udp6']:
    try: print(file, len(open('/proc/net/' + file).readlines()))
    except OSError: print(file, 1)
for port in [53, 61080]:
    try: s.create_connection(('127.0.0.1', port), 10)
    except ConnectionRefusedError: print('refused')
try: s.getaddrinfo('data.example', 443)
except s.gaierror as e: print(e.errno in (s.EAI_NONAME, s.EAI_AGAIN))
",
        );
        assert_eq!(
            ran.out,
            "[]\n# no resolver: the sandbox has no network\npasswd: files\ngroup: files\nhosts: files\n\n\
             tcp 1\ntcp6 1\nudp 1\nudp6 1\nrefused\nrefused\nTrue\n",
            "{tier}: {}",
            ran.err
        );
        assert_eq!(egress(&inside), (LayerState::Full, "none granted".to_owned()), "{tier}");
    }
}

/// How the report tells of it.
fn egress(inside: &Inside) -> (LayerState, String) {
    let layers = &inside.running().report().layers;
    let layer = layers.iter().find(|layer| layer.name == "egress").unwrap();
    (layer.state, layer.detail.clone())
}

#[test]
fn the_report_says_which_way_there_is_and_that_only_loopback_is() {
    for (tier, how) in [(Tier::Namespace, "sockets passed out"), (Tier::Gvisor, "relayed over the channel")] {
        let open = Open::new(tier);
        let (state, detail) = egress(&open.inside);
        assert!(state == LayerState::Full && detail.contains(how), "{tier}: {detail}");
        assert!(
            detail.contains("127.0.0.1:61080, and 2 address(es) of granted names, 64 for stars"),
            "{detail}"
        );
        assert!(open.inside.holds("network"), "{tier}");
    }
}

/// No socket can be made there, so there is no way to offer; the tier is what it is without.
#[test]
fn the_confined_tier_offers_no_way_and_says_so() {
    let inside = Inside::with(Tier::Confined, |plan| plan.doors = granted());
    let (state, detail) = egress(&inside);
    assert!(state == LayerState::None && detail.starts_with("no way inside"), "{detail}");
    assert!(inside.running().knocks().is_none());
    assert_eq!(inside.sh("env | grep -ci proxy").out, "0\n");
}

#[test]
fn a_variable_that_was_handed_in_is_not_replaced() {
    let inside = Inside::with(Tier::Namespace, |plan| {
        plan.doors = granted();
        plan.env = vec![("http_proxy".to_owned(), "http://127.0.0.1:1".to_owned())];
    });
    assert_eq!(inside.sh("echo $http_proxy $HTTP_PROXY").out, "http://127.0.0.1:1 http://127.0.0.1:61080\n");
}

/// With `auto`, too: no tier without doors is taken because of it.
#[test]
fn a_grant_that_is_too_large_is_refused_before_anything_is_started() {
    let (folder, host) = (tempfile::tempdir().unwrap(), crate::host());
    for tier in [TierChoice::Namespace, TierChoice::Auto] {
        let mut plan = Plan { tier, ..crate::plan(Tier::Namespace, folder.path()) };
        plan.doors = large();
        let refused = crate::runtime().block_on(plan.ready(&host)).unwrap_err().to_string();
        assert!(refused.contains("200 ports of names") && refused.contains("grant fewer"), "{refused}");
    }
}

#[test]
fn where_no_door_is_made_a_grant_is_never_too_large() {
    let inside = Inside::with(Tier::Confined, |plan| plan.doors = large());
    assert_eq!(inside.sh("echo ran").out, "ran\n");
}

/// More than any sandbox has room for.
fn large() -> Doors {
    let name = |n| Name { host: format!("h{n}.example"), star: false, port: 443 };
    Doors { names: (0..200).map(name).collect() }
}

/// Who has the receiver may let it go: then connections are refused or ended, and nothing waits for ever.
#[test]
fn when_nobody_serves_any_more_a_program_hears_of_it() {
    for tier in [Tier::Namespace, Tier::Gvisor] {
        let inside = Inside::with(tier, |plan| plan.doors = granted());
        drop((inside.running().knocks(), inside.running().missed()));
        let ran = inside.python(
            "
import socket as s
for n in range(100):
    try: s.getaddrinfo(f'h{n}.test', 443)
    except s.gaierror: pass
for _ in range(3):
    try:
        c = s.create_connection(('data.example', 443), 20)
        print('ended' if not c.recv(1) else 'answered')
    except (ConnectionRefusedError, ConnectionResetError): print('ended')
",
        );
        assert_eq!(ran.out, "ended\nended\nended\n", "{tier}: {}", ran.err);
    }
}

/// With connections open and full on both ways, the end takes no longer, and nothing is left.
#[test]
fn a_sandbox_ends_with_its_connections() {
    for tier in [Tier::Namespace, Tier::Gvisor] {
        let mut open = Open::new(tier);
        let (opened, mut streams) = mpsc::unbounded_channel();
        open.serve(
            "
import os, socket as s, time
if os.fork() == 0:
    for f in range(3): os.close(f)
    held = [s.create_connection(('other.example', 9000), 100) for _ in range(100)]
    for c in held: c.recv(1)
    for c in held: c.setblocking(False)
    open('held', 'w').close()
    while True:
        for c in held:
            try: c.send(b'x' * 65536)
            except OSError: pass
        time.sleep(0.01)
while not os.path.exists('held'): time.sleep(0.1)
time.sleep(1)
",
            move |_, mut stream| {
                let opened = opened.clone();
                async move {
                    stream.write_all(b"x").await.unwrap();
                    opened.send(stream).unwrap();
                }
            },
        );
        let mut held: Vec<GuestStream> = std::iter::from_fn(|| streams.try_recv().ok()).collect();
        assert!(held.len() > 50, "{tier}: {}", held.len());
        let forker = open.inside.host.forker_id();
        let began = Instant::now();
        open.inside.destroy();
        assert!(began.elapsed() < Duration::from_secs(60), "{tier}: {:?}", began.elapsed());
        crate::teardown::wait_until_nothing_is_below(forker);
        // What came is still there to be read, and then it is over.
        let mut stream = held.remove(0);
        open.inside.block_on(async {
            let mut buffer = vec![0; 1 << 16];
            while !matches!(stream.read(&mut buffer).await, Ok(0) | Err(_)) {}
        });
    }
}

/// A static program that reads no variables and no library of the guest's: this crate's own helper.
#[test]
fn r48_a_static_program_that_knows_of_no_proxy_reaches_what_is_granted_and_nothing_else() {
    for tier in [Tier::Namespace, Tier::Gvisor] {
        let open = Open::new(tier);
        let at = open.inside.workspace().join("client");
        crate::inside::put_helper(&at);
        crate::own(&at);
        let ran = open.serve(
            "
import subprocess
for host, port in [('data.example', 443), ('x.wild.example', 443), ('nope.test', 443), ('data.example', 80)]:
    p = subprocess.run(['./client', 'get', host, str(port)], capture_output=True, text=True, env={})
    print(p.stdout or 'nothing', end='\\n')
",
            tell,
        );
        assert_eq!(
            ran.out, "data.example:443 GET / HTTP/1.0\nx.wild.example:443 GET / HTTP/1.0\nnothing\nnothing\n",
            "{tier}: {}",
            ran.err
        );
    }
}

/// Debian 12's own, which is old and does some things in its own way.
#[test]
fn a_gvisor_of_2022_carries_connections_too() {
    let open = Open::with(Tier::Gvisor, |plan| plan.runsc = Some(crate::refusal::old_runsc()));
    crate::egress::r46_a_granted_name_is_reached_by_programs_that_know_of_no_proxy(&open);
    crate::egress::bytes_go_both_ways_and_each_ends_by_itself(&open);
    crate::egress::who_ends_first_may_still_listen(&open);
    crate::egress::what_is_broken_off_is_an_error_and_no_end(&open);
    crate::egress::r48_everything_else_fails_at_once_and_says_why(&open);
    crate::egress::the_resolver_answers_by_streams_too_and_outlives_rubbish(&open);
    crate::egress::a_flood_is_bounded_and_others_go_on(&open);
}

/// Whatever a root of its own says of resolvers, programs find ours: over its file, and where there is none, because
/// every library then looks at this very address.
#[test]
fn a_root_file_system_of_its_own_finds_the_resolver() {
    use std::os::unix::fs::symlink;
    let root = tempfile::tempdir().unwrap();
    std::fs::set_permissions(root.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    for folder in ["bin", "etc"] {
        std::fs::create_dir(root.path().join(folder)).unwrap();
    }
    crate::inside::put_helper(&root.path().join("bin/client"));
    let file = root.path().join("etc/resolv.conf");
    for kind in ["another", "none", "link"] {
        std::fs::remove_file(&file).ok();
        match kind {
            "another" => std::fs::write(&file, "nameserver 192.0.2.1\n").unwrap(),
            "link" => symlink("/run/resolvconf/resolv.conf", &file).unwrap(),
            _ => {}
        }
        for tier in [Tier::Namespace, Tier::Gvisor] {
            let rootfs = policy::Rootfs::Folder(root.path().to_path_buf());
            let open = Open::with(tier, |plan| plan.rootfs = rootfs);
            let argv = ["/bin/client", "get", "data.example", "443"];
            let ran = open.serve_argv(&argv, tell);
            assert_eq!(ran.out, "data.example:443 GET / HTTP/1.0", "{tier} {kind}: {}", ran.err);
        }
    }
    assert!(std::fs::read_link(&file).is_ok(), "the folder itself is as it was");
}
