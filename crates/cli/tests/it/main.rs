//! The program from outside: everything here is shown with the binary itself, real sandboxes and real HTTP.
//!
//! `scripts/test` installs and starts what these tests need; a test that misses it says so.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on fails")]

mod absent;
mod apply;
mod attacked;
mod bounds;
mod branch;
#[cfg(feature = "wasm")]
mod branches;
mod cases;
mod endpoint;
mod ends;
mod exec;
mod foundry;
mod gate;
mod guide;
mod hostile;
mod input;
mod life;
mod model;
#[cfg(feature = "wasm")]
mod modules;
mod network;
mod place;
mod process;
mod proposal;
mod prove;
mod records;
mod resume;
mod roles;
mod secrets;
mod terminal;
mod tidy;
mod tiers;
mod workspace;

use place::{Place, Who};

/// Runs a claim on each tier, as root's own program and as an ordinary user's, each as a test of its own.
macro_rules! everywhere {
    ($($(#[$doc:meta])* fn $claim:ident($place:ident: &Place) $body:block)*) => {$(
        $(#[$doc])*
        fn $claim($place: &crate::Place) $body

        mod $claim {
            #[test]
            fn namespace() {
                super::$claim(&crate::Place::new("namespace", crate::Who::Own));
            }

            #[test]
            fn gvisor() {
                super::$claim(&crate::Place::new("gvisor", crate::Who::Own));
            }

            #[test]
            fn namespace_as_an_ordinary_user() {
                super::$claim(&crate::Place::new("namespace", crate::Who::Ordinary));
            }

            #[test]
            fn gvisor_as_an_ordinary_user() {
                super::$claim(&crate::Place::new("gvisor", crate::Who::Ordinary));
            }
        }
    )*};
}
pub(crate) use everywhere;

/// A variable that `scripts/test` declares.
pub(crate) fn declared(name: &str) -> String {
    match std::env::var(name) {
        Ok(value) if !value.is_empty() => value,
        _ => panic!("{name} is not set: run the tests by scripts/test, which prepares what it names"),
    }
}
