//! The one protocol between the executor and a guest's init: frames over a byte stream.
//!
//! ```text
//!   length u32 LE │ kind u8 │ call u32 LE │ payload (length - 5 bytes)
//! ```
//!
//! Both ends are this program, yet the executor trusts nothing that arrives: lengths are bounded before a byte
//! is stored, unknown kinds end the channel, and a payload is only ever raw output or small JSON.

use std::ops::Range;

use policy::StoppedBy;
use serde::{Deserialize, Serialize};

use crate::launch::Bounds;
use crate::wasm::{Proven, Struck};
use crate::{Ended, Job, Usage};

/// Largest payload of a frame. A `Start` carries the whole standard input, so this bounds it too.
pub(crate) const MAX_PAYLOAD: usize = 2 << 20;
/// Largest piece of output in one frame.
pub(crate) const PIECE: usize = 64 << 10;
/// Bytes before the payload.
pub(crate) const HEAD: usize = 9;

/// What a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// To the guest: JSON [`Start`], a newline, then the standard input.
    Start,
    /// To the guest: kill everything the call started.
    Kill,
    /// To the guest: kill what calls that are over left running; JSON [`StoppedBy`], the bound that was passed.
    Sweep,
    /// To a machine's init, once: end, and have the workspace written out.
    Collect,
    /// From the guest, once: JSON [`Hello`].
    Hello,
    /// From the guest: standard output.
    Stdout,
    /// From the guest: standard error.
    Stderr,
    /// From the guest, once per call: JSON [`End`].
    End,
    /// From the guest, where a grant opens a way: a connection to a door, under a number of its own; see `doors`.
    Knock,
    /// From the guest, where a grant opens a way: a question to its resolver that came to nothing; see `doors`.
    Missed,
    /// Both ways: bytes of a connection.
    Data,
    /// Both ways: no more bytes come in this direction.
    Finish,
    /// Both ways: so many more bytes are taken, as a number of four bytes.
    Credit,
    /// Both ways, once: nothing more is said or heard.
    Close,
}

/// A frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: Kind,
    pub(crate) call: u32,
    pub(crate) payload: Vec<u8>,
}

/// What init is to start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Start {
    pub(crate) job: Job,
    #[serde(default)]
    pub(crate) own: Own,
    /// The workspace is beyond its bound: not a byte more goes into a file.
    #[serde(default)]
    pub(crate) full: bool,
}

/// What a call may take beside what the sandbox may; see [`crate::CallBounds`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Own {
    /// Processor time in milliseconds.
    pub(crate) cpu_ms: Option<u64>,
    pub(crate) memory: Option<u64>,
    pub(crate) processes: Option<u64>,
    /// Only where the disk is the guest's alone, and nobody outside can look at it.
    pub(crate) disk: Option<u64>,
}

impl Start {
    /// The bounds of this call. Where a process that waits for a processor is counted as one that uses it, each of its
    /// threads may wait all the time that the sandbox may use: its limit is the last resort, and others hold the sum.
    pub(crate) fn bounds(&self, sandbox: &Bounds, waiting_counts: bool) -> Bounds {
        let own = self.own.cpu_ms.map_or(sandbox.cpu_s, |ms| ms.div_ceil(1000).clamp(1, sandbox.cpu_s));
        let cpu_s = match waiting_counts {
            true => sandbox.cpu_s.saturating_mul(sandbox.processes.max(1).into()),
            false => own,
        };
        let file_bytes = if self.full { 0 } else { sandbox.file_bytes };
        Bounds { cpu_s, file_bytes, ..sandbox.clone() }
    }
}

