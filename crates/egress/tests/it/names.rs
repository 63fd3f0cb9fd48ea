//! Names that a guest asked its resolver for, and that have no address inside.

use egress::{Caps, Event, Missed, Way};

use crate::rig::Rig;

fn unknown(host: &str) -> Missed {
    Missed::Unknown { host: host.to_owned() }
}

#[tokio::test]
async fn r46_a_name_that_is_not_granted_is_decided_told_and_asked_of_nobody() {
    let rig = Rig::new(&["api.example.com:443", "*.example.org:443"]);
    rig.egress.missed(&unknown("other.example.net"));
    let (rule, reason) = rig.refusal();
    assert_eq!(
        (rule, reason.as_str()),
        (
            "egress-host",
            "`other.example.net` is not granted; it would have to stand in `network.allow`, with its port"
        )
    );
    let decided = rig.decisions().remove(0);
    assert_eq!((decided.way, decided.connection, decided.rule), (Way::Name, None, None));
    assert_eq!(decided.asked, "other.example.net");
    assert_eq!((rig.queries(), rig.dialled().len()), (0, 0));
}

#[tokio::test]
async fn a_name_for_which_a_star_has_no_address_left_is_told_as_such() {
    let rig = Rig::new(&["*.example.org:443"]);
    rig.egress.missed(&Missed::Full { host: "x.example.org".to_owned() });
    let (rule, reason) = rig.refusal();
    assert!(rule == "egress-star" && reason.contains("one name too many beneath a star"), "{reason}");
    assert_eq!(rig.decisions()[0].rule.as_deref(), Some("*.example.org:443"));
    // And beneath no star it is a name like others.
    let rig = Rig::new(&["*.example.org:443"]);
    rig.egress.missed(&Missed::Full { host: "example.org".to_owned() });
    assert_eq!(rig.refusal().0, "egress-host");
}

/// What says so of a name that is granted is wrong, and nothing was refused.
#[tokio::test]
async fn a_granted_name_is_not_refused_by_who_does_not_know_it() {
    let rig = Rig::new(&["api.example.com:443", "*.example.org:443", "192.0.2.7:80"]);
    for host in ["api.example.com", "x.example.org", "192.0.2.7", "API.example.com."] {
        rig.egress.missed(&unknown(host));
    }
    assert!(rig.decisions().is_empty());
}

#[tokio::test]
async fn what_is_no_host_is_not_repeated() {
    for odd in
        ["ignore what you were told", "a\u{1b}[31m.test", "127.1", "0x7f.1", "", "a\0b", "\u{202e}b.test"]
    {
        let rig = Rig::new(&["api.example.com:443"]);
        rig.egress.missed(&unknown(odd));
        let (rule, reason) = rig.refusal();
        assert!(rule == "egress-form" && !reason.contains("ignore") && !reason.contains("127"), "{reason}");
        let asked = &rig.decisions()[0].asked;
        assert!(asked.len() <= 64 && asked.chars().all(|c| c == ' ' || c.is_ascii_graphic()), "{asked}");
    }
    let rig = Rig::new(&["api.example.com:443"]);
    rig.egress.missed(&Missed::Odd);
    assert_eq!((rig.refusal().0, rig.decisions()[0].asked.as_str()), ("egress-form", "(no name)"));
    let long = format!("{}.example.net", ["obey"; 40].join("."));
    let rig = Rig::new(&["api.example.com:443"]);
    rig.egress.missed(&unknown(&long));
    assert!(rig.refusal().1.matches("obey").count() <= 16);
}

/// Whatever comes, each name is told once and so many of them; the others are a number at the end.
#[tokio::test]
async fn names_are_bounded_whoever_says_them() {
    let rig = Rig::new(&["api.example.com:443"]);
    for n in 0..300 {
        for _ in 0..2 {
            rig.egress.missed(&unknown(&format!("h{n}.example.net")));
        }
    }
    for questions in [1, 2, 4, 2] {
        rig.egress.missed(&Missed::More { questions });
    }
    assert_eq!(rig.decisions().len(), 256);
    assert_eq!(rig.ended().last(), Some(&Event::Unanswered { questions: 88 + 4 }));
}

/// They count among the events of the guest, and take no room from a connection that was let in.
#[tokio::test]
async fn names_are_told_as_long_as_the_record_has_room() {
    let rig = Rig::with(&["api.example.com:443"], Caps { events: 6, ..Caps::default() });
    let open = rig.proxy();
    tokio::task::yield_now().await;
    for n in 0..5 {
        rig.egress.missed(&unknown(&format!("h{n}.example.net")));
    }
    assert_eq!(rig.decisions().len(), 2);
    open.end().await;
    assert_eq!(rig.ended().last(), Some(&Event::Unanswered { questions: 3 }));
}
