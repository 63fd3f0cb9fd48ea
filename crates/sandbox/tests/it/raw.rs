//! Programs of a few instructions, without a loader, a library or a resolver: what only the kernel can refuse.

use std::net::TcpListener;

use crate::{on_every_tier, own};

/// A program for x86-64 that holds this code.
pub(crate) fn program(code: &[u8]) -> Vec<u8> {
    let size = 120 + code.len() as u64;
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    file.extend([2, 0, 62, 0, 1, 0, 0, 0]);
    for number in [0x40_0078_u64, 64, 0] {
        file.extend(number.to_le_bytes());
    }
    file.extend([0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 0, 0, 0, 0, 0, 0]);
    file.extend([1, 0, 0, 0, 5, 0, 0, 0]);
    for number in [0, 0x40_0000, 0x40_0000, size, size, 4096] {
        file.extend(number.to_le_bytes());
    }
    file.extend(code);
    file
}

/// Connects to this port of the loopback by system calls alone; exits with the error number, 0 when connected.
fn connects(port: u16) -> Vec<u8> {
    let mut code = vec![0xb8, 41, 0, 0, 0, 0xbf, 2, 0, 0, 0, 0xbe, 1, 0, 0, 0, 0x31, 0xd2, 0x0f, 0x05];
    // edi = socket; rsi = the address, 19 bytes on; edx = 16; eax = 42 (connect); syscall; exit(-eax)
    code.extend([
        0x89, 0xc7, 0x48, 0x8d, 0x35, 23, 0, 0, 0, 0xba, 16, 0, 0, 0, 0xb8, 42, 0, 0, 0, 0x0f, 0x05,
    ]);
    code.extend([0x89, 0xc7, 0xf7, 0xdf, 0xb8, 60, 0, 0, 0, 0x0f, 0x05]);
    code.extend([2, 0]);
    code.extend(port.to_be_bytes());
    code.extend([127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    program(&code)
}

on_every_tier! {
    /// R48: no library is asked, so only a wall below the program can hold it.
    bubblewrap(holds)
    fn r48_a_static_program_that_calls_the_kernel_itself_reaches_nothing(inside: &Inside) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let path = inside.workspace().join("raw");
        crate::inside::put_program(&connects(listener.local_addr().unwrap().port()), &path);
        own(&path);
        // The control: outside it connects.
        #[expect(clippy::disallowed_methods, reason = "the control runs on the host, in a process of its own")]
        let outside = std::process::Command::new(&path).status().unwrap();
        assert_eq!(outside.code(), Some(0));
        drop(listener.accept().unwrap());
        let ran = inside.sh("./raw");
        let refused = matches!(ran.outcome.ended, sandbox::Ended::Exit(code) if code != 0);
        assert!(refused, "{:?} {}", ran.outcome, ran.err);
        listener.set_nonblocking(true).unwrap();
        assert!(listener.accept().is_err());
    }
}
