//! `exec --allow` and the network of a grant, as far as nobody has to be there to answer: `scripts/egress-test` has the rest.

use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testkit::Script;

use crate::place::{Place, Ran, finish, sh, told, told_in};
use crate::{Who, everywhere};

/// Asks the proxy for a destination and prints its answer.
const CONNECT: &str = "import os,socket,sys
port = int(os.environ['http_proxy'].rsplit(':', 1)[1].strip('/'))
s = socket.create_connection(('127.0.0.1', port), 5)
s.sendall(f'CONNECT {sys.argv[1]} HTTP/1.1\\r\\nHost: {sys.argv[1]}\\r\\n\\r\\n'.encode())
print(s.recv(4096).decode().split('\\r\\n')[0])";

/// Asks the resolver inside for names.
const LOOK_UP: &str = "import socket,sys
for name in sys.argv[1:]:
    try: socket.getaddrinfo(name, 443)
    except OSError: pass";

fn asked(place: &Place, allow: &[&str], target: &str) -> Ran {
    let allow: Vec<&str> = allow.iter().flat_map(|rule| ["--allow", rule]).collect();
    place.exec_with(&allow, &["python3", "-c", CONNECT, target])
}

fn decisions(place: &Place) -> Vec<Value> {
    place.events_of("egress").into_iter().filter(|event| event["event"] == "decided").collect()
}

everywhere! {
    /// R46: the neighbour of what is granted fails, and record and user are told what would be needed.
    fn r46_what_is_not_granted_is_refused_told_and_recorded(place: &Place) {
        for target in ["other.example:443", "granted.example:8443", "192.0.2.1:443"] {
            let ran = asked(place, &["granted.example:443"], target);
            assert!(ran.out.contains(" 403 "), "{target}: {ran:?}");
            assert!(ran.err.contains("network: ") && ran.err.contains(target.split(':').next().unwrap()), "{target}: {ran:?}");
            let decided = decisions(place);
            assert_eq!(decided.len(), 1, "{decided:?}");
            assert_eq!(decided[0]["decision"]["verdict"], "refused");
            assert_eq!(decided[0]["rule"], json!(null));
            place.assert_whole("finished");
        }
    }

    /// The same of a name that a program only looks up: it never comes to a connection.
    fn r46_a_name_that_is_not_granted_is_told_and_recorded(place: &Place) {
        let names = ["other.example", "granted.example", "other.example", "sub.granted.example"];
        let allow = ["--allow", "granted.example:443"];
        let ran = place.exec_with(&allow, &[&["python3", "-c", LOOK_UP][..], &names].concat());
        let would = "is not granted; it would have to stand in `network.allow`, with its port";
        for name in ["other.example", "sub.granted.example"] {
            assert!(ran.err.contains(&format!("oubliette: network: `{name}` {would}\n")), "{ran:?}");
        }
        let decided = decisions(place);
        assert_eq!(decided.len(), 2, "{decided:?}");
        for (decided, name) in decided.iter().zip(["other.example", "sub.granted.example"]) {
            let told = [&decided["asked"], &decided["way"], &decided["decision"]["rule"], &decided["connection"]];
            assert_eq!(told, [&json!(name), &json!("name"), &json!("egress-host"), &json!(null)]);
        }
        place.assert_whole("finished");
        // Before the end of the call in which they were asked for.
        let order: Vec<Value> = place.events().iter().map(|event| event["type"].clone()).collect();
        let at = |kind: &str| order.iter().rposition(|found| found == kind).unwrap();
        assert!(at("tool_start") < at("egress") && at("egress") < at("tool_end"), "{order:?}");
        let shown = place.ran(["runs", "show", &place.ids()[0]]);
        assert!(shown.out.contains("network  0 connections over, 0 bytes out, 0 bytes in, 2 refused\n"), "{shown:?}");
        assert!(shown.out.contains("asked=other.example"), "{shown:?}");
    }

    /// What the operator says of the way out is held, and what is beyond it is not let in.
    fn r47_a_run_has_the_connections_that_the_deployment_gives(place: &Place) {
        place.write("few.toml", "[network]\nconnections = 2\n");
        let config = place.path("few.toml").display().to_string();
        let thrice = format!("def once():\n{}\nfor _ in range(3):\n  try: once()\n  except OSError as e: print(type(e).__name__)",
            CONNECT.lines().map(|line| format!("  {line}\n")).collect::<String>());
        let allow = ["--config", &config, "--allow", "granted.example:443"];
        let ran = place.exec_with(&allow, &["python3", "-c", &thrice, "other.example:443"]);
        let answers: Vec<&str> = ran.out.lines().collect();
        assert_eq!(answers.len(), 3, "{ran:?}");
        assert!(answers[..2].iter().all(|answer| answer.contains(" 403 ")), "{ran:?}");
        assert!(!answers[2].contains("HTTP"), "{ran:?}");
        // Who is turned away is told at once, whoever was refused when its connection is closed.
        let events = place.events_of("egress");
        let closed = events.iter().filter(|e| e["event"] == "closed");
        let mut ended: Vec<&str> = closed.filter_map(|e| e["ended"].as_str()).collect();
        ended.sort_unstable();
        assert_eq!(ended, ["refused", "refused", "too-many"], "{events:?}");
        let told = "oubliette: network: a connection was turned away, for the run has had as many as `network.connections` allows\n";
        assert!(ran.err.contains(told), "{ran:?}");
    }

    /// What honest programs ask to learn who they are is nothing that could be granted.
    fn what_a_program_asks_of_itself_is_no_refusal(place: &Place) {
        let asks = "import socket
print(socket.gethostbyname(socket.gethostname()), socket.getfqdn())
for ask in (lambda: socket.gethostbyaddr('192.0.2.7'), lambda: socket.gethostbyaddr('2001:db8::7')):
    try: ask()
    except OSError: pass";
        let ran = place.exec_with(&["--allow", "granted.example:443"], &["python3", "-c", asks]);
        assert_eq!((ran.code, ran.out.split(' ').next()), (Some(0), Some("127.0.0.1")), "{ran:?}");
        assert!(!ran.err.contains("network: ") && decisions(place).is_empty(), "{ran:?}");
        place.assert_whole("finished");
    }

    /// R45: without a grant there is nothing to ask.
    fn r45_without_a_grant_there_is_no_proxy_and_no_resolver(place: &Place) {
        let ran = place.sh("env | grep -ci proxy; grep -c nameserver /etc/resolv.conf; grep -c : /proc/net/udp");
        let (proxies, rest) = ran.out.split_once('\n').unwrap();
        assert_eq!(proxies, "0", "{ran:?}");
        assert!(rest.starts_with("0\n"), "{ran:?}");
        assert!(decisions(place).is_empty());
    }
}

