//! A terminal for a program that wants one.
//!
//! ```text
//!   pipes of the call ◀──▶ the call's first process ◀──▶ pty ◀──▶ the program, leader of the terminal's session
//! ```
//!
//! Both are of the guest. The one in between moves bytes and ends as the program ended, so that the supervisor sees
//! what it always sees; nothing that the executor relies on depends on it. Nobody sits in front: nothing is echoed,
//! lines end as they were written, and after the input comes end-of-file.

use std::ffi::CStr;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;
use rustix::termios::{LocalModes, OptionalActions, OutputModes, SpecialCodeIndex, Winsize};

use crate::Ended;
use crate::launch::{Place, Walls};
use crate::sys::{self, Fork};

/// What programs take for granted where nobody says otherwise.
const SIZE: Winsize = Winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
/// How often is looked whether the program has ended, while a process that it left has the terminal open.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
/// Longest line that a terminal takes; after as much it must be told to hand on what it has.
const LINE: usize = 4_000;
/// How soon end-of-file is said again to a program that has not ended.
const AGAIN: Duration = Duration::from_millis(200);
/// How long is read on after the program has ended.
const DRAIN: Duration = Duration::from_millis(200);
const BUFFER: usize = 16 << 10;

/// Comes back in a new process whose three streams are a terminal; this one stays in between and never comes back.
/// Its three streams are the call's, and it has no other descriptor.
pub(super) fn between(place: &Place) -> io::Result<()> {
    if place.walls == Walls::Shared {
        // The host's terminals are not the guest's.
        return Err(io::Error::other("the tier `confined` has none; use `namespace`, `gvisor` or `microvm`"));
    }
    let (host, end) = open()?;
    let end_of_file = end_of_file(&end)?;
    match sys::fork()? {
        Fork::Child => {
            drop(host);
            sys::new_session()?;
            rustix::process::ioctl_tiocsctty(&end)?;
            for number in 0..3 {
                sys::place_fd(end.as_raw_fd(), number)?;
            }
            // Closed with the rest.
            std::mem::forget(end);
            sys::close_from(3);
            Ok(())
        }
        Fork::Parent(program) => {
            drop(end);
            let typed = Typed { end_of_file, line: 0 };
            end_as(Between { host, typed, left: Vec::new(), open: true, said: None }.until_gone(program))
        }
    }
}

/// A pair, set for a program with nobody in front of it.
fn open() -> io::Result<(OwnedFd, OwnedFd)> {
    let flags = rustix::pty::OpenptFlags::RDWR | rustix::pty::OpenptFlags::NOCTTY;
    let host = rustix::pty::openpt(flags)?;
    rustix::pty::unlockpt(&host)?;
    let end = open_end(&host, OFlags::empty())?;
    let mut set = rustix::termios::tcgetattr(&end)?;
    set.local_modes.remove(LocalModes::ECHO | LocalModes::ECHONL);
    set.output_modes.remove(OutputModes::ONLCR);
    rustix::termios::tcsetattr(&end, OptionalActions::Now, &set)?;
    rustix::termios::tcsetwinsize(&end, SIZE)?;
    Ok((host, end))
}

fn open_end(host: &OwnedFd, more: OFlags) -> rustix::io::Result<OwnedFd> {
    let name = rustix::pty::ptsname(host, Vec::new())?;
    let name: &CStr = &name;
    rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY | more, Mode::empty())
}

/// Whether the program has read all that was typed. An end-of-file that it has not read is taken back: gVisor tells of
/// several only the last, and whoever reads before that waits for ever.
fn nothing_waits(host: &OwnedFd) -> bool {
    // Nobody has it open longer than this takes, so that its end is still seen.
    let Ok(end) = open_end(host, OFlags::NONBLOCK) else { return true };
    let waits = rustix::io::ioctl_fionread(&end).is_ok_and(|bytes| bytes > 0);
    if !waits {
        // No byte is there: this is end-of-file, or nothing.
        rustix::io::read(&end, &mut [0; 1]).ok();
    }
    !waits
}

/// The character that says so, as this terminal is set.
fn end_of_file(terminal: &OwnedFd) -> io::Result<u8> {
    Ok(rustix::termios::tcgetattr(terminal)?.special_codes[SpecialCodeIndex::VEOF])
}

/// What stands in between.
struct Between {
    host: OwnedFd,
    typed: Typed,
    /// What the terminal has not taken yet.
    left: Vec<u8>,
    /// Whether more input may come.
    open: bool,
    /// When end-of-file was said last.
    said: Option<Instant>,
}

