//! Any bytes as a name, the target of a link, a list of git's, a manifest: nothing panics, and what is shown is clean.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| runs::fuzz::path(bytes));
