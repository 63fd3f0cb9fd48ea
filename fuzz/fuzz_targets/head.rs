//! Any bytes as heads and bodies of HTTP: what is sent on is the one request that was read.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| egress::fuzz::head(bytes));
