//! What a module may ask: WASI preview 1, without sockets, processes, and clocks finer than a millisecond.

use std::time::{Duration, Instant, SystemTime};

use wasmtime::{Caller, Extern, Linker};

use super::errno::Errno;
use super::files::{self, FD_ALLOCATE, FD_READ, FD_READDIR, FD_SET_SIZE, FD_WRITE, Files, times};
use super::folders::Wish;
use super::memory::{Memory, offset};
use super::module::WASI;

/// How fine a clock is.
const TICK: Duration = Duration::from_millis(1);
const FOLLOW: u32 = 1;
/// Things that can be waited for at once.
const MAX_WAITS: u32 = 1024;

/// The end that a module asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it ended with status {0}")]
pub(super) struct Exit(pub(super) u32);

/// What a module has, beside its memory.
pub(super) struct Guest {
    pub(super) files: Files,
    /// Arguments and variables, each with its final zero.
    pub(super) args: Vec<Vec<u8>>,
    pub(super) env: Vec<Vec<u8>>,
    pub(super) began: Instant,
    pub(super) deadline: Duration,
    pub(super) limiter: super::limiter::Limiter,
}

type Answer = Result<(), Errno>;
type Call<'a> = Caller<'a, Guest>;

/// Answers one call with the module's memory at hand.
fn with(caller: &mut Call<'_>, answer: impl FnOnce(&mut Memory<'_>, &mut Guest) -> Answer) -> u32 {
    let Some(Extern::Memory(memory)) = caller.get_export("memory") else {
        return u32::from(Errno::FAULT.0);
    };
    let (bytes, guest) = memory.data_and_store_mut(caller);
    match answer(&mut Memory(bytes), guest) {
        Ok(()) => 0,
        Err(errno) => u32::from(errno.0),
    }
}

/// Every name of `module::NAMES` and nothing else.
pub(super) fn link(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    own(linker)?;
    descriptors(linker)?;
    paths(linker)?;
    sockets(linker)
}

/// Arguments, variables, time, chance, the end.
fn own(l: &mut Linker<Guest>) -> wasmtime::Result<()> {
    l.func_wrap(WASI, "args_sizes_get", |mut c: Call<'_>, count: u32, size: u32| {
        with(&mut c, |m, g| put_sizes(m, &g.args, count, size))
    })?;
    l.func_wrap(WASI, "args_get", |mut c: Call<'_>, list: u32, text: u32| {
        with(&mut c, |m, g| put_texts(m, &g.args, list, text))
    })?;
    l.func_wrap(WASI, "environ_sizes_get", |mut c: Call<'_>, count: u32, size: u32| {
        with(&mut c, |m, g| put_sizes(m, &g.env, count, size))
    })?;
    l.func_wrap(WASI, "environ_get", |mut c: Call<'_>, list: u32, text: u32| {
        with(&mut c, |m, g| put_texts(m, &g.env, list, text))
    })?;
    l.func_wrap(WASI, "clock_res_get", |mut c: Call<'_>, clock: u32, out: u32| {
        with(&mut c, |m, _| {
            known_clock(clock)?;
            m.put_u64(out, 1_000_000)
        })
    })?;
    l.func_wrap(WASI, "clock_time_get", |mut c: Call<'_>, clock: u32, _: u64, out: u32| {
        with(&mut c, |m, g| {
            let now = now(clock, g.began)?;
            m.put_u64(out, nanoseconds(now))
        })
    })?;
    l.func_wrap(WASI, "random_get", |mut c: Call<'_>, at: u32, length: u32| {
        with(&mut c, |m, _| {
            let mut rest = m.bytes_mut(at, length)?;
            while !rest.is_empty() {
                let n = rustix::rand::getrandom(&mut *rest, rustix::rand::GetRandomFlags::empty())?;
                rest = rest.get_mut(n..).ok_or(Errno::FAULT)?;
            }
            Ok(())
        })
    })?;
    l.func_wrap(WASI, "sched_yield", || {
        std::thread::yield_now();
        0u32
    })?;
    l.func_wrap(WASI, "poll_oneoff", |mut c: Call<'_>, from: u32, to: u32, n: u32, out: u32| {
        with(&mut c, |m, g| wait(m, g, (from, to), n, out))
    })?;
    l.func_wrap(WASI, "proc_raise", |_: u32| u32::from(Errno::NOTSUP.0))?;
    l.func_wrap(WASI, "proc_exit", |status: u32| -> wasmtime::Result<()> {
        Err(wasmtime::Error::new(Exit(status)))
    })?;
    Ok(())
}

