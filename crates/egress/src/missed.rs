//! Names that a guest asked its resolver for, and that have no address there: decided and told as connections are.

use std::collections::BTreeSet;
use std::sync::PoisonError;

use policy::{Decision, Host, shown};

use crate::connection::Inner;
use crate::{Decided, Event, Missed, Refused, Way};

/// Names that are told one by one. Whoever asks inside has a bound of its own; this one is ours.
const NAMES: usize = 256;

/// Which were told, and how many were not.
#[derive(Default)]
pub(crate) struct Names {
    told: BTreeSet<(String, &'static str)>,
    untold: u64,
    /// As the other side counts.
    more: u64,
}

impl Inner {
    /// Decides and tells; false where it is only counted.
    pub(crate) fn missed(&self, missed: &Missed) -> bool {
        let (said, host, full) = match missed {
            Missed::Unknown { host } => (host.as_str(), Host::parse(host), false),
            Missed::Full { host } => (host.as_str(), Host::parse(host), true),
            Missed::Odd => ("(no name)", Err("is no name of a host".to_owned()), false),
            Missed::More { questions } => {
                let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
                names.more = names.more.max(*questions);
                return false;
            }
        };
        let (refused, granted) = match &host {
            // Where it is granted after all, nothing was refused.
            Ok(host) => match self.judge.nameless(host, full) {
                Some(decided) => decided,
                None => return true,
            },
            Err(why) => (Refused::form(why), None),
        };
        let asked = host.map_or_else(|_| shown(said), |host| host.to_string());
        {
            let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
            let key = (asked.clone(), refused.rule);
            if names.told.contains(&key) {
                return true;
            }
            if names.told.len() >= NAMES || !self.room_for_one() {
                names.untold = names.untold.saturating_add(1);
                return false;
            }
            names.told.insert(key);
        }
        self.tell(Event::Decided(Decided {
            connection: None,
            way: Way::Name,
            asked,
            decision: Decision::refuse(refused.rule, refused.reason),
            rule: granted.map(|granted| granted.destination().rule().to_string()),
            addresses: Vec::new(),
            more_addresses: 0,
            header: None,
        }));
        true
    }

    /// Questions of which none was told, at the least.
    pub(crate) fn unnamed(&self) -> u64 {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        names.untold.saturating_add(names.more)
    }
}
