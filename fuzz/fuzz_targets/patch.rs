//! Two texts, parted by the first byte 255: the patch between them leads from one to the other.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| runs::fuzz::patch(bytes));
