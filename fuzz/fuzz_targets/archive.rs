//! Any bytes as a tar, a gzipped tar and a zip: nothing panics, hangs, or touches what is outside the folder.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(dir) = tempfile::tempdir() else { return };
    runs::fuzz::archive(bytes, dir.path());
});