impl Between {
    /// Moves bytes until the program has ended and all it printed is handed on.
    fn until_gone(mut self, program: i32) -> io::Result<Ended> {
        fcntl_setfl(&self.host, fcntl_getfl(&self.host)? | OFlags::NONBLOCK)?;
        let mut ended: Option<(Ended, Instant)> = None;
        let mut closed = false;
        loop {
            self.wait(closed)?;
            self.take_input()?;
            self.give_input();
            // Looked at before the last read: nothing is printed after its end.
            let reaped = || sys::reap(false).filter(|r| r.pid == program);
            ended = ended.or_else(|| reaped().map(|r| (r.ended, Instant::now())));
            let printed = self.hand_on(&mut closed)?;
            match ended {
                // Others may print on it for ever.
                Some((ended, at)) if printed == 0 || at.elapsed() > DRAIN => return Ok(ended),
                Some(_) | None => {}
            }
        }
    }

    fn wait(&self, closed: bool) -> io::Result<()> {
        let (stdin, mut fds) = (io::stdin(), Vec::new());
        if !closed {
            let typing = if self.left.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
            fds.push(PollFd::new(&self.host, PollFlags::IN | typing));
        }
        if self.open && self.left.is_empty() {
            fds.push(PollFd::new(&stdin, PollFlags::IN));
        }
        match poll(&mut fds, Some(&LOOK)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }

    fn take_input(&mut self) -> io::Result<()> {
        if !self.left.is_empty() {
            return Ok(());
        }
        if self.open {
            let stdin = io::stdin();
            let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
            if poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })) != Ok(1) {
                return Ok(());
            }
            let mut buffer = [0; BUFFER];
            let n = rustix::io::read(&stdin, &mut buffer)?;
            self.open = n > 0;
            self.left = self.typed.typed(&buffer[..n]);
        } else if self.said.is_none_or(|at| at.elapsed() > AGAIN) {
            // Once for each read that finds nothing; who throws its input away first is told again.
            let first = self.said.replace(Instant::now()).is_none();
            if first || nothing_waits(&self.host) {
                self.left = self.typed.end();
            }
        }
        Ok(())
    }

    /// As much as the terminal takes. Nobody may have it open any more: that is the program's right.
    fn give_input(&mut self) {
        if let Ok(n) = rustix::io::write(&self.host, &self.left) {
            self.left.drain(..n);
        }
    }

    /// One read of what was printed; how much it was.
    fn hand_on(&self, closed: &mut bool) -> io::Result<usize> {
        let mut buffer = [0; BUFFER];
        match rustix::io::read(&self.host, &mut buffer) {
            Ok(n) => {
                io::stdout().write_all(&buffer[..n])?;
                io::stdout().flush()?;
                Ok(n)
            }
            Err(Errno::IO) => {
                *closed = true;
                Ok(0)
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(0),
            Err(e) => Err(e.into()),
        }
    }
}

/// Input as somebody would type it.
struct Typed {
    end_of_file: u8,
    /// Bytes since the last end of a line.
    line: usize,
}

impl Typed {
    /// A terminal hands on whole lines, and forgets what makes one too long: such a line is handed on in parts.
    fn typed(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut typed = Vec::with_capacity(bytes.len() + 1);
        for byte in bytes {
            typed.push(*byte);
            self.line = if *byte == b'\n' { 0 } else { self.line + 1 };
            if self.line == LINE {
                typed.push(self.end_of_file);
                self.line = 0;
            }
        }
        typed
    }

    /// In the middle of a line the first one only hands on what there is.
    fn end(&mut self) -> Vec<u8> {
        let times = if self.line == 0 { 1 } else { 2 };
        self.line = 0;
        vec![self.end_of_file; times]
    }
}

/// Ends as the program did.
fn end_as(ended: io::Result<Ended>) -> ! {
    match ended {
        Ok(Ended::Exit(code)) => sys::exit_now(code),
        Ok(Ended::Signal(signal)) => {
            let me = rustix::process::getpid().as_raw_nonzero().get();
            // Where it does not kill, the number tells.
            sys::kill(me, signal).ok();
            sys::exit_now(128 + signal)
        }
        Ok(Ended::NotStarted(_) | Ended::Unknown) | Err(_) => sys::exit_now(70),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_handed_on_in_parts_and_the_end_is_said_as_often_as_it_must() {
        let mut typed = Typed { end_of_file: 4, line: 0 };
        assert_eq!(typed.typed(b"a\nb"), b"a\nb");
        assert_eq!(typed.end(), [4, 4]);
        assert_eq!(typed.end(), [4]);
        let long = typed.typed(&vec![b'x'; LINE + 1]);
        assert_eq!((long[LINE], long.len()), (4, LINE + 2));
        assert_eq!(typed.end(), [4, 4]);
    }
}
