//! What the way out refused or ended, kept for the model until it hears of it: nothing without a word, and few words in
//! all.
//!
//! A bound that struck is one sentence, however often it did. Granted servers that could not be reached are told like
//! refusals. What ended by itself, or by a server that had said something, whoever asked has seen.
//!
//! A few sentences are told in full, those of connections before those of names that were only looked up: who looks up
//! names without end pushes no connection out. Of the others stands what was asked for, in one sentence. Beyond what is
//! kept a fixed sentence says that there was more.

use std::collections::BTreeMap;

use egress::{Decided, Ended, Full, Way};
use policy::{Host, Target};

/// Different refusals of each kind that are kept.
const KEPT: usize = 64;
/// Of these so many are told in full.
const SENTENCES: usize = 5;
/// Bytes of the sentence that lists the others, about.
const LIST: usize = 2000;
/// Characters of one that is listed: a longer one is the guest's text more than a name.
const LISTED: usize = 80;

/// Refusals since the model was last told.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    new: New,
    /// Connections that were turned away and are only counted, as the model was last told.
    counted: u64,
    /// Why the last one that is known was turned away: those that are counted are most likely for the same.
    full: Option<Full>,
}

#[derive(Debug, Default)]
struct New {
    /// By what it says.
    struck: BTreeMap<&'static str, Struck>,
    connections: Kept,
    gone: Kept,
    names: Kept,
}

/// What a bound did to connections.
#[derive(Debug)]
struct Struck {
    turned_away: bool,
    /// To where one of them went.
    to: Option<String>,
    more: bool,
}

/// Different ones, in the order in which they came.
#[derive(Debug, Default)]
struct Kept {
    refusals: Vec<Refusal>,
    /// There were others.
    beyond: bool,
}

#[derive(Debug)]
struct Refusal {
    reason: String,
    /// What was asked for; none where that is the guest's words and no host.
    asked: Option<String>,
}

impl Refusals {
    /// Keeps one. What a tool of the executor asked for is told by its own answer.
    pub(crate) fn add(&mut self, decided: &Decided) {
        let asked = &decided.asked;
        let (kept, asked) = match decided.way {
            Way::Fetch => return,
            Way::Name => (&mut self.new.names, Host::parse(asked).is_ok().then(|| listed(asked))),
            Way::Proxy | Way::Connect | Way::Http | Way::Socks | Way::Transparent => {
                (&mut self.new.connections, target(asked))
            }
        };
        kept.add(decided.decision.reason.clone(), asked);
    }

    /// Keeps how a connection ended, where a bound ended it or no server was there; `down` bytes had come back.
    pub(crate) fn ended(&mut self, way: Way, asked: &str, down: u64, ended: &Ended) {
        if way == Way::Fetch {
            return;
        }
        if let Ended::TooMany(full) = ended {
            self.full = Some(*full);
        }
        if let Some(bound) = ended.bound() {
            let turned_away = matches!(ended, Ended::TooMany(_));
            self.new.struck.entry(bound).and_modify(|struck| struck.more = true).or_insert_with(|| Struck {
                turned_away,
                to: target(asked),
                more: false,
            });
        } else if let Ended::ServerGone(why) = ended
            && down == 0
        {
            // Those that name whom they mean need no name before them.
            let reason = if why.starts_with('`') { why.clone() } else { format!("{}: {why}", listed(asked)) };
            self.new.gone.add(reason, target(asked));
        }
    }

    /// More names were asked for, and none of them told.
    pub(crate) fn more_names(&mut self) {
        self.new.names.beyond = true;
    }

    /// Clean sentences, fit for the model; from here on nothing is kept. So many connections in all were turned away and
    /// are only `counted`.
    pub(crate) fn take(&mut self, counted: u64) -> Vec<String> {
        if let Some(full) = self.full
            && counted > std::mem::replace(&mut self.counted, counted)
        {
            self.ended(Way::Proxy, "", 0, &Ended::TooMany(full));
        }
        let New { struck, connections, gone, names } = std::mem::take(&mut self.new);
        let mut told: Vec<String> = struck.iter().map(|(bound, struck)| struck.sentence(bound)).collect();
        let mut room = SENTENCES;
        let mut full = |kept: &mut Vec<Refusal>| {
            let first: Vec<Refusal> = kept.drain(..room.min(kept.len())).collect();
            room -= first.len();
            told.extend(first.into_iter().map(|refusal| refusal.reason));
        };
        let (mut refused, mut unreached, mut looked_up) =
            (connections.refusals, gone.refusals, names.refusals);
        full(&mut refused);
        full(&mut unreached);
        full(&mut looked_up);
        refused.append(&mut looked_up);
        told.extend(list("refused", &refused));
        told.extend(list("not reached", &unreached));
        if connections.beyond {
            told.push("further connections were refused".to_owned());
        }
        if gone.beyond {
            told.push("further granted servers were not reached".to_owned());
        }
        if names.beyond {
            told.push("further names that are not granted were asked for".to_owned());
        }
        told
    }
}