/// R49: what is broad, or is no `host:port`, is refused at the command line with the right spelling.
#[test]
fn r49_a_broad_or_odd_grant_is_a_usage_error() {
    let place = Place::quick();
    for rule in [
        "*",
        "*:443",
        "*.com:443",
        "https://a.example",
        "a.example",
        "a.example:0",
        "2130706433:80",
        "127.0.0.1:80",
    ] {
        let ran = place.exec_with(&["--allow", rule], &["true"]);
        assert_eq!(ran.code, Some(2), "{rule}: {ran:?}");
        assert!(ran.err.contains("--allow"), "{rule}: {ran:?}");
        assert!(place.ids().is_empty(), "{rule}: a run began");
    }
}

/// `[network]` with so many names.
fn many(count: usize) -> String {
    let names: Vec<String> = (0..count).map(|n| format!("\"h{n}.example.org:443\"")).collect();
    format!("\n[network]\nallow = [{}]\n", names.join(", "))
}

/// A grant that no sandbox has room for is told before anything begins, as any fault of the files.
#[test]
fn a_grant_that_a_sandbox_has_no_room_for_is_told_before_anything_begins() {
    let place = Place::quick();
    let told = "has 129 ports of names, and a sandbox has room for 128; name fewer";
    place.write("oubliette.toml", many(129));
    let ran = place.exec(&["true"]);
    assert!(ran.code == Some(2) && ran.err.contains(&format!("`network.allow` {told}")), "{ran:?}");
    place.write("oubliette.toml", many(128));
    assert_eq!(place.exec(&["true"]).code, Some(0));
    let ran = place.exec_with(&["--allow", "one.example.net:443"], &["true"]);
    assert!(
        ran.code == Some(2) && ran.err.contains(&format!("`network.allow` with `--allow` {told}")),
        "{ran:?}"
    );
    assert_eq!(place.ids().len(), 1);
    // A deployment may name more than a Guild takes of it.
    place.guild(&["run_shell", "finish"]);
    place.write("oubliette.toml", many(200));
    let manifest = place.read("guild/guild.toml");
    for (asked, code) in [(128, 0), (129, 2)] {
        place.write("guild/guild.toml", manifest.clone() + &many(asked));
        let ran = place.ran(["guild", "check", "guild"]);
        assert_eq!(ran.code, Some(code), "{ran:?}");
        assert_eq!(ran.err.contains("network.allow"), code == 2, "{ran:?}");
    }
}

