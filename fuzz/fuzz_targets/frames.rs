//! Any bytes as frames of a guest that has a grant: nothing panics, and what is held stays within its bounds.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sandbox::fuzz::frames(bytes));
