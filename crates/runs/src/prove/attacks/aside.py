def aside():
    """Into namespaces of its own, in which it is root, and which are gone with it. All it changes is theirs."""
    uid, gid = os.getuid(), os.getgid()
    try:
        # User, mounts, network, host name, and what System V shares.
        if libc.unshare(0x10000000 | 0x20000 | 0x40000000 | 0x4000000 | 0x8000000):
            raise OSError(ctypes.get_errno(), "unshare")
        for name, text in (("setgroups", "deny"), ("uid_map", "0 %d 1" % uid), ("gid_map", "0 %d 1" % gid)):
            with open("/proc/self/" + name, "w") as f:
                f.write(text)
    except OSError as e:
        print("untried", why(e), flush=True)
        raise SystemExit


aside()
