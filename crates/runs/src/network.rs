//! What passed the way out of a run, added up from its record while it goes on and when it is over.

use std::collections::BTreeSet;

use policy::Traffic;
use serde::Serialize;
use serde_json::Value;

/// Connections and bytes of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Network {
    /// Connections that are there, as told last; none of a run that nobody works on.
    pub open: u64,
    /// Connections that are over; those that were turned away had not begun.
    pub over: u64,
    /// Bytes that went out.
    pub up: u64,
    /// Bytes that came in.
    pub down: u64,
    /// What was refused, each told.
    pub refused: u64,
    /// Names that were asked for inside, and not told one by one: so many questions, at the least.
    pub unanswered: u64,
}

/// The same with what nobody is shown.
#[derive(Default)]
struct Counted {
    network: Network,
    /// Connections that were let in.
    let_in: u64,
}

/// What one executor did; a run that goes on has another.
#[derive(Default)]
struct Part {
    /// By the connections that are over, each of which tells its own.
    closed: (u64, u64),
    /// By the last word on all of them, those that are over among them.
    told: (u64, u64),
    /// Connections that were there at that word, and that were let in until then.
    open: u64,
    connections: u64,
    over: u64,
    /// Those that told anything of themselves.
    known: BTreeSet<u64>,
    unanswered: u64,
}

impl Part {
    /// Connections that are there: of those that were then, these are not over. No more than that is known.
    fn open(&self) -> u64 {
        self.open.min(self.connections.saturating_sub(self.over))
    }
}

impl Network {
    /// Of these events; none where nothing was asked.
    pub(crate) fn of(events: &[Value], running: bool) -> Option<Network> {
        Counted::of(events, running).map(|counted| counted.network)
    }
}

impl Counted {
    fn of(events: &[Value], running: bool) -> Option<Counted> {
        let (mut counted, mut part, mut asked) = (Counted::default(), Part::default(), false);
        for event in events {
            if event["type"] == "resume" {
                counted.add(&std::mem::take(&mut part));
            }
            if event["type"] != "egress" {
                continue;
            }
            asked = true;
            let number = |key: &str| event[key].as_u64().unwrap_or_default();
            if event["ended"] != "too-many" {
                part.known.extend(event["connection"].as_u64());
            }
            match event["event"].as_str().unwrap_or_default() {
                "closed" if event["ended"] == "too-many" => {}
                "closed" => {
                    part.over = part.over.saturating_add(1);
                    part.closed.0 = part.closed.0.saturating_add(number("up"));
                    part.closed.1 = part.closed.1.saturating_add(number("down"));
                }
                "progress" => {
                    part.told = (number("up"), number("down"));
                    (part.open, part.connections) = (number("open"), number("connections"));
                    part.unanswered = part.unanswered.max(number("unanswered"));
                }
                "decided" if event["decision"]["verdict"] == "refused" => {
                    counted.network.refused = counted.network.refused.saturating_add(1);
                }
                "unanswered" => part.unanswered = part.unanswered.max(number("questions")),
                _ => {}
            }
        }
        if running {
            counted.network.open = part.open();
        }
        counted.add(&part);
        asked.then_some(counted)
    }

    /// Nothing is counted twice: the larger of two counts of the same has the other in it.
    fn add(&mut self, part: &Part) {
        let network = &mut self.network;
        network.over = network.over.saturating_add(part.over);
        network.unanswered = network.unanswered.saturating_add(part.unanswered);
        let known = u64::try_from(part.known.len()).unwrap_or(u64::MAX);
        self.let_in = self.let_in.saturating_add(part.connections.max(known));
        network.up = network.up.saturating_add(part.closed.0.max(part.told.0));
        network.down = network.down.saturating_add(part.closed.1.max(part.told.1));
    }
}

