//! Any bytes as a host, a rule, the address of a page: one spelling, and never two meanings.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| egress::fuzz::host(bytes));
