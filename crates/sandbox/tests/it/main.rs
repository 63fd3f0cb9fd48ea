//! Claims about the boxes, each shown on every tier of this version. Run by `scripts/test`, which brings `runsc`.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod absent;
mod calls;
mod confined;
mod files;
mod hiding;
mod inside;
mod limits;
mod lost;
#[cfg(feature = "wasm")]
mod modules;
mod raw;
mod refusal;
mod teardown;
mod told;
mod view;
mod walls;

pub(crate) use inside::{Inside, helper, host, own, plan, runtime, shell};

/// The tiers that a claim which needs more than one look is shown on, one after the other.
pub(crate) const TIERS: [policy::Tier; 3] =
    [policy::Tier::Confined, policy::Tier::Namespace, policy::Tier::Gvisor];

/// Runs a claim on each tier, as a test of its own. A claim that the confined tier cannot make says why not.
macro_rules! on_every_tier {
    ($($(#[$doc:meta])* $(not_confined($why:literal))? fn $claim:ident($inside:ident: &Inside) $body:block)*) => {$(
        $(#[$doc])*
        fn $claim($inside: &crate::Inside) $body

        mod $claim {
            #[test]
            fn namespace() {
                super::$claim(&crate::Inside::new(policy::Tier::Namespace));
            }

            #[test]
            fn gvisor() {
                super::$claim(&crate::Inside::new(policy::Tier::Gvisor));
            }

            crate::on_confined!($claim $($why)?);
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
pub(crate) use on_confined;
pub(crate) use on_every_tier;