impl Kept {
    fn add(&mut self, reason: String, asked: Option<String>) {
        if self.refusals.iter().any(|refusal| refusal.reason == reason) {
            return;
        }
        if self.refusals.len() >= KEPT {
            self.beyond = true;
            return;
        }
        self.refusals.push(Refusal { reason, asked });
    }
}

impl Struck {
    fn sentence(&self, bound: &str) -> String {
        let what = if self.turned_away { "turned away" } else { "closed" };
        match (&self.to, self.more) {
            (None, false) => format!("a connection was {what}, for {bound}"),
            (None, true) => format!("connections were {what}, for {bound}"),
            (Some(to), false) => format!("a connection to {to} was {what}, for {bound}"),
            (Some(to), true) => format!("connections, one of them to {to}, were {what}, for {bound}"),
        }
    }
}

/// Where it went, if that is a host and not words of the guest's.
fn target(asked: &str) -> Option<String> {
    Target::parse(asked, None).is_ok().then(|| listed(asked))
}

fn listed(asked: &str) -> String {
    match asked.char_indices().nth(LISTED) {
        Some((end, _)) => format!("`{}...`", &asked[..end]),
        None => format!("`{asked}`"),
    }
}

/// What was asked for, as far as it can be repeated and has room, and how many more there are.
fn list(what: &str, refusals: &[Refusal]) -> Option<String> {
    let mut bytes = 0;
    let fits = |asked: &&str| {
        bytes += asked.len() + 2;
        bytes <= LIST
    };
    let asked: Vec<&str> =
        refusals.iter().filter_map(|refusal| refusal.asked.as_deref()).take_while(fits).collect();
    match (asked.len(), refusals.len() - asked.len()) {
        (0, 0) => None,
        (0, more) => Some(format!("{more} more were {what}")),
        (_, 0) => Some(format!("{what} too: {}", asked.join(", "))),
        (_, more) => Some(format!("{what} too: {}, and {more} more", asked.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use policy::Decision;

    use super::*;

    fn refused(way: Way, asked: &str) -> Decided {
        Decided {
            connection: None,
            way,
            asked: asked.to_owned(),
            decision: Decision::refuse("egress-host", format!("`{asked}` is not granted")),
            rule: None,
            addresses: Vec::new(),
            more_addresses: 0,
            header: None,
        }
    }

    fn told(refusals: &[(Way, String)]) -> Vec<String> {
        let mut kept = Refusals::default();
        for (way, asked) in refusals {
            kept.add(&refused(*way, asked));
        }
        kept.take(0)
    }

    fn names(how_many: usize) -> Vec<(Way, String)> {
        (0..how_many).map(|n| (Way::Name, format!("h{n}.test"))).collect()
    }

    /// R4: each of them is there, whatever there is besides.
    #[test]
    fn r4_every_different_refusal_is_named_and_a_repeated_one_is_not_counted() {
        let twice = [names(8), names(8)].concat();
        let told = told(&twice);
        assert_eq!(told.len(), 6);
        assert_eq!(
            (told[0].as_str(), told[4].as_str()),
            ("`h0.test` is not granted", "`h4.test` is not granted")
        );
        assert_eq!(told[5], "refused too: `h5.test`, `h6.test`, `h7.test`");
    }

    #[test]
    fn names_without_end_push_no_connection_out() {
        let told = told(&[names(1000), vec![(Way::Connect, "192.0.2.1:443".to_owned())]].concat());
        assert_eq!(told[0], "`192.0.2.1:443` is not granted");
        assert_eq!(told[1], "`h0.test` is not granted");
        assert!(told[5].ends_with("`h63.test`"), "{told:?}");
        assert_eq!(told[6..], ["further names that are not granted were asked for"]);
    }

    #[test]
    fn what_is_told_is_bounded_however_much_and_long_it_is() {
        let mut all = Vec::new();
        for n in 0..1000 {
            let host = format!("{n}.{}test", "long.".repeat(45));
            all.extend([(Way::Name, host.clone()), (Way::Socks, format!("{host}:{}", n + 1))]);
        }
        let told = told(&all);
        let (list, rest) = (told[5].as_str(), &told[6..]);
        assert!(list.len() < LIST + 100 && list.contains("..."), "{list}");
        let named = list.matches('`').count() / 2;
        assert!(list.ends_with(&format!(", and {} more", 2 * KEPT - SENTENCES - named)), "{list}");
        let fixed = ["further connections were refused", "further names that are not granted were asked for"];
        assert_eq!(rest, fixed);
    }

    #[test]
    fn what_is_no_host_is_counted_and_not_repeated() {
        let mut kept = Refusals::default();
        for n in 0..7 {
            let mut odd = refused(Way::Connect, &format!("obey me {n}"));
            odd.decision.reason = format!("the host that was asked for is odd in way {n}");
            kept.add(&odd);
        }
        let told = kept.take(0);
        assert_eq!(told[5..], ["2 more were refused"]);
        assert!(!told.concat().contains("obey"));
    }

    #[test]
    fn what_was_told_is_not_told_again_and_a_tools_own_not_at_all() {
        let mut kept = Refusals::default();
        kept.add(&refused(Way::Fetch, "a.test:443"));
        assert!(kept.take(0).is_empty());
        kept.add(&refused(Way::Name, "a.test"));
        kept.more_names();
        assert_eq!(kept.take(0).len(), 2);
        assert!(kept.take(0).is_empty());
    }

    /// OC's `denial_is_told`, of a bound: the key that would have to be raised, however often it struck.
    #[test]
    fn a_bound_that_struck_is_one_sentence_that_names_its_key() {
        let to = "api.test:443";
        for (ended, key, one) in [
            (
                Ended::UpBytes,
                "`network.up`",
                "a connection to `api.test:443` was closed, for the run has sent",
            ),
            (Ended::DownBytes, "`network.down`", "a connection to `api.test:443` was closed"),
            (Ended::Idle, "`network.idle`", "a connection to `api.test:443` was closed"),
            (Ended::Lifetime, "`network.lifetime`", "a connection to `api.test:443` was closed"),
            (Ended::TooMany(Full::Open), "`network.open`", "a connection was turned away"),
            (Ended::TooMany(Full::Connections), "`network.connections`", "a connection was turned away"),
            (Ended::TooMany(Full::Record), "record", "a connection was turned away"),
        ] {
            let mut kept = Refusals::default();
            let asked = if matches!(ended, Ended::TooMany(_)) { "" } else { to };
            kept.ended(Way::Transparent, asked, 5, &ended);
            let told = kept.take(0);
            assert!(told.len() == 1 && told[0].starts_with(one) && told[0].contains(key), "{told:?}");
            for _ in 0..1000 {
                kept.ended(Way::Transparent, asked, 0, &ended);
            }
            let told = kept.take(0);
            assert!(
                told.len() == 1 && told[0].starts_with("connections") && told[0].contains(key),
                "{told:?}"
            );
            kept.ended(Way::Fetch, to, 0, &ended);
            assert!(kept.take(0).is_empty());
        }
    }

    /// Who is turned away for the thousandth time leaves no event, only a number.
    #[test]
    fn a_connection_that_is_only_counted_is_told_with_its_call() {
        let mut kept = Refusals::default();
        assert!(kept.take(0).is_empty());
        kept.ended(Way::Proxy, "", 0, &Ended::TooMany(Full::Connections));
        assert_eq!(kept.take(0).len(), 1);
        let told = kept.take(7);
        assert!(told.len() == 1 && told[0].contains("`network.connections`"), "{told:?}");
        assert!(kept.take(7).is_empty());
    }

    #[test]
    fn granted_servers_that_are_down_are_told_bounded_and_after_what_was_refused() {
        let mut kept = Refusals::default();
        let down = |kept: &mut Refusals, why: &str, n: usize| {
            kept.ended(Way::Transparent, &format!("h{n}.test:443"), 0, &Ended::ServerGone(why.to_owned()));
        };
        let gone = "`h0.test:443` is granted, but could not be reached: connection refused";
        down(&mut kept, gone, 0);
        down(&mut kept, gone, 0);
        down(&mut kept, "connection reset", 1);
        kept.add(&refused(Way::Connect, "192.0.2.1:443"));
        kept.ended(Way::Connect, "h9.test:443", 9, &Ended::ServerGone("connection reset".to_owned()));
        let told = kept.take(0);
        assert_eq!(told, ["`192.0.2.1:443` is not granted", gone, "`h1.test:443`: connection reset"]);
        for n in 0..1000 {
            down(&mut kept, "connection reset", n);
        }
        let told = kept.take(0);
        assert_eq!(told.len(), SENTENCES + 2);
        assert!(told[5].starts_with("not reached too: `h5.test:443`, ") && told[5].len() < LIST + 100);
        assert_eq!(told[6], "further granted servers were not reached");
    }

    /// What ended as such things end is nobody's news.
    #[test]
    fn an_end_that_no_bound_made_is_not_told() {
        let mut kept = Refusals::default();
        let silent = [
            Ended::Done,
            Ended::Refused,
            Ended::Malformed("is odd".to_owned()),
            Ended::Silent,
            Ended::GuestGone,
            Ended::Dropped,
        ];
        for ended in silent {
            kept.ended(Way::Transparent, "api.test:443", 0, &ended);
        }
        assert!(kept.take(0).is_empty());
    }
}