/// What is open.
fn descriptors(l: &mut Linker<Guest>) -> wasmtime::Result<()> {
    l.func_wrap(WASI, "fd_advise", |mut c: Call<'_>, fd: u32, _: u64, _: u64, advice: u32| {
        with(&mut c, |_, g| if advice > 5 { Err(Errno::INVAL) } else { g.files.get(fd).map(|_| ()) })
    })?;
    l.func_wrap(WASI, "fd_allocate", |mut c: Call<'_>, fd: u32, _: u64, _: u64| {
        with(&mut c, |_, g| g.files.get(fd).and(Err(Errno::NOTSUP)))
    })?;
    l.func_wrap(WASI, "fd_close", |mut c: Call<'_>, fd: u32| with(&mut c, |_, g| g.files.close(fd)))?;
    for name in ["fd_sync", "fd_datasync"] {
        l.func_wrap(WASI, name, |mut c: Call<'_>, fd: u32| with(&mut c, |_, g| g.files.sync(fd)))?;
    }
    l.func_wrap(WASI, "fd_fdstat_get", |mut c: Call<'_>, fd: u32, out: u32| {
        with(&mut c, |m, g| m.put(out, &g.files.state(fd)?))
    })?;
    l.func_wrap(WASI, "fd_fdstat_set_flags", |mut c: Call<'_>, fd: u32, flags: u32| {
        with(&mut c, |_, g| g.files.set_flags(fd, short(flags)?))
    })?;
    l.func_wrap(WASI, "fd_fdstat_set_rights", |mut c: Call<'_>, fd: u32, _: u64, _: u64| {
        with(&mut c, |_, g| g.files.get(fd).and(Err(Errno::NOTSUP)))
    })?;
    l.func_wrap(WASI, "fd_filestat_get", |mut c: Call<'_>, fd: u32, out: u32| {
        with(&mut c, |m, g| m.put(out, &g.files.stat(fd)?))
    })?;
    l.func_wrap(WASI, "fd_filestat_set_size", |mut c: Call<'_>, fd: u32, size: u64| {
        with(&mut c, |_, g| g.files.set_size(fd, size))
    })?;
    l.func_wrap(
        WASI,
        "fd_filestat_set_times",
        |mut c: Call<'_>, fd: u32, access: u64, modified: u64, flags: u32| {
            with(&mut c, |_, g| g.files.set_times(fd, &times(access, modified, short(flags)?)?))
        },
    )?;
    l.func_wrap(WASI, "fd_read", |mut c: Call<'_>, fd: u32, at: u32, n: u32, out: u32| {
        with(&mut c, |m, g| {
            let done = g.files.read(m, fd, (at, n), None)?;
            m.put_u32(out, done)
        })
    })?;
    l.func_wrap(WASI, "fd_pread", |mut c: Call<'_>, fd: u32, at: u32, n: u32, from: u64, out: u32| {
        with(&mut c, |m, g| {
            let done = g.files.read(m, fd, (at, n), Some(place(from)?))?;
            m.put_u32(out, done)
        })
    })?;
    l.func_wrap(WASI, "fd_write", |mut c: Call<'_>, fd: u32, at: u32, n: u32, out: u32| {
        with(&mut c, |m, g| {
            let done = g.files.write(m, fd, (at, n), None)?;
            m.put_u32(out, done)
        })
    })?;
    l.func_wrap(WASI, "fd_pwrite", |mut c: Call<'_>, fd: u32, at: u32, n: u32, from: u64, out: u32| {
        with(&mut c, |m, g| {
            let done = g.files.write(m, fd, (at, n), Some(place(from)?))?;
            m.put_u32(out, done)
        })
    })?;
    l.func_wrap(WASI, "fd_seek", |mut c: Call<'_>, fd: u32, by: i64, whence: u32, out: u32| {
        with(&mut c, |m, g| {
            let at = g.files.seek(fd, by, whence)?;
            m.put_u64(out, at)
        })
    })?;
    l.func_wrap(WASI, "fd_tell", |mut c: Call<'_>, fd: u32, out: u32| {
        with(&mut c, |m, g| {
            let at = g.files.seek(fd, 0, 1)?;
            m.put_u64(out, at)
        })
    })?;
    l.func_wrap(
        WASI,
        "fd_readdir",
        |mut c: Call<'_>, fd: u32, at: u32, room: u32, cookie: u64, out: u32| {
            with(&mut c, |m, g| {
                let room = m.bytes(at, room)?.len();
                let listed = g.files.list(fd, cookie, room)?;
                m.put(at, &listed)?;
                m.put_u32(out, u32::try_from(listed.len()).map_err(|_| Errno::OVERFLOW)?)
            })
        },
    )?;
    l.func_wrap(WASI, "fd_renumber", |mut c: Call<'_>, from: u32, to: u32| {
        with(&mut c, |_, g| g.files.renumber(from, to))
    })?;
    l.func_wrap(WASI, "fd_prestat_get", |mut c: Call<'_>, fd: u32, out: u32| {
        with(&mut c, |m, g| {
            let name = g.files.get(fd)?.name.ok_or(Errno::BADF)?;
            m.put_u32(out, 0)?;
            m.put_u32(offset(out, 4)?, u32::try_from(name.len()).map_err(|_| Errno::OVERFLOW)?)
        })
    })?;
    l.func_wrap(WASI, "fd_prestat_dir_name", |mut c: Call<'_>, fd: u32, at: u32, room: u32| {
        with(&mut c, |m, g| {
            let name = g.files.get(fd)?.name.ok_or(Errno::BADF)?;
            if m.bytes(at, room)?.len() < name.len() {
                return Err(Errno::NAMETOOLONG);
            }
            m.put(at, name.as_bytes())
        })
    })?;
    Ok(())
}

