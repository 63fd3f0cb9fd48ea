# What every attack stands on. Prints one line a try: `held NAME WHY`, or `broken NAME WHAT` when it was let.
import errno, os, stat, sys, time


class Later:
    """A module that is loaded when it is first asked for: on an emulated machine all of them cost a second."""

    def __init__(self, name):
        self.name = name

    def __getattr__(self, attribute):
        import importlib

        module = importlib.import_module(self.name)
        globals()[self.name] = module
        return getattr(module, attribute)


ctypes, json, mmap, signal = Later("ctypes"), Later("json"), Later("mmap"), Later("signal")
platform, socket, struct, subprocess = Later("platform"), Later("socket"), Later("struct"), Later("subprocess")

X86 = os.uname().machine == "x86_64"
# Written by the executor; JSON of texts, numbers and lists is Python, too.
FACTS = eval(sys.argv[1], {"true": True, "false": False, "null": None})


class Libc:
    """The C library, opened when it is first asked for."""

    def __getattr__(self, attribute):
        global libc
        libc = ctypes.CDLL(None, use_errno=True)
        libc.syscall.restype = ctypes.c_long
        return getattr(libc, attribute)


libc = Libc()


def began(pid):
    """When a process began, as its table says it; none where there is no such process in sight."""
    try:
        with open("/proc/%d/stat" % pid) as f:
            return int(f.read().rsplit(")", 1)[1].split()[19])
    except OSError:
        return None


def others(which="pids"):
    """Processes outside. A sandbox with numbers of its own may have given one of theirs to a process of its own."""
    for pid, at in zip(FACTS[which], FACTS[which + "_began"]):
        if began(pid) in (None, at):
            yield pid
        else:
            say("held", "number %d" % pid, "a process of this sandbox has it")


def say(word, name, what=""):
    print(word, str(name).replace(" ", "_"), str(what).replace("\n", " ")[:120], flush=True)


def why(e):
    """An error by its name, which tells who answered."""
    name = errno.errorcode.get(getattr(e, "errno", None))
    return "%s %s" % (name, e.strerror) if name else e


def directly():
    """Where nothing contains it: a listener of the host, without any door, is reached. That is all of it there."""
    if FACTS["where"] == "host":
        attempt("directly", lambda: socket.create_connection(("127.0.0.1", FACTS["tcp"]), 2).close())
        raise SystemExit


def attempt(name, act):
    """What raises was refused; what returns was let."""
    try:
        got = act()
    except (OSError, ValueError, MemoryError) as e:
        say("held", name, why(e))
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
    r, w = os.pipe()
    null = os.open("/dev/null", os.O_RDWR)
    places = [(os.POSIX_SPAWN_DUP2, fd, at) for at, fd in enumerate((null, w, null))]
    try:
        pid = os.posix_spawnp(argv[0], argv, os.environ, file_actions=places)
    finally:
        os.close(w)
        os.close(null)
    said = b""
    with open(r, "rb") as out:
        said = out.read()
    os.waitpid(pid, 0)
    return said.decode().strip()


def enter(code):
    """Machine code in a process of its own: the sign of its death, or what it returned."""

    def act():
        m = mmap.mmap(-1, 4096, prot=7)
        m.write(code)
        return ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))()

    return apart(act)


def answered(message, at=None, wait=6):
    """All that a door says to these bytes; by itself the proxy's."""
    with socket.create_connection(at or ("127.0.0.1", FACTS["way"]["proxy"]), wait) as s:
        s.settimeout(wait)
        heard = b""
        try:
            s.sendall(message)
            while some := s.recv(65536):
                heard += some
        except OSError:
            pass
        return heard


def through(name, message, at=None):
    """Broken when it is let: success in the language that was spoken, or the word of who is behind the way."""
    try:
        heard = answered(message, at)
    except OSError as e:
        return say("held", name, why(e))
    let = b"got through" in heard or heard[:12] in (b"HTTP/1.1 200", b"HTTP/1.0 200")
    let = let or (message[:1] == b"\5" and heard[2:4] == b"\5\0") or heard[:2] == b"\0\x5a"
    say("broken" if let else "held", name, heard[:60])


asked = 0


def asking(host, port):
    """A destination asked of a proxy in each of its languages; the host in any bytes."""
    global asked
    at = host + b":%d" % port
    ways = [
        ("connect", b"CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n" % (at, at)),
        ("http", b"GET http://%s/ HTTP/1.1\r\nHost: %s\r\n\r\n" % (at, at)),
    ]
    if len(host) < 256 and port < 65536:
        ways.append(("socks", b"\5\1\0\5\1\0\3" + bytes([len(host)]) + host + struct.pack("!H", port)))
    asked += 1
    # An emulated machine takes its time for each, and who judges is the same on every tier: there in turns.
    return ways if FACTS["where"] != "microvm" else [ways[asked % len(ways)]]


def the_way():
    """That what is granted is reached: else it means nothing that the rest is not. Gives its name, port and zone."""
    name, port = FACTS["way"]["name"].encode(), FACTS["way"]["port"]

    def reached():
        # What a flood before this left in the queue is turned away in turn with this.
        for n in range(30):
            heard = answered(b"GET http://%s:%d/ HTTP/1.1\r\nHost: %s:%d\r\n\r\n" % (name, port, name, port))
            if b"got through" in heard:
                return
            time.sleep(0.1)
        raise OSError(repr(heard[:60]))

    if FACTS["way"]["open"] and FACTS["where"] != "host":
        control("the way", reached)
    return name, port, FACTS["way"]["zone"].encode()
