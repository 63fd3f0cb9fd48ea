//! Any bytes as a question to the resolver inside: nothing panics, and the answer is short and always the same.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| sandbox::fuzz::question(bytes));
