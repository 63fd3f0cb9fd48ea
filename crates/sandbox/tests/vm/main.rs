//! Claims about the tier `microvm`, where QEMU is its processor too. Run by `scripts/test`, which brings QEMU and
//! the guest's kernel; apart from the others because an emulated machine takes seconds to start.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../it/bounds.rs"]
mod bounds;
#[path = "../it/calls.rs"]
mod calls;
#[expect(dead_code, reason = "some of it serves claims that are not asked of a machine")]
#[path = "../it/egress.rs"]
mod egress;
#[path = "../it/files.rs"]
mod files;
#[path = "../it/hiding.rs"]
mod hiding;
#[expect(dead_code, reason = "bubblewrap is asked beside the other tiers")]
#[path = "../it/inside.rs"]
mod inside;
mod machine;
#[path = "../it/per_call.rs"]
mod per_call;
#[path = "../it/raw.rs"]
mod raw;
#[path = "../it/teardown.rs"]
mod teardown;
#[path = "../it/terminal.rs"]
mod terminal;
#[path = "../it/told.rs"]
mod told;
#[path = "../it/usual.rs"]
mod usual;
#[path = "../it/view.rs"]
mod view;

pub(crate) use inside::{Inside, own, shell};

/// The tiers that a claim which needs more than one look is shown on, one after the other.
pub(crate) const TIERS: [policy::Tier; 1] = [policy::Tier::Microvm];

/// Runs a claim on the one tier of this binary, as a test of its own. What the confined tier cannot make is
/// nothing to it.
macro_rules! on_every_tier {
    ($($(#[$doc:meta])* $(not_confined($why:literal))? $(no_machine($not:literal))? $(bubblewrap($($reference:tt)*))? fn $claim:ident($inside:ident: &Inside) $body:block)*) => {$(
        $(#[$doc])*
        fn $claim($inside: &crate::Inside) $body

        mod $claim {
            crate::on_microvm!($claim $($not)?);
        }
    )*};
}
macro_rules! on_microvm {
    ($claim:ident) => {
        #[test]
        fn microvm() {
            super::$claim(&crate::Inside::new(policy::Tier::Microvm));
        }
    };
    ($claim:ident $why:literal) => {
        const _: (&str, fn(&crate::Inside)) = ($why, super::$claim);
    };
}
pub(crate) use {on_every_tier, on_microvm};

/// Runs claims about what is granted, one after the other in one machine: it takes seconds to start, and so does much in
/// it. Only those that say so; the others would show the same code again.
macro_rules! on_every_way {
    ($($(#[$doc:meta])* $(on_a_machine($why:literal))? fn $claim:ident($open:ident: &Open) $body:block)*) => {
        $(crate::on_a_machine! { ($($why)?) fn $claim($open) $body })*

        #[test]
        fn what_is_granted_and_nothing_else_is_reached_from_a_machine() {
            let open = Open::new(policy::Tier::Microvm);
            $(crate::on_a_machine! { ($($why)?) $claim(&open) })*
        }
    };
}
macro_rules! on_a_machine {
    (($why:literal) fn $claim:ident($open:ident) $body:block) => {
        const _: &str = $why;
        fn $claim($open: &Open) $body
    };
    (($why:literal) $claim:ident($open:expr)) => {
        $claim($open);
    };
    ($($other:tt)*) => {};
}
pub(crate) use on_a_machine;
pub(crate) use on_every_way;
