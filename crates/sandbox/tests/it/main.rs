//! Claims about the boxes, each shown on every tier of this version. Run by `scripts/test`, which brings `runsc`.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod absent;
mod bounds;
mod calls;
mod confined;
mod doors;
mod egress;
mod engines;
mod files;
mod groups;
mod hiding;
mod inside;
mod limits;
mod lost;
#[cfg(feature = "wasm")]
mod modules;
mod open_files;
mod per_call;
mod raw;
mod refusal;
mod sums;
mod teardown;
mod terminal;
mod told;
mod usual;
mod view;
mod walls;

pub(crate) use inside::{Inside, helper, host, own, plan, runtime, shell};

/// The tiers that a claim which needs more than one look is shown on, one after the other.
pub(crate) const TIERS: [policy::Tier; 3] =
    [policy::Tier::Confined, policy::Tier::Namespace, policy::Tier::Gvisor];

/// Runs a claim on each tier, as a test of its own. A claim that the confined tier cannot make says why not. Those of
/// one command and what it sees are asked of bubblewrap too, as the reference: `bubblewrap(holds)`, or
/// `bubblewrap(differs: "why")`, and then it must. The others are about calls that live on, bounds, or tools for
/// files, which it has not.
macro_rules! on_every_tier {
    ($($(#[$doc:meta])* $(not_confined($why:literal))? $(no_machine($not:literal))? $(bubblewrap($($reference:tt)*))? fn $claim:ident($inside:ident: &Inside) $body:block)*) => {$(
        $(#[$doc])*
        fn $claim($inside: &crate::Inside) $body

        mod $claim {
            $(const _: &str = $not;)?

            #[test]
            fn namespace() {
                super::$claim(&crate::Inside::new(policy::Tier::Namespace));
            }

            #[test]
            fn gvisor() {
                super::$claim(&crate::Inside::new(policy::Tier::Gvisor));
            }

            crate::on_confined!($claim $($why)?);
            $(crate::on_bubblewrap!($claim $($reference)*);)?
        }
    )*};
}
macro_rules! on_confined {
    ($claim:ident) => {
        #[test]
        fn confined() {
            super::$claim(&crate::Inside::new(policy::Tier::Confined));
        }
    };
    ($claim:ident $why:literal) => {
        const _: &str = $why;
    };
}
macro_rules! on_bubblewrap {
    ($claim:ident holds) => {
        #[test]
        fn bubblewrap() {
            super::$claim(&crate::Inside::in_bubblewrap());
        }
    };
    ($claim:ident differs: $why:literal) => {
        #[test]
        #[should_panic]
        fn bubblewrap() {
            const _: &str = $why;
            super::$claim(&crate::Inside::in_bubblewrap());
        }
    };
}
/// Runs a claim about what is granted on each tier that offers a way, in a sandbox of its own; those that say so on a
/// machine as well, see there.
macro_rules! on_every_way {
    ($($(#[$doc:meta])* $(on_a_machine($why:literal))? fn $claim:ident($open:ident: &Open) $body:block)*) => {$(
        $(#[$doc])*
        pub(crate) fn $claim($open: &Open) $body

        mod $claim {
            #[test]
            fn namespace() {
                super::$claim(&super::Open::new(policy::Tier::Namespace));
            }

            #[test]
            fn gvisor() {
                super::$claim(&super::Open::new(policy::Tier::Gvisor));
            }
        }
    )*};
}
pub(crate) use on_bubblewrap;
pub(crate) use on_confined;
pub(crate) use on_every_tier;
pub(crate) use on_every_way;
