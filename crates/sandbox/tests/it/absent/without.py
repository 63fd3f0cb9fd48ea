# Takes things away from this process as a kernel, a container or an operator does, then becomes the program named.
#
#   without.py SPEC... -- PROGRAM ARGS...
import array, ctypes, fcntl, os, resource, select, socket, struct, sys, tempfile

libc = ctypes.CDLL(None, use_errno=True)
ALLOW, ERRNO, NOTIFY = 0x7FFF0000, 0x00050000, 0x7FC00000
X86_64 = 0xC000003E
root = os.geteuid() == 0
rules, notified = [], []


def must(result, what):
    if result < 0:
        raise OSError(ctypes.get_errno(), what)
    return result


def op(code, k, yes=0, no=0):
    return struct.pack("HBBI", code, yes, no, k & 0xFFFFFFFF)


def load(offset):
    return op(0x20, offset)


def program(rules, last=ALLOW):
    """Each rule: number, None or (argument, mask or None, value), what to return."""
    out = load(4) + op(0x15, X86_64, 1, 0) + op(0x06, ALLOW)
    for number, test, verdict in rules:
        body = b""
        if test:
            argument, mask, value = test
            body += load(16 + 8 * argument)
            # `mask`: any of these bits; otherwise equal.
            body += op(0x45, mask, 0, 1) if mask is not None else op(0x15, value, 0, 1)
        body += op(0x06, verdict)
        out += load(0) + op(0x15, number, 0, len(body) // 8) + body
    return out + op(0x06, last)


def install(code, flags=0):
    if not root or flags:
        must(libc.prctl(38, 1, 0, 0, 0), "no_new_privs")
    buffer = ctypes.create_string_buffer(code, len(code))
    fprog = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(code) // 8, ctypes.addressof(buffer)))
    return must(libc.syscall(317, 1, flags, fprog), "seccomp")


def supervise(listener, answers):
    """Answers a call by its number and third argument; every other one goes on as it was."""
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    while True:
        if any(event & ~select.POLLIN for _, event in poll.poll()):
            os._exit(0)
        notice = bytearray(80)
        try:
            fcntl.ioctl(listener, 0xC0502100, notice, True)
            ident, _, _, number, _, _ = struct.unpack_from("QIIiIQ", notice)
            third = struct.unpack_from("Q", notice, 16 + 16 + 16)[0]
            value = answers.get((number, third))
            reply = struct.pack("QqiI", ident, value or 0, 0, 0 if value is not None else 1)
            fcntl.ioctl(listener, 0xC0182101, bytearray(reply), True)
        except OSError:
            pass


def ask(numbers, answers):
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        ours.close()
        _, fds, _, _ = socket.recv_fds(theirs, 1, 1)
        for fd in (0, 1, 2):
            os.close(fd)
        supervise(fds[0], answers)
    theirs.close()
    fd = install(program([(n, None, NOTIFY) for n in numbers]), 8)
    socket.send_fds(ours, [b"x"], [fd])
    os.close(fd)


def own_user():
    """A user namespace with the same ids: all of them for root, one for others. Its rights end with the exec."""
    uid, gid = os.geteuid(), os.getegid()
    me = os.getpid()
    ready, go = os.pipe()
    if root and os.fork() == 0:
        os.close(go)
        os.read(ready, 1)
        for name in ("uid_map", "gid_map"):
            open("/proc/%d/%s" % (me, name), "w").write("0 0 4294967295")
        os._exit(0)
    # Root's mounts come along, or it could not use what it may do in there.
    must(libc.unshare(0x10020000 if root else 0x10000000), "unshare")
    os.write(go, b"x")
    if root:
        assert os.wait()[1] == 0
    else:
        open("/proc/self/setgroups", "w").write("deny")
        open("/proc/self/uid_map", "w").write("%d %d 1" % (uid, uid))
        open("/proc/self/gid_map", "w").write("%d %d 1" % (gid, gid))


def own_mounts():
    if not root:
        own_user()
    must(libc.unshare(0x00020000), "unshare")
    must(libc.mount(b"none", b"/", None, 0x44000, None), "private")


def cover(path):
    """Nothing is there any more, and nothing can be put there."""
    if os.path.isdir(path):
        must(libc.mount(b"none", path.encode(), b"tmpfs", 1, b"size=4k"), path)
    elif os.path.exists(path):
        must(libc.mount(b"/dev/null", path.encode(), None, 0x1000, None), path)


def put(path, text):
    """A file says something else."""
    fd, name = tempfile.mkstemp()
    os.write(fd, text.encode())
    os.close(fd)
    must(libc.mount(name.encode(), path.encode(), None, 0x1000, None), path)
    os.unlink(name)


def mask_processes():
    """As a container engine does it: the kernel then gives no new /proc to a namespace below."""
    for line in open("/proc/self/mountinfo").read().splitlines():
        left, right = line.split(" - ")
        if right.split(" ")[0] == "proc" and left.split(" ")[3] == "/":
            cover(left.split(" ")[4] + "/interrupts")


def drop_capabilities():
    for number in range(64):
        libc.prctl(24, number, 0, 0, 0)
    libc.prctl(47, 4, 0, 0, 0)
    header = struct.pack("II", 0x20080522, 0)
    must(libc.syscall(126, header, struct.pack("6I", *[0] * 6)), "capset")


split = sys.argv.index("--")
for spec in sys.argv[1:split]:
    word, *rest = spec.split(":")
    n = [int(r, 0) for r in rest if r.lstrip("-").replace("0x", "").isalnum() and r[0].isdigit()]
    if word == "call":
        rules.append((n[0], None, ERRNO | n[1]))
    elif word == "bits":
        rules.append((n[0], (n[1], n[2], None), ERRNO | n[3]))
    elif word == "equal":
        rules.append((n[0], (n[1], None, n[2]), ERRNO | n[3]))
    elif word == "answer":
        ask([n[0]], {(n[0], n[1]): n[2]})
    elif word == "limit":
        resource.setrlimit(n[0], (n[1], n[2]))
    elif word == "no-new-privileges":
        must(libc.prctl(38, 1, 0, 0, 0), word)
    elif word == "groups":
        os.setgroups([int(group) for group in rest[0].split(",")])
    elif word == "no-capabilities":
        drop_capabilities()
    elif word == "user":
        own_user()
    elif word == "mounts":
        own_mounts()
    elif word == "cover":
        cover(rest[0])
    elif word == "masked-proc":
        mask_processes()
    elif word == "empty":
        must(libc.mount(b"none", rest[0].encode(), b"tmpfs", 0, b"mode=755"), rest[0])
    elif word == "put":
        put(rest[0], ":".join(rest[1:]))
    elif word == "set":
        open(rest[0], "w").write(rest[1])
    elif word == "fill":
        must(libc.mount(b"none", rest[0].encode(), b"tmpfs", 0, b"size=64k,nr_inodes=24,mode=777"), rest[0])
        os.mkdir(rest[0] + "/workspace")
        os.chmod(rest[0] + "/workspace", 0o777)
        if root:
            os.chown(rest[0] + "/workspace", 201000, 201000)
        try:
            with open(rest[0] + "/full", "wb") as f:
                f.write(b"x" * (1 << 20))
        except OSError:
            pass
        for i in range(100000):
            try:
                os.mkdir("%s/%d" % (rest[0], i))
            except OSError:
                break
    else:
        sys.exit("without.py: " + spec)
if rules:
    install(program(rules))
argv = sys.argv[split + 1:]
os.execv(argv[0], argv)
