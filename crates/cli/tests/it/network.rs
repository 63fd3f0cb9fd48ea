//! `exec --allow` and the network of a grant, as far as nobody has to be there to answer: `scripts/egress-test` has the rest.

use serde_json::{Value, json};

use crate::place::{Place, Ran};
use crate::{Who, everywhere};

/// Asks the proxy for a destination and prints its answer.
const CONNECT: &str = "import os,socket,sys
port = int(os.environ['http_proxy'].rsplit(':', 1)[1].strip('/'))
s = socket.create_connection(('127.0.0.1', port), 5)
s.sendall(f'CONNECT {sys.argv[1]} HTTP/1.1\\r\\nHost: {sys.argv[1]}\\r\\n\\r\\n'.encode())
print(s.recv(4096).decode().split('\\r\\n')[0])";

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
