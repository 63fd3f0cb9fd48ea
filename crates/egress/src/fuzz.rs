//! What hostile bytes reach first, for fuzzing and for the same in small among the tests.

use policy::{AddressKind, Host, HostRule, Target};

use crate::body::Framing;
use crate::gate::gate;
use crate::http::{self, Request, Response};
use crate::socks::{self, Read, Wish};
use crate::url::Url;
use crate::{hello, inject};

/// Any bytes as a host, a rule, and the address of a page: what is read has one spelling, and never two meanings.
pub fn host(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    if let Ok(host) = Host::parse(&text) {
        let canonical = host.to_string();
        assert_eq!(Host::parse(&canonical).as_ref(), Ok(&host), "{canonical:?}");
        assert!(canonical.bytes().all(|b| b.is_ascii_graphic() && !b"@%/\\?#".contains(&b)), "{canonical:?}");
        if let Host::Name(name) = &host {
            assert!(name.as_str().parse::<std::net::IpAddr>().is_err());
            assert!(!name.as_str().ends_with('.') && !name.as_str().contains([':', '[', '*']));
        }
        if let Some(address) = host.address() {
            // Whatever a rule may open, a name may not lead to more.
            let kind = AddressKind::of(address, &[]);
            assert!(!kind.is_public() || kind.may_be_written());
        }
    }
    if let Ok(rule) = HostRule::parse(&text) {
        assert_eq!(HostRule::parse(&rule.to_string()).as_ref(), Ok(&rule));
        assert!(rule.covers(&rule));
    }
    if let Ok(target) = Target::parse(&text, None)
        && let Ok(rule) = HostRule::parse(&text)
    {
        assert!(rule.names(&target));
    }
    if let Ok(url) = Url::parse(&text) {
        assert_eq!(Url::parse(&url.to_string()).as_ref(), Ok(&url), "{url}");
        assert!(url.path.starts_with('/') && url.path.bytes().all(|b| b.is_ascii_graphic()));
        if let Ok(next) = url.join(&text) {
            assert!(next.path.starts_with('/') && next.path.bytes().all(|b| b.is_ascii_graphic()));
        }
    }
}

/// Any bytes as the head of a request, of a response, and as a body in chunks: a head that is sent on is read as the
/// same one request to the same host.
pub fn head(bytes: &[u8]) {
    if let Ok(Some(end)) = http::head_end(bytes, 0, http::MOST_REQUEST) {
        let whole = http::head_end(&bytes[..end], end / 2, http::MOST_REQUEST);
        assert_eq!(whole, Ok(Some(end)), "what was looked at before is not forgotten");
        if let Ok(request) = Request::read(&bytes[..end]) {
            let target = Target { host: request.host.host.clone(), port: request.host.port.unwrap_or(80) };
            if request.method != "CONNECT" {
                let sent = request.written(&target, 80, Some(("authorization", "ours")));
                assert_eq!(http::head_end(&sent, 0, usize::MAX), Ok(Some(sent.len())));
                if let Ok(again) = Request::read(&sent) {
                    assert_eq!((again.host.host, again.body), (request.host.host, request.body));
                    assert_eq!((again.method, again.path), (request.method, request.path));
                }
                let lines = String::from_utf8_lossy(&sent).to_ascii_lowercase();
                assert_eq!(lines.matches("\r\nauthorization:").count(), 1);
                assert_eq!(lines.matches("\r\nhost:").count(), 1);
            }
        }
        if let Ok(response) = Response::read(&bytes[..end], "GET") {
            let sent = response.written();
            assert_eq!(http::head_end(&sent, 0, usize::MAX), Ok(Some(sent.len())));
        }
    }
    for extensions in [false, true] {
        let (mut whole, mut pieces) = (Framing::chunked(extensions), Framing::chunked(extensions));
        let (mut payload, mut again) = (Vec::new(), Vec::new());
        let taken = whole.take(bytes, Some(&mut payload));
        let each: Result<usize, _> = bytes.chunks(3).map(|piece| pieces.take(piece, Some(&mut again))).sum();
        assert_eq!((taken, payload), (each, again));
    }
}

