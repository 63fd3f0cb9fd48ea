//! Any bytes as a TLS hello: read alike however it is cut, and no other name passes the gate.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| egress::fuzz::hello(bytes));