/// Names beneath an open folder. An argument pair of address and length is a name.
fn paths(l: &mut Linker<Guest>) -> wasmtime::Result<()> {
    l.func_wrap(
        WASI,
        "path_open",
        |mut c: Call<'_>,
         fd: u32,
         look: u32,
         at: u32,
         length: u32,
         how: u32,
         rights: u64,
         _: u64,
         flags: u32,
         out: u32| {
            with(&mut c, |m, g| {
                let flags = short(flags)?;
                let wish = Wish {
                    follow: look & FOLLOW != 0,
                    how,
                    read: rights & (FD_READ | FD_READDIR) != 0,
                    write: rights & (FD_WRITE | FD_ALLOCATE | FD_SET_SIZE) != 0,
                    append: flags & files::APPEND != 0,
                };
                // Where the number goes is looked at before anything is opened.
                m.put_u32(out, 0)?;
                let path = m.bytes(at, length)?.to_vec();
                let opened = g.files.open(fd, &path, &wish)?;
                m.put_u32(out, opened)
            })
        },
    )?;
    l.func_wrap(WASI, "path_create_directory", |mut c: Call<'_>, fd: u32, at: u32, n: u32| {
        with(&mut c, |m, g| g.files.make_folder(fd, m.bytes(at, n)?))
    })?;
    l.func_wrap(WASI, "path_remove_directory", |mut c: Call<'_>, fd: u32, at: u32, n: u32| {
        with(&mut c, |m, g| g.files.remove_folder(fd, m.bytes(at, n)?))
    })?;
    l.func_wrap(WASI, "path_unlink_file", |mut c: Call<'_>, fd: u32, at: u32, n: u32| {
        with(&mut c, |m, g| g.files.unlink(fd, m.bytes(at, n)?))
    })?;
    l.func_wrap(
        WASI,
        "path_filestat_get",
        |mut c: Call<'_>, fd: u32, look: u32, at: u32, n: u32, out: u32| {
            with(&mut c, |m, g| {
                let stat = g.files.stat_at(fd, m.bytes(at, n)?, look & FOLLOW != 0)?;
                m.put(out, &stat)
            })
        },
    )?;
    l.func_wrap(
        WASI,
        "path_filestat_set_times",
        |mut c: Call<'_>, fd: u32, look: u32, at: u32, n: u32, access: u64, modified: u64, flags: u32| {
            with(&mut c, |m, g| {
                let times = times(access, modified, short(flags)?)?;
                g.files.set_times_at(fd, m.bytes(at, n)?, look & FOLLOW != 0, &times)
            })
        },
    )?;
    l.func_wrap(
        WASI,
        "path_link",
        |mut c: Call<'_>, from: u32, look: u32, at: u32, n: u32, to: u32, to_at: u32, to_n: u32| {
            with(&mut c, |m, g| {
                if look & FOLLOW != 0 {
                    return Err(Errno::INVAL);
                }
                g.files.link((from, m.bytes(at, n)?), (to, m.bytes(to_at, to_n)?))
            })
        },
    )?;
    l.func_wrap(
        WASI,
        "path_rename",
        |mut c: Call<'_>, from: u32, at: u32, n: u32, to: u32, to_at: u32, to_n: u32| {
            with(&mut c, |m, g| g.files.rename((from, m.bytes(at, n)?), (to, m.bytes(to_at, to_n)?)))
        },
    )?;
    l.func_wrap(
        WASI,
        "path_symlink",
        |mut c: Call<'_>, target: u32, target_n: u32, fd: u32, at: u32, n: u32| {
            with(&mut c, |m, g| g.files.symlink(m.bytes(target, target_n)?, fd, m.bytes(at, n)?))
        },
    )?;
    l.func_wrap(
        WASI,
        "path_readlink",
        |mut c: Call<'_>, fd: u32, at: u32, n: u32, to: u32, room: u32, out: u32| {
            with(&mut c, |m, g| {
                let mut target = g.files.read_link(fd, m.bytes(at, n)?)?;
                target.truncate(m.bytes(to, room)?.len());
                m.put(to, &target)?;
                m.put_u32(out, u32::try_from(target.len()).map_err(|_| Errno::OVERFLOW)?)
            })
        },
    )?;
    Ok(())
}