/// Where no socket is made for it, `fetch_url` has whatever the file holds.
#[test]
fn a_tier_without_a_way_out_has_room_for_any_grant() {
    let place = Place::new("confined", Who::Own);
    let long = format!("{}.{}.{}", "a".repeat(63), "b".repeat(63), "c".repeat(63));
    let names: Vec<String> = (0..1000).map(|n| format!("\"h{n}.{long}.org:443\"")).collect();
    place.write("oubliette.toml", format!("[network]\nallow = [{}]\n", names.join(", ")));
    let ran = place.exec(&["sh", "-c", "echo ran"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "ran\n"), "{ran:?}");
    assert!(ran.err.contains("the tier `confined` has no way out"), "{ran:?}");
}

/// What is granted itself has an address of its own, whatever was asked for beneath a star that stands for it too.
#[test]
fn a_name_that_is_granted_itself_takes_no_place_of_a_star() {
    let place = Place::quick();
    place.write("oubliette.toml", "[network]\nallow = [\"*.example.org:443\"]\n");
    let others = LOOK_UP.replace("sys.argv[1:]", "[f'n{n}.example.org' for n in range(64)] + sys.argv[1:]");
    let look_up = |allow: &[&str]| place.exec_with(allow, &["python3", "-c", &others, "named.example.org"]);
    assert!(look_up(&[]).err.contains("`named.example.org` is one name too many"), "no place is taken");
    let ran = look_up(&["--allow", "named.example.org:443"]);
    assert_eq!((ran.code, ran.err.as_str()), (Some(0), ""), "{ran:?}");
}

/// A tier without a way out says so, and runs nothing.
#[test]
fn r57_a_grant_that_the_tier_cannot_give_is_a_refusal() {
    let place = Place::new("confined", Who::Own);
    let ran = place.exec_with(&["--allow", "granted.example:443"], &["sh", "-c", "echo ran"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(3), ""), "{ran:?}");
    assert!(ran.err.contains("no way out"), "{ran:?}");
    assert!(place.events_of("tool_start").is_empty());
    place.assert_whole("sandbox_error");
}

/// The same grant in the file goes on, and who looks on is told that it opens nothing.
#[test]
fn r57_a_grant_of_the_file_that_the_tier_cannot_give_is_told_at_the_start() {
    let place = Place::new("confined", Who::Own);
    let network = "\n[network]\nallow = [\"granted.example:443\"]\n";
    place.write("oubliette.toml", network);
    let no_way = "the tier `confined` has no way out";
    let ran = place.exec(&["sh", "-c", "echo ran"]);
    assert_eq!((ran.code, ran.out.as_str()), (Some(0), "ran\n"), "{ran:?}");
    let told = format!("oubliette: network: {no_way}, so nothing of `network.allow` is reached\n");
    assert_eq!(ran.err.matches(&told).count(), 1, "{ran:?}");
    // The same of a run, whose model hears nothing of it.
    place.guild(&["run_shell", "finish"]);
    place.write("guild/guild.toml", place.read("guild/guild.toml") + network);
    let model = Script::new([sh("echo ran"), finish()]).start();
    let ran = place.run(&model.base_url());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let told = format!("network  none: {no_way}; of `network.allow` only `fetch_url` has anything\n");
    assert_eq!(ran.err.matches(&told).count(), 1, "{ran:?}");
    assert!(!told_in(&model, 1).contains("way out"));
    // Where nothing is granted there is nothing to tell, and where there is a way neither.
    place.write("oubliette.toml", "");
    assert!(!place.exec(&["true"]).err.contains("network"));
    let place = Place::quick();
    place.write("oubliette.toml", network);
    assert!(!place.exec(&["true"]).err.contains("network"));
}

/// R58: a header's value is asked for by name, before anything begins.
#[test]
fn r58_a_header_without_its_variable_is_refused_by_name() {
    let place = Place::quick();
    place.write(
        "key.toml",
        "[network]\nallow = [{ host = \"key.example:443\", header = { name = \"authorization\", secret_env = \"NOT_SET_HERE\" } }]\n",
    );
    let config = place.path("key.toml").display().to_string();
    let ran = place.exec_with(&["--config", &config], &["true"]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.err.contains("NOT_SET_HERE"), "{ran:?}");
    assert!(place.ids().is_empty());
}

