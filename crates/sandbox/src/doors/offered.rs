//! The way that a sandbox offers for what is granted, from its launch to the first knock.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use super::{Accepting, Doors, Exchange, Knocks, Layout, Missing, PROXY_PORT, pass};
use crate::launch::Launch;
use crate::problem::Problem;
use crate::report::{Layer, LayerState};

/// How what is granted is offered.
pub(crate) enum Offered {
    /// Not at all.
    None,
    /// On sockets that are passed out: our end of where they come, and the guest's.
    Passed { layout: Layout, passage: (OwnedFd, OwnedFd) },
    /// By frames over the channel.
    Relayed { layout: Layout, exchange: Arc<Exchange>, knocks: Knocks, missing: Missing },
}

/// Where knocks come from, as long as it is held, and arrive.
#[derive(Debug)]
pub(crate) struct Way {
    /// None where frames bring them.
    pub(crate) accepting: Option<Accepting>,
    pub(crate) knocks: Knocks,
    pub(crate) missing: Missing,
}

impl Offered {
    /// As the sandbox that is launched has it.
    pub(crate) fn of(launch: &Launch) -> Result<Offered, Problem> {
        let Some(layout) = Layout::of(&launch.made()).map_err(Problem::Doors)? else {
            return Ok(Offered::None);
        };
        if launch.passes() {
            let passage = pass::passage().map_err(|e| Problem::Start(e.to_string()))?;
            return Ok(Offered::Passed { layout, passage });
        }
        let (exchange, knocks, missing) = Exchange::new(layout.doors.clone());
        Ok(Offered::Relayed { layout, exchange, knocks, missing })
    }

    /// What comes along with the launch.
    pub(crate) fn passage(&self) -> Option<&OwnedFd> {
        match self {
            Offered::Passed { passage: (_, theirs), .. } => Some(theirs),
            Offered::None | Offered::Relayed { .. } => None,
        }
    }

    /// What the channel carries besides.
    pub(crate) fn exchange(&self) -> Option<Arc<Exchange>> {
        match self {
            Offered::None | Offered::Passed { .. } => None,
            Offered::Relayed { exchange, .. } => Some(Arc::clone(exchange)),
        }
    }

    /// Takes the sockets that were passed out.
    pub(crate) fn open(self) -> io::Result<Option<Way>> {
        match self {
            Offered::None => Ok(None),
            Offered::Passed { layout, passage: (ours, theirs) } => {
                drop(theirs);
                let sockets = pass::receive(&ours, &layout)?;
                let (accepting, knocks, missing) = Accepting::new(&layout, sockets)?;
                Ok(Some(Way { accepting: Some(accepting), knocks, missing }))
            }
            Offered::Relayed { knocks, missing, .. } => Ok(Some(Way { accepting: None, knocks, missing })),
        }
    }

    /// What way out there is, as the report tells it.
    pub(crate) fn layer(&self, granted: &Doors) -> Layer {
        let told = |state, detail: String| Layer { name: "egress", state, detail };
        let (layout, how) = match self {
            Offered::None if granted.is_empty() => return told(LayerState::Full, "none granted".to_owned()),
            Offered::None => {
                let detail = "no way inside for what is granted: no socket can be made here";
                return told(LayerState::None, detail.to_owned());
            }
            Offered::Passed { layout, .. } => (layout, "sockets passed out to the executor"),
            Offered::Relayed { layout, .. } => (layout, "relayed over the channel"),
        };
        let names = layout.hosts.len();
        let stars = match layout.pool.len() {
            0 => String::new(),
            pool => format!(", {pool} for stars"),
        };
        let detail = format!(
            "only through the executor, {how}: the proxy 127.0.0.1:{PROXY_PORT}, and {names} address(es) of granted \
             names{stars}"
        );
        told(LayerState::Full, detail)
    }
}
