//! Error numbers of WASI preview 1.

use rustix::io::Errno as System;

/// What a call of a module is answered with when it fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Errno(pub(super) u16);

impl Errno {
    pub(super) const BADF: Errno = Errno(8);
    pub(super) const FAULT: Errno = Errno(21);
    pub(super) const ILSEQ: Errno = Errno(25);
    pub(super) const INVAL: Errno = Errno(28);
    pub(super) const ISDIR: Errno = Errno(31);
    pub(super) const MFILE: Errno = Errno(33);
    pub(super) const NAMETOOLONG: Errno = Errno(37);
    pub(super) const NOENT: Errno = Errno(44);
    pub(super) const NOTDIR: Errno = Errno(54);
    pub(super) const NOTSOCK: Errno = Errno(57);
    pub(super) const NOTSUP: Errno = Errno(58);
    pub(super) const OVERFLOW: Errno = Errno(61);
    pub(super) const SPIPE: Errno = Errno(70);
    pub(super) const NOTCAPABLE: Errno = Errno(76);
}

impl From<System> for Errno {
    fn from(e: System) -> Errno {
        Errno(match e {
            System::TOOBIG => 1,
            System::ACCESS => 2,
            System::AGAIN => 6,
            System::BADF => 8,
            System::BUSY => 10,
            System::DQUOT => 19,
            System::EXIST => 20,
            System::FAULT => 21,
            System::FBIG => 22,
            System::ILSEQ => 25,
            System::INTR => 27,
            System::INVAL => 28,
            System::ISDIR => 31,
            System::LOOP => 32,
            System::MFILE => 33,
            System::MLINK => 34,
            System::NAMETOOLONG => 37,
            System::NFILE => 41,
            System::NOENT => 44,
            System::NOMEM => 48,
            System::NOSPC => 51,
            System::NOTDIR => 54,
            System::NOTEMPTY => 55,
            System::NOTSUP => 58,
            System::OVERFLOW => 61,
            System::PERM => 63,
            System::PIPE => 64,
            System::ROFS => 69,
            System::SPIPE => 70,
            System::STALE => 72,
            System::TXTBSY => 74,
            // A name that leads out of the folder it was looked up in.
            System::XDEV => 76,
            _ => 29,
        })
    }
}