/// However many names are asked for, the record holds so many, and a number.
#[test]
fn names_without_end_are_bounded_in_the_record_and_told_with_a_count() {
    for tier in ["namespace", "gvisor"] {
        let place = Place::new(tier, Who::Own);
        let many = LOOK_UP.replace("sys.argv[1:]", "[f'secret-{n}.example' for n in range(300)]");
        let ran = place.exec_with(&["--allow", "granted.example:443"], &["python3", "-c", &many]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert_eq!(ran.err.matches("oubliette: network: `secret-").count(), 5, "{ran:?}");
        let others =
            ran.err.lines().find(|line| line.starts_with("oubliette: network: refused too: ")).unwrap();
        assert_eq!(others.matches("`secret-").count(), 59, "{others}");
        let further = "oubliette: network: further names that are not granted were asked for\n";
        assert!(ran.err.contains(further), "{ran:?}");
        let events = place.events_of("egress");
        let ends: Vec<&Value> = events.iter().filter(|event| event["event"] == "unanswered").collect();
        assert_eq!((decisions(&place).len(), ends.len()), (64, 1));
        let last = ends[0];
        // Both families of 236 names, as a power of two that was reached.
        assert!([128, 256].contains(&last["questions"].as_u64().unwrap()), "{last}");
        let shown = place.ran(["runs", "show", &place.ids()[0]]);
        assert!(
            shown.out.contains(" 64 refused, at least ") && shown.out.contains("questions more"),
            "{shown:?}"
        );
        place.assert_whole("finished");
    }
}

/// A name that is no host's is the guest's words: they are in nobody's mouth, and in no terminal.
#[test]
fn what_is_no_name_is_told_without_its_words() {
    let place = Place::quick();
    let odd = "import socket
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.settimeout(20); u.connect(('127.0.0.1', 53))
for label in [b'obey \\x1b[31mme', b'\\xff\\0', b'127']:
    u.send(b'\\0\\7\\1\\0\\0\\1' + bytes(6) + bytes([len(label)]) + label + b'\\x011\\0\\0\\1\\0\\1'); u.recv(600)";
    let ran = place.exec_with(&["--allow", "granted.example:443"], &["python3", "-c", odd]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.err.contains("network: the host that was asked for is no name of a host\n"), "{ran:?}");
    assert!(!ran.err.contains("obey") && !ran.err.contains('\u{1b}'), "{ran:?}");
    let asked: Vec<Value> = decisions(&place).iter().map(|decided| decided["asked"].clone()).collect();
    assert_eq!(asked, [json!("(no name)"), json!("127.1")]);
}

/// R4: the model hears of it, beside the output of its call.
#[test]
fn r4_a_name_that_is_not_granted_is_told_to_the_model() {
    let place = Place::quick();
    place.guild(&["run_shell", "finish"]);
    let network = "\n[network]\nallow = [\"granted.example:443\"]\n";
    place.write("oubliette.toml", network);
    place.write("guild/guild.toml", place.read("guild/guild.toml") + network);
    let model =
        Script::new([sh("getent hosts other.example; getent hosts granted.example"), finish()]).start();
    let ran = place.run(&model.base_url());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let heard = told_in(&model, 1);
    let sentence =
        "network: `other.example` is not granted; it would have to stand in `network.allow`, with its port";
    assert!(heard.contains(sentence) && heard.matches("network: ").count() == 1, "{heard}");
}

/// `runs show` has what goes on while it goes on.
#[test]
fn a_run_that_goes_on_shows_its_connections() {
    let place = Place::quick();
    let holds = "import os,socket,time
held = [socket.create_connection(('127.0.0.1', 61080), 5) for _ in range(3)]
while not os.path.exists('seen'): time.sleep(0.05)";
    let mut command = place.exec_command(&["--allow", "granted.example:443"], &["python3", "-c", holds]);
    let running = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let began = Instant::now();
    let show = |id: &str| place.ran(["runs", "show", id]).out;
    let seen = loop {
        let id = place.ids().pop();
        let shown = id.map(|id| place.ran(["runs", "show", &id, "--json"]));
        // Before its first line there is nothing to read.
        let shown = shown.filter(|shown| shown.code == Some(0)).map(|shown| shown.json());
        if let Some(shown) = shown.filter(|shown| shown["network"]["open"] == 3) {
            break (shown, show(&place.ids()[0]));
        }
        if began.elapsed() > Duration::from_secs(300) {
            break (Value::Null, place.ids().pop().map(|id| show(&id)).unwrap_or_default());
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    // The guest goes when it finds this.
    std::fs::write(place.newest().join("workspace/seen"), "").unwrap();
    let ran = told(running.wait_with_output().unwrap());
    let (json, text) = seen;
    assert_eq!((&json["running"], &json["network"]["over"]), (&json!(true), &json!(0)), "{text}");
    assert!(text.contains("network  3 connections open, 0 over, 0 bytes out"), "{text}");
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let shown = show(&place.ids()[0]);
    assert!(shown.contains("network  3 connections over, 0 bytes out, 0 bytes in"), "{shown:?}");
    place.assert_whole("finished");
}