/// There are none: nothing that is open is ever a socket.
fn sockets(l: &mut Linker<Guest>) -> wasmtime::Result<()> {
    const NONE: u32 = Errno::NOTSOCK.0 as u32;
    l.func_wrap(WASI, "sock_accept", |_: u32, _: u32, _: u32| NONE)?;
    l.func_wrap(WASI, "sock_recv", |_: u32, _: u32, _: u32, _: u32, _: u32, _: u32| NONE)?;
    l.func_wrap(WASI, "sock_send", |_: u32, _: u32, _: u32, _: u32, _: u32| NONE)?;
    l.func_wrap(WASI, "sock_shutdown", |_: u32, _: u32| NONE)?;
    Ok(())
}

fn put_sizes(m: &mut Memory<'_>, texts: &[Vec<u8>], count: u32, size: u32) -> Answer {
    let number = |n: usize| u32::try_from(n).map_err(|_| Errno::OVERFLOW);
    m.put_u32(count, number(texts.len())?)?;
    m.put_u32(size, number(texts.iter().map(Vec::len).sum())?)
}

fn put_texts(m: &mut Memory<'_>, texts: &[Vec<u8>], mut list: u32, mut at: u32) -> Answer {
    for text in texts {
        m.put_u32(list, at)?;
        m.put(at, text)?;
        list = offset(list, 4)?;
        at = offset(at, u32::try_from(text.len()).map_err(|_| Errno::OVERFLOW)?)?;
    }
    Ok(())
}

