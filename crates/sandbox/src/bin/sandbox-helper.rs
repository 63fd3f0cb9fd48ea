//! The helper of this crate's own tests: forker and init, as in the shipped program.

fn main() {
    sandbox::helper_main();
}