/// What these events leave of the bounds: a run that goes on has no more than one that was never interrupted.
pub(crate) fn left(traffic: &Traffic, events: &[Value]) -> Traffic {
    let Counted { network: Network { up, down, .. }, let_in } =
        Counted::of(events, false).unwrap_or_default();
    Traffic {
        connections: traffic.connections.saturating_sub(u32::try_from(let_in).unwrap_or(u32::MAX)),
        up: traffic.up.saturating_sub(up),
        down: traffic.down.saturating_sub(down),
        ..traffic.clone()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn closed(up: u64, down: u64) -> Value {
        json!({"type": "egress", "event": "closed", "up": up, "down": down})
    }

    fn progress(open: u64, connections: u64, up: u64, down: u64) -> Value {
        json!({"type": "egress", "event": "progress", "open": open, "connections": connections, "up": up, "down": down})
    }

    #[test]
    fn a_run_that_goes_on_has_what_it_had_left() {
        let traffic = Traffic { connections: 10, up: 100, down: 5000, ..Traffic::default() };
        let decided = |connection: u64| json!({"type": "egress", "event": "decided", "connection": connection, "decision": {"verdict": "allowed"}});
        let turned_away = json!({"type": "egress", "event": "closed", "connection": 3, "ended": "too-many"});
        // Two connections by their numbers, and of the second executor three by its word.
        let events = [
            decided(1),
            decided(1),
            closed(5, 50),
            decided(2),
            turned_away,
            json!({"type": "resume"}),
            progress(3, 3, 90, 3000),
            decided(1),
        ];
        let left = left(&traffic, &events);
        assert_eq!((left.connections, left.up, left.down), (5, 5, 1950));
        assert_eq!((left.open, left.idle), (traffic.open, traffic.idle));
        let over = super::left(&traffic, &[progress(0, 40, 1000, 9000)]);
        assert_eq!((over.connections, over.up, over.down), (0, 0, 0));
        assert_eq!(super::left(&traffic, &[]), traffic);
    }

    fn counted(events: &[Value], running: bool) -> (u64, u64, u64, u64) {
        let Network { open, over, up, down, .. } = Network::of(events, running).unwrap();
        (open, over, up, down)
    }

    #[test]
    fn a_run_that_goes_on_shows_what_has_passed_so_far() {
        let events = [progress(2, 2, 5, 1000), closed(5, 50), progress(1, 2, 9, 3000)];
        assert_eq!(counted(&events[..1], true), (2, 0, 5, 1000));
        assert_eq!(counted(&events, true), (1, 1, 9, 3000));
    }

    #[test]
    fn at_the_end_the_connections_count_and_nothing_twice() {
        let events = [progress(2, 2, 5, 1000), closed(5, 50), progress(1, 2, 9, 3000), closed(4, 4000)];
        assert_eq!(counted(&events, false), (0, 2, 9, 4050));
    }

    /// The executor was killed, and another went on with the run: each counted from nothing.
    #[test]
    fn a_resumed_run_adds_up() {
        let events = [
            closed(1, 10),
            progress(1, 2, 2, 300),
            json!({"type": "resume"}),
            progress(1, 1, 4, 40),
            closed(4, 44),
        ];
        assert_eq!(counted(&events, false), (0, 2, 6, 344));
    }

    /// A connection is there, or over, or was never let in.
    #[test]
    fn no_connection_is_shown_twice_and_none_that_was_turned_away() {
        let mut turned_away = closed(0, 0);
        turned_away["ended"] = json!("too-many");
        let events = [progress(2, 2, 0, 0), closed(1, 1), turned_away, closed(1, 1), closed(1, 1)];
        assert_eq!(counted(&events[..2], true), (1, 1, 1, 1));
        assert_eq!(counted(&events[..3], true), (1, 1, 1, 1));
        // The third came and went behind the last word.
        assert_eq!(counted(&events, true), (0, 3, 3, 3));
    }

    /// Its executor was killed and could not say the last word.
    #[test]
    fn questions_that_were_only_counted_are_the_last_number_of_each_part() {
        let word = |n: u64| {
            let mut word = progress(0, 0, 0, 0);
            word["unanswered"] = json!(n);
            word
        };
        let more = |n: u64| json!({"type": "egress", "event": "unanswered", "questions": n});
        let events = [word(4), word(16), json!({"type": "resume"}), word(2), more(8)];
        let unanswered = |upto: usize| Network::of(&events[..upto], false).unwrap().unanswered;
        assert_eq!((unanswered(1), unanswered(2), unanswered(4), unanswered(5)), (4, 16, 18, 24));
    }

    #[test]
    fn without_a_question_there_is_nothing_to_show() {
        assert_eq!(Network::of(&[json!({"type": "tool_start"})], true), None);
        let refused = json!({"type": "egress", "event": "decided", "decision": {"verdict": "refused"}});
        let more = json!({"type": "egress", "event": "unanswered", "questions": 7});
        let network = Network::of(&[refused, more], false).unwrap();
        assert_eq!((network.refused, network.unanswered), (1, 7));
    }
}