/// Wall clock and a clock that only goes on. Processor time would tell of the host.
fn known_clock(clock: u32) -> Answer {
    if clock < 2 { Ok(()) } else { Err(Errno::INVAL) }
}

fn now(clock: u32, began: Instant) -> Result<Duration, Errno> {
    known_clock(clock)?;
    Ok(match clock {
        0 => SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_err(|_| Errno::OVERFLOW)?,
        _ => began.elapsed(),
    })
}

/// In whole ticks.
fn nanoseconds(time: Duration) -> u64 {
    let ticks = time.as_nanos() / TICK.as_nanos();
    u64::try_from(ticks * TICK.as_nanos()).unwrap_or(u64::MAX)
}

fn short(flags: u32) -> Result<u16, Errno> {
    u16::try_from(flags).map_err(|_| Errno::INVAL)
}

/// A place in a file that a signed number can hold, a whole write after it too.
fn place(at: u64) -> Result<u64, Errno> {
    if at < 1 << 62 { Ok(at) } else { Err(Errno::INVAL) }
}

/// Waits for the first of several things: a time, or a file, which is always ready.
fn wait(m: &mut Memory<'_>, g: &Guest, (from, to): (u32, u32), count: u32, out: u32) -> Answer {
    if count == 0 || count > MAX_WAITS {
        return Err(Errno::INVAL);
    }
    let mut ready: Vec<(u64, u16, u8)> = Vec::new();
    let mut clocks: Vec<(u64, Duration)> = Vec::new();
    for n in 0..count {
        let at = offset(from, n * 48)?;
        let (user, tag) = (m.u64(at)?, m.u8(offset(at, 8)?)?);
        match tag {
            0 => {
                let clock = m.u32(offset(at, 16)?)?;
                let time = Duration::from_nanos(m.u64(offset(at, 24)?)?);
                let absolute = m.u16(offset(at, 40)?)? & 1 != 0;
                match now(clock, g.began) {
                    Ok(now) if absolute => clocks.push((user, time.saturating_sub(now))),
                    Ok(_) => clocks.push((user, time)),
                    Err(errno) => ready.push((user, errno.0, tag)),
                }
            }
            1 | 2 => {
                let known = g.files.get(m.u32(offset(at, 16)?)?);
                ready.push((user, known.err().map_or(0, |errno| errno.0), tag));
            }
            _ => return Err(Errno::INVAL),
        }
    }
    if ready.is_empty() {
        let first = clocks.iter().map(|(_, time)| *time).min().unwrap_or_default();
        // Nobody sleeps past the deadline: after it the module is ended at its next step.
        std::thread::sleep(first.min(g.deadline.saturating_sub(g.began.elapsed()) + TICK));
        ready.extend(clocks.iter().filter(|(_, time)| *time <= first).map(|(user, _)| (*user, 0, 0)));
    }
    for (n, (user, errno, tag)) in (0u32..).zip(&ready) {
        let at = offset(to, n * 32)?;
        m.bytes_mut(at, 32)?.fill(0);
        m.put_u64(at, *user)?;
        m.put(offset(at, 8)?, &errno.to_le_bytes())?;
        m.put(offset(at, 10)?, &[*tag])?;
    }
    m.put_u32(out, u32::try_from(ready.len()).map_err(|_| Errno::OVERFLOW)?)
}
