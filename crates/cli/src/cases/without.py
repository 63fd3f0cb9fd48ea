# Takes user namespaces away from this process, as a container's default profile does, then becomes the program named.
import ctypes, os, struct, sys

NEW_USER, ALLOW, ERRNO = 0x10000000, 0x7FFF0000, 0x00050000
machines = {"x86_64": (0xC000003E, 56, 272, 435), "aarch64": (0xC00000B7, 220, 97, 435)}
libc = ctypes.CDLL(None, use_errno=True)


def op(code, k, yes=0, no=0):
    return struct.pack("HBBI", code, yes, no, k)


try:
    arch, clone, unshare, clone3 = machines[os.uname().machine]
    code = op(0x20, 4) + op(0x15, arch, 1, 0) + op(0x06, ALLOW)
    for number in (clone, unshare):
        body = op(0x20, 16) + op(0x45, NEW_USER, 0, 1) + op(0x06, ERRNO | 1)
        code += op(0x20, 0) + op(0x15, number, 0, len(body) // 8) + body
    code += op(0x20, 0) + op(0x15, clone3, 0, 1) + op(0x06, ERRNO | 38) + op(0x06, ALLOW)
    buffer = ctypes.create_string_buffer(code, len(code))
    fprog = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(code) // 8, ctypes.addressof(buffer)))
    # PR_SET_NO_NEW_PRIVS, which root does not need, and PR_SET_SECCOMP.
    if os.geteuid() != 0 and libc.prctl(38, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "no_new_privs")
    if libc.prctl(22, 2, fprog, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "seccomp")
    os.execv(sys.argv[1], sys.argv[1:])
except (OSError, KeyError) as e:
    sys.exit("without.py: %s" % e)
