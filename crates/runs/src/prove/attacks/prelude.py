# What every attack stands on. Prints one line a try: `held NAME WHY`, or `broken NAME WHAT` when it was let.
import ctypes, ctypes.util, errno, json, mmap, os, platform, signal, socket, stat, struct, subprocess, sys, time

X86 = platform.machine() == "x86_64"
FACTS = json.loads(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


def say(word, name, what=""):
    print(word, str(name).replace(" ", "_"), str(what).replace("\n", " ")[:120], flush=True)


def attempt(name, act):
    """What raises was refused; what returns was let."""
    try:
        got = act()
    except (OSError, ValueError, MemoryError) as e:
        say("held", name, e)
    else:
        say("broken", name, repr(got))


def call(name, number, *args):
    """A system call by number: an error was a refusal."""
    if not X86:
        return say("failed", name, "this corpus knows the numbers of x86_64 only")
    ctypes.set_errno(0)
    got = libc.syscall(*[ctypes.c_long(a) if isinstance(a, int) else a for a in (number,) + args])
    code = ctypes.get_errno()
    if got < 0:
        say("held", name, errno.errorcode.get(code, code))
    else:
        say("broken", name, got)


def control(name, act):
    """What must work for the rest to mean anything."""
    try:
        act()
        say("control", name)
    except Exception as e:
        say("failed", name, e)


def read(path):
    with open(path, "rb") as f:
        return f.read(64)


def write(path, mode="ab"):
    with open(path, mode) as f:
        f.write(b"broken\n")


def apart(act):
    """In a process of its own: how it ended and what it printed."""
    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(r)
        try:
            os.write(w, str(act()).encode())
        except BaseException as e:
            os.write(w, ("error %s" % e).encode())
        os._exit(0)
    os.close(w)
    said = os.read(r, 200).decode()
    return os.waitpid(pid, 0)[1], said


def run(*argv):
    """Starts a program and gives what it printed."""
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=15)
    return done.stdout.strip()