/// How a call ended, in the guest's word.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct End {
    pub(crate) ended: Ended,
    pub(crate) usage: Usage,
    /// Processes left running on purpose.
    pub(crate) background: u32,
    /// The guest's own process bound struck.
    pub(crate) too_many_processes: bool,
    /// The guest's own memory bound struck, or its own kernel killed for memory.
    #[serde(default)]
    pub(crate) out_of_memory: bool,
    /// The call's or the sandbox's processor time is used up, as init adds it up.
    #[serde(default)]
    pub(crate) out_of_cpu: bool,
    /// The guest has filled a disk that is its own.
    #[serde(default)]
    pub(crate) disk_full: bool,
    /// It has filled more of it than the call may.
    #[serde(default)]
    pub(crate) out_of_disk: bool,
    /// A bound of the module struck.
    #[serde(default)]
    pub(crate) struck: Option<Struck>,
    /// The bound that ended what earlier calls had left running, if one did since the last end.
    #[serde(default)]
    pub(crate) leftovers: Option<StoppedBy>,
    /// Whose a kill for memory is that was counted while it ran.
    #[serde(default)]
    pub(crate) kills: Whose,
    /// And a refused fork.
    #[serde(default)]
    pub(crate) refusals: Whose,
}

/// Whose doing it is what a kernel counts for all of a sandbox, as far as init can tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Whose {
    /// The call's.
    #[default]
    Its,
    /// That of what earlier calls left running.
    Left,
    /// Another call's.
    Others,
}

/// What init measured about itself before any guest code ran.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hello {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Supplementary groups: those of the executor's user that it may not give up.
    #[serde(default)]
    pub(crate) groups: u32,
    /// `CapEff` and `CapBnd` of `/proc/self/status`, as numbers.
    pub(crate) caps_effective: u64,
    pub(crate) caps_bounding: u64,
    pub(crate) no_new_privs: bool,
    /// Filters that took (`/proc/self/status` says so in a kernel of Linux's own).
    pub(crate) seccomp: bool,
    /// How many of them one upon the other; none where the kernel does not tell.
    #[serde(default)]
    pub(crate) filters: Option<u64>,
    /// Bytes that `/tmp` and `/dev/shm` can hold, as their file systems say.
    #[serde(default)]
    pub(crate) tmp: [u64; 2],
    /// Bytes that the workspace's file system can hold.
    #[serde(default)]
    pub(crate) disk: u64,
    /// Bytes of memory that this kernel has.
    #[serde(default)]
    pub(crate) memory: u64,
    /// Processors that it may run on.
    #[serde(default)]
    pub(crate) cores: u32,
    /// Network interfaces.
    pub(crate) interfaces: Vec<String>,
    /// `uname -r`, and the kernel's own banner where it tells gVisor from Linux.
    pub(crate) kernel: String,
    pub(crate) gvisor: bool,
    /// `ls` and `stat` work: `statx` with the flag that coreutils pass. Mended where init could.
    pub(crate) statx: Mend,
    /// `ls -l` of a link works: `lgetxattr` on a link.
    pub(crate) link_xattr: Mend,
    /// A process can be the reaper of what its children leave.
    pub(crate) subreaper: bool,
    /// A process that init started, with the guest's id, was killed by it.
    #[serde(default)]
    pub(crate) kills: bool,
    /// Landlock as the kernel reported it, `none` where there is none.
    pub(crate) landlock: String,
    /// The version that the kernel offered.
    #[serde(default)]
    pub(crate) landlock_version: i64,
    /// Bytes that a core file may have: what tells the kernel whether to start a handler for a crash.
    #[serde(default)]
    pub(crate) core_limit: u64,
    /// Processes that its user may have, by rlimit.
    #[serde(default)]
    pub(crate) processes_limit: u64,
    /// Bytes that a socket of TCP may hold, in both directions together.
    #[serde(default)]
    pub(crate) tcp: u64,
    /// A write to the system's part of the view was refused.
    pub(crate) root_read_only: bool,
    /// Folders of the host that no program needs cannot be listed.
    pub(crate) outside_closed: bool,
    /// No socket can be made but pairs.
    pub(crate) no_sockets: bool,
    /// The process above init, which has the same ids, cannot be signalled.
    pub(crate) signals_scoped: bool,
    /// A group of the guest's own kernel bounds its processes and memory.
    #[serde(default)]
    pub(crate) own_group: bool,
    /// Mount points, for the record.
    pub(crate) mounts: u32,
    /// What was seen of the engine for modules, where they run here.
    #[serde(default)]
    pub(crate) modules: Option<Proven>,
}

