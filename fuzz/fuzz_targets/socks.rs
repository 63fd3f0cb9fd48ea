//! Any bytes as a request of SOCKS: read alike however it is cut, and what it names is a host as any other.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| egress::fuzz::socks(bytes));