/// Any bytes as a TLS hello: read alike however it is cut, and a gate lets nothing through that it should not.
pub fn hello(bytes: &[u8]) {
    let read = hello::read_whole(bytes);
    if let Ok(Some((host, end))) = &read {
        assert_eq!(hello::read(&bytes[..*end]), Ok(Some(host.clone())));
        assert_eq!(hello::read(&bytes[..end - 1]), Ok(None), "what is not whole names nobody");
    }
    let Ok(host) = Host::parse("a.example") else { return };
    // Before a server has said anything, and behind these bytes as what it says.
    let (unheard, mut heard) = (gate(host.clone()), gate(host.clone()));
    let mut heard_in_pieces = gate(host.clone());
    heard.1.hear(bytes);
    bytes.chunks(7).for_each(|piece| heard_in_pieces.1.hear(piece));
    assert_eq!(heard.1.is_done(), heard_in_pieces.1.is_done());
    for ((mut whole, _), (mut pieces, _)) in [(unheard, gate(host.clone())), (heard, heard_in_pieces)] {
        let passed = whole.pass(bytes);
        let each: Result<Vec<_>, _> = bytes.chunks(5).map(|piece| pieces.pass(piece)).collect();
        if let (Ok(passed), Ok(each)) = (&passed, each.map(|each| each.concat())) {
            assert_eq!(*passed, each);
            assert!(bytes.starts_with(passed));
        }
        if let (Ok(Some((named, _))), Ok(passed)) = (&read, passed) {
            assert!(*named == host || passed.is_empty(), "{named}");
        }
    }
    let mut blot = inject::Blot::new(&crate::Secret::of("Bearer abcabcabd"));
    let out: usize = bytes.chunks(4).map(|piece| blot.pass(piece).len()).sum();
    assert_eq!(out + blot.rest().len(), bytes.len());
}

/// Any bytes as a request of SOCKS: read alike however it is cut, and what it names is a host as any other.
pub fn socks(bytes: &[u8]) {
    match socks::read(bytes) {
        Read::Needs(most) => assert!(most > bytes.len() && most <= 4 + 256 + 2),
        Read::Whole(wish, taken) => {
            assert!(taken <= bytes.len());
            assert_eq!(socks::read(&bytes[..taken]), Read::Whole(wish.clone(), taken));
            if let Wish::Connect(Ok(target)) = wish {
                assert_eq!(Target::parse(&target.to_string(), None), Ok(target));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use testkit::mutated;

    use super::*;

    /// Longest piece of a mutation.
    const PIECE: usize = 60;

    #[test]
    fn hosts_of_any_bytes_have_one_spelling() {
        let seeds: [&[u8]; 4] = [
            include_bytes!("../../../fuzz/corpus/host/name"),
            include_bytes!("../../../fuzz/corpus/host/v6"),
            include_bytes!("../../../fuzz/corpus/host/star"),
            include_bytes!("../../../fuzz/corpus/host/url"),
        ];
        mutated(&seeds, 30_000, PIECE, host);
    }

    #[test]
    fn heads_of_any_bytes_go_on_as_they_were_read() {
        let seeds: [&[u8]; 4] = [
            include_bytes!("../../../fuzz/corpus/head/absolute"),
            include_bytes!("../../../fuzz/corpus/head/post"),
            include_bytes!("../../../fuzz/corpus/head/response"),
            include_bytes!("../../../fuzz/corpus/head/chunks"),
        ];
        mutated(&seeds, 20_000, PIECE, head);
    }

    #[test]
    fn hellos_of_any_bytes_are_read_alike_however_cut() {
        let seeds: [&[u8]; 3] = [
            include_bytes!("../../../fuzz/corpus/hello/plain"),
            include_bytes!("../../../fuzz/corpus/hello/pieces"),
            include_bytes!("../../../fuzz/corpus/hello/again"),
        ];
        mutated(&seeds, 20_000, PIECE, hello);
    }

    #[test]
    fn wishes_of_any_bytes_are_read_alike_however_cut() {
        let seeds: [&[u8]; 3] = [
            include_bytes!("../../../fuzz/corpus/socks/name"),
            include_bytes!("../../../fuzz/corpus/socks/v4"),
            include_bytes!("../../../fuzz/corpus/socks/v6"),
        ];
        mutated(&seeds, 30_000, PIECE, socks);
    }
}