/// A fault of an engine, and whether init could mend it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Mend {
    /// No fault.
    #[default]
    Sound,
    /// A fault, closed by a filter.
    Mended,
    /// A fault that stays.
    Broken,
}

/// Bytes that are no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WireError {
    #[error("a frame of {0} bytes, more than is ever sent")]
    TooLong(usize),
    #[error("a frame too short to have a head")]
    TooShort,
    #[error("a frame of unknown kind {0}")]
    UnknownKind(u8),
}

impl Kind {
    fn code(self) -> u8 {
        match self {
            Kind::Start => 1,
            Kind::Kill => 2,
            Kind::Collect => 3,
            Kind::Sweep => 4,
            Kind::Hello => 16,
            Kind::Stdout => 17,
            Kind::Stderr => 18,
            Kind::End => 19,
            Kind::Knock => 32,
            Kind::Data => 33,
            Kind::Finish => 34,
            Kind::Credit => 35,
            Kind::Close => 36,
            Kind::Missed => 37,
        }
    }

    fn from_code(code: u8) -> Option<Kind> {
        [
            Kind::Start,
            Kind::Kill,
            Kind::Collect,
            Kind::Sweep,
            Kind::Hello,
            Kind::Stdout,
            Kind::Stderr,
            Kind::End,
            Kind::Knock,
            Kind::Data,
            Kind::Finish,
            Kind::Credit,
            Kind::Close,
            Kind::Missed,
        ]
        .into_iter()
        .find(|k| k.code() == code)
    }
}

impl Frame {
    pub(crate) fn new(kind: Kind, call: u32, payload: Vec<u8>) -> Frame {
        Frame { kind, call, payload }
    }

    /// The frame as bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        [&head(self.kind, self.call, self.payload.len()), self.payload.as_slice()].concat()
    }
}

/// What stands before a payload of this length.
pub(crate) fn head(kind: Kind, call: u32, payload: usize) -> [u8; HEAD] {
    let length = u32::try_from(payload + HEAD - 4).unwrap_or(u32::MAX);
    let mut head = [0; HEAD];
    head[..4].copy_from_slice(&length.to_le_bytes());
    head[4] = kind.code();
    head[5..].copy_from_slice(&call.to_le_bytes());
    head
}

/// A frame that lies where it was read, until more is.
#[derive(Debug)]
pub(crate) struct Seen {
    pub(crate) kind: Kind,
    pub(crate) call: u32,
    pub(crate) payload: Range<usize>,
}

/// Bytes as they arrive, and the frames in them. Holds at most one frame and one read.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    bytes: Vec<u8>,
    /// Where those begin that were not yet taken, and where they end.
    from: usize,
    to: usize,
}

