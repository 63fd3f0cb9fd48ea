//! A `runsc` that is there and is none. Static programs of a few instructions, because nothing else starts inside
//! the wall: a dynamic one would only show that its loader is missing.

use std::os::unix::fs::PermissionsExt;
use std::time::Instant;

use super::without_engine;
use crate::raw::program;

/// `pause` for ever.
const HANGS: &[u8] = &[0xb8, 34, 0, 0, 0, 0x0f, 0x05, 0xeb, 0xf7];

/// Writes this to its standard output, where init's first word should come, then does the rest.
fn says(words: &[u8], then: &[u8]) -> Vec<u8> {
    // lea rsi, [rip + to the words]; edi = 1; edx = length; eax = 1 (write); syscall
    let after = 7 + 5 + 5 + 5 + 2;
    let mut code = vec![0x48, 0x8d, 0x35];
    code.extend(u32::try_from(after - 7 + then.len()).unwrap().to_le_bytes());
    code.extend([0xbf, 1, 0, 0, 0, 0xba]);
    code.extend(u32::try_from(words.len()).unwrap().to_le_bytes());
    code.extend([0xb8, 1, 0, 0, 0, 0x0f, 0x05]);
    code.extend(then);
    code.extend(words);
    code
}

fn refused(code: &[u8], reason: &str, remedy: &str) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let path = folder.path().join("runsc");
    crate::inside::put_program(&program(code), &path);
    let told = without_engine::<&str>(&[], &["gvisor"], path.to_str().unwrap());
    told.refused("gvisor", reason, remedy);
}

#[test]
fn r57_an_engine_that_hangs_is_given_up() {
    let began = Instant::now();
    refused(HANGS, "did not answer within", "another");
    assert!(began.elapsed().as_secs() >= 29);
}

#[test]
fn r57_an_engine_that_ends_without_a_word_is_refused() {
    // exit(0)
    refused(&[0x31, 0xff, 0xb8, 60, 0, 0, 0, 0x0f, 0x05], "without a word", "runsc");
}

/// An answer that is none of init's ends it at once, whatever the engine does then.
#[test]
fn r57_an_engine_that_answers_with_something_else_is_refused() {
    refused(&says(b"{\"everything\": \"is fine\"}\n\n\n\n\n\n", HANGS), "gvisor", "");
}

#[test]
fn r57_an_engine_that_is_not_there_is_refused_and_auto_takes_less_only_aloud() {
    let told = without_engine::<&str>(&[], &["gvisor", "auto"], "/nonexistent/runsc");
    assert!(told.of("gvisor")["reason"].is_string());
    told.works("auto", "namespace");
}
