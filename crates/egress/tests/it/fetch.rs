//! W13: a page for a tool passes the same judgement, at every step.

use egress::{Caps, NotFetched};

use crate::rig::{Rig, SECRET, answers, plain, tls_answers, with_header};

const PAGE: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: 5\r\n\r\nhello";

fn rule(refused: NotFetched) -> (&'static str, String) {
    match refused {
        NotFetched::Refused { rule, reason } => (rule, reason),
        NotFetched::Failed { reason } => ("failed", reason),
    }
}

#[tokio::test]
async fn a_granted_page_is_fetched_over_http_and_over_tls() {
    let rig = Rig::new(&["files.example.com:80", "api.example.com:443"]);
    rig.serves("files.example.com", 80, answers(PAGE).await);
    rig.serves("api.example.com", 443, tls_answers(PAGE).await);
    for url in ["http://files.example.com/x", "https://api.example.com/x"] {
        let page = rig.egress.fetch(url, 1000).await.unwrap();
        assert_eq!((page.status, page.text.as_str(), page.cut), (200, "hello", false));
        assert_eq!((page.url.as_str(), page.kind.as_str()), (url, "text/html; charset=utf-8"));
    }
}

#[tokio::test]
async fn w13_what_was_not_granted_or_leads_inside_is_not_fetched() {
    let rig = Rig::new(&["files.example.com:80", "api.example.com:443"]);
    rig.resolves("files.example.com", &[&["127.0.0.1"]]);
    for (url, code) in [
        ("http://other.example.net/", "egress-host"),
        ("http://api.example.com/", "egress-port"),
        ("http://169.254.169.254/latest/meta-data/", "egress-host"),
        ("http://127.0.0.1:8080/", "egress-host"),
        ("http://[::1]/", "egress-host"),
        ("http://localhost/", "egress-host"),
        ("http://2852039166/", "egress-form"),
        ("http://0xA9FEA9FE/", "egress-form"),
        ("http://[::ffff:169.254.169.254]/", "egress-form"),
        ("http://files.example.com@169.254.169.254/", "egress-form"),
        ("http://files.example.com\\@other.example.net/", "egress-form"),
        ("file:///etc/passwd", "egress-form"),
        ("http://files.example.com/", "egress-address"),
    ] {
        let (told, reason) = rule(rig.egress.fetch(url, 1000).await.unwrap_err());
        assert_eq!(told, code, "{url}: {reason}");
        assert!(rig.dialled().is_empty());
    }
}

#[tokio::test]
async fn w13_every_redirect_is_judged_anew() {
    for (to, code) in [
        ("http://other.example.net/", "egress-host"),
        ("http://169.254.169.254/", "egress-host"),
        ("//evil.example/", "egress-host"),
        ("https://files.example.com/", "egress-port"),
        ("http://2852039166/", "egress-redirect"),
        ("file:///etc/passwd", "egress-redirect"),
        ("/again", "failed"),
    ] {
        let rig = Rig::new(&["files.example.com:80"]);
        let moved = format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n");
        rig.serves("files.example.com", 80, answers(Box::leak(moved.into_boxed_str())).await);
        let (told, reason) = rule(rig.egress.fetch("http://files.example.com/", 1000).await.unwrap_err());
        assert_eq!(told, code, "{to}: {reason}");
        let steps = if code == "failed" { 6 } else { 1 };
        assert_eq!(rig.dialled().len(), steps, "{to}");
    }
    let rig = Rig::new(&["files.example.com:80", "api.example.com:443"]);
    let moved = "HTTP/1.1 301 Moved\r\nLocation: https://api.example.com/page\r\nContent-Length: 0\r\n\r\n";
    rig.serves("files.example.com", 80, answers(moved).await);
    rig.serves("api.example.com", 443, tls_answers(PAGE).await);
    let page = rig.egress.fetch("http://files.example.com/", 1000).await.unwrap();
    assert_eq!((page.url.as_str(), page.text.as_str()), ("https://api.example.com/page", "hello"));
}

