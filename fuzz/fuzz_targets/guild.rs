//! Any bytes as a Guild, or as two: nothing panics, what is told is clean, and findings and order say the same.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| policy::fuzz::guild(bytes));