impl Decoder {
    /// Takes bytes as they arrived.
    #[cfg(any(test, feature = "fuzz"))]
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.space(bytes.len())[..bytes.len()].copy_from_slice(bytes);
        self.came(bytes.len());
    }

    /// Where at least so many bytes can be read to.
    pub(crate) fn space(&mut self, bytes: usize) -> &mut [u8] {
        self.bytes.copy_within(self.from..self.to, 0);
        (self.from, self.to) = (0, self.to - self.from);
        if self.bytes.is_empty() {
            // Of pages that the kernel gives when they are first written to.
            self.bytes = vec![0; bytes];
        } else if self.bytes.len() < self.to + bytes {
            self.bytes.resize(self.to + bytes, 0);
        }
        &mut self.bytes[self.to..]
    }

    /// So many bytes are there now.
    pub(crate) fn came(&mut self, bytes: usize) {
        self.to += bytes;
    }

    /// The next whole frame, if there is one.
    pub(crate) fn next(&mut self) -> Result<Option<Frame>, WireError> {
        Ok(self.look()?.map(|seen| self.frame(seen)))
    }

    /// A frame that was seen, to keep.
    pub(crate) fn frame(&self, Seen { kind, call, payload }: Seen) -> Frame {
        Frame::new(kind, call, self.bytes[payload].to_vec())
    }

    /// What payloads are parts of.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The same in place.
    pub(crate) fn look(&mut self) -> Result<Option<Seen>, WireError> {
        let rest = &self.bytes[self.from..self.to];
        let Some(head) = rest.first_chunk::<4>() else { return Ok(None) };
        let length = usize::try_from(u32::from_le_bytes(*head)).unwrap_or(usize::MAX);
        if length < HEAD - 4 {
            return Err(WireError::TooShort);
        }
        if length > MAX_PAYLOAD + HEAD - 4 {
            return Err(WireError::TooLong(length));
        }
        // The kind is judged before the payload is waited for: rubbish ends the channel at once.
        if let Some(code) = rest.get(4) {
            Kind::from_code(*code).ok_or(WireError::UnknownKind(*code))?;
        }
        let Some(body) = rest.get(4..4 + length) else { return Ok(None) };
        let kind = Kind::from_code(body[0]).ok_or(WireError::UnknownKind(body[0]))?;
        let call = u32::from_le_bytes([body[1], body[2], body[3], body[4]]);
        let payload = self.from + HEAD..self.from + 4 + length;
        self.from += 4 + length;
        Ok(Some(Seen { kind, call, payload }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_survives_the_wire_in_pieces_of_any_size() {
        let frames = [
            Frame::new(Kind::Start, 7, b"hello".to_vec()),
            Frame::new(Kind::Stdout, u32::MAX, vec![0; 3000]),
            Frame::new(Kind::Kill, 0, Vec::new()),
        ];
        let bytes: Vec<u8> = frames.iter().flat_map(Frame::encode).collect();
        for size in [1, 2, 3, 7, 64, 4096] {
            let mut decoder = Decoder::default();
            let mut seen = Vec::new();
            for piece in bytes.chunks(size) {
                decoder.push(piece);
                while let Some(frame) = decoder.next().unwrap() {
                    seen.push(frame);
                }
            }
            assert_eq!(seen, frames, "pieces of {size}");
        }
    }

    #[test]
    fn frames_that_were_seen_stay_where_they_are_until_more_is_read() {
        let frames = [Frame::new(Kind::Data, 1, vec![1; 300]), Frame::new(Kind::Data, 1, vec![2; 5])];
        let mut decoder = Decoder::default();
        decoder.push(&frames.iter().flat_map(Frame::encode).collect::<Vec<u8>>());
        let seen: Vec<Seen> = std::iter::from_fn(|| decoder.look().unwrap()).collect();
        assert_eq!(seen.into_iter().map(|seen| decoder.frame(seen)).collect::<Vec<_>>(), frames);
    }

    #[test]
    fn a_length_beyond_the_bound_is_refused_before_anything_is_stored() {
        let mut decoder = Decoder::default();
        decoder.push(&u32::MAX.to_le_bytes());
        assert!(matches!(decoder.next(), Err(WireError::TooLong(_))));
    }

    #[test]
    fn a_short_length_and_an_unknown_kind_are_refused() {
        let mut decoder = Decoder::default();
        decoder.push(&[4, 0, 0, 0, 1]);
        assert_eq!(decoder.next(), Err(WireError::TooShort));
        let mut decoder = Decoder::default();
        decoder.push(&[9, 0, 0, 0, 99]);
        assert_eq!(decoder.next(), Err(WireError::UnknownKind(99)));
    }

    #[test]
    fn no_bytes_at_all_make_the_decoder_panic_or_grow() {
        // A small linear-congruential generator: the same rubbish every time.
        let mut state = 0x2545_f491_u32;
        for _ in 0..2000 {
            let mut decoder = Decoder::default();
            for _ in 0..16 {
                let mut piece = [0u8; 16];
                for b in &mut piece {
                    state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    *b = state.to_le_bytes()[3];
                }
                decoder.push(&piece);
                if decoder.next().is_err() {
                    break;
                }
            }
            assert!(decoder.bytes.len() <= 16 * 16);
        }
    }
}