/// R58: the header goes to its host, over TLS, and not along to where that sends us.
#[tokio::test]
async fn r58_a_page_is_fetched_with_its_header_and_the_header_stays_there() {
    let echo = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n{head}";
    let rig = Rig::with_header();
    rig.serves("api.example.com", 443, tls_answers(echo).await);
    for url in ["https://api.example.com/x", "http://api.example.com:443/x"] {
        let text = rig.egress.fetch(url, 1000).await.unwrap().text;
        assert!(text.contains(&format!("authorization: {}", "*".repeat(SECRET.len()))), "{text}");
    }
    let rig =
        Rig::of(vec![with_header("api.example.com:443"), plain("files.example.org:443")], Caps::default());
    let moved = "HTTP/1.1 302 Found\r\nLocation: https://files.example.org/\r\nContent-Length: 0\r\n\r\n";
    rig.serves("api.example.com", 443, tls_answers(moved).await);
    rig.resolves("files.example.org", &[&["203.0.113.8"]]);
    rig.route("203.0.113.8:443", tls_answers(echo).await);
    let text = rig.egress.fetch("https://api.example.com/", 1000).await.unwrap().text;
    assert!(
        text.starts_with("GET / HTTP/1.1\r\nHost: files.example.org\r\n") && !text.contains("uthorization")
    );
}

/// A page that was asked for over TLS does not come from where there is none.
#[tokio::test]
async fn w13_a_redirect_does_not_give_up_tls() {
    let rig = Rig::new(&["api.example.com:443", "files.example.com:80"]);
    let moved = "HTTP/1.1 302 Found\r\nLocation: http://files.example.com/\r\nContent-Length: 0\r\n\r\n";
    rig.serves("api.example.com", 443, tls_answers(moved).await);
    rig.serves("files.example.com", 80, answers(PAGE).await);
    let (told, reason) = rule(rig.egress.fetch("https://api.example.com/", 1000).await.unwrap_err());
    assert_eq!((told, rig.dialled().len()), ("egress-redirect", 1), "{reason}");
}

/// R58: what is cut has no value in it before it is cut, and no part of one.
#[tokio::test]
async fn r58_a_page_that_is_cut_within_the_value_shows_nothing_of_it() {
    for chunked in [false, true] {
        let rig = Rig::with_header();
        let body = if chunked {
            "Transfer-Encoding: chunked\r\n\r\n10\r\n12345Bearer swor\r\na\r\ndfish-1234\r\n0\r\n\r\n"
        } else {
            "\r\n12345Bearer swordfish-1234"
        };
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain; x=swordfish-1234\r\n{body}");
        rig.serves("api.example.com", 443, tls_answers(answer.leak()).await);
        for most in 1..30 {
            let page = rig.egress.fetch("https://api.example.com/", most).await.unwrap();
            let shown = page.text.trim_start_matches(|c: char| c.is_ascii_digit());
            assert!(shown.bytes().all(|b| b == b'*'), "{most} {}", page.text);
            assert!(!page.kind.contains("fish"), "{}", page.kind);
        }
    }
}

#[tokio::test]
async fn a_page_is_cut_where_it_is_too_long_and_refused_where_it_is_no_text() {
    let rig = Rig::new(&["files.example.com:80"]);
    for (answer, most, text) in [
        (PAGE, 5, Some(("hello", false))),
        (PAGE, 3, Some(("hel", true))),
        (
            "HTTP/1.1 404 No\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n3;x=1\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
            9,
            Some(("abcde", false)),
        ),
        ("HTTP/1.1 200 OK\r\n\r\nuntil the end", 99, Some(("until the end", false))),
        ("HTTP/1.1 103 Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\n\r\nyes", 99, Some(("yes", false))),
        ("HTTP/1.1 200 OK\r\nContent-Type: image/png\r\n\r\nx", 9, None),
        ("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\nx", 9, None),
        ("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nshort", 99, None),
        ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\nx", 9, None),
        ("SSH-2.0-x\r\n", 9, None),
        ("", 9, None),
    ] {
        rig.serves("files.example.com", 80, answers(answer).await);
        let fetched = rig.egress.fetch("http://files.example.com/", most).await;
        let told = fetched.as_ref().ok().map(|page| (page.text.as_str(), page.cut));
        assert_eq!(told, text, "{answer:?} {fetched:?}");
    }
}
