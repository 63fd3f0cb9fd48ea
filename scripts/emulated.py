"""A machine that QEMU emulates, with a distribution's kernel and a system made of this one's own files: what
`scripts/nested-kvm` and `scripts/cgroup-v2` boot. No network, no root, nothing is installed.
"""

import glob
import lzma
import math
import os
import re
import shutil
import subprocess
import sys
import time

# How long a kernel may be silent before it runs anything of ours, in seconds, where it is the first time.
COMES_UP = 150
TOP = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
# What the first process loads, in this order; what is not there is built in.
MODULES = "virtio_ring virtio virtio_mmio virtio_blk squashfs".split()

# The first process of the machine: loads modules, enters the system, runs the script, ends the machine.
INIT = r"""
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
static void need(int bad, const char *what) { if (bad) { perror(what); reboot(RB_AUTOBOOT); } }
int main(void) {
    char path[64];
    mount("dev", "/dev", "devtmpfs", 0, 0);
    dprintf(1, "init is up\n");
    for (int n = 0; ; n++) {
        snprintf(path, sizeof path, "/modules/%02d.ko", n);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0) break;
        if (syscall(SYS_finit_module, fd, "", 0)) perror(path);
        close(fd);
    }
    dprintf(1, "modules are in\n");
    for (int n = 0; n < 30000 && access("/dev/vda", F_OK); n++) usleep(10000);
    need(mount("/dev/vda", "/root", "squashfs", MS_RDONLY, 0), "mount the system");
    need(mount("/dev", "/root/dev", 0, MS_MOVE, 0), "move /dev");
    need(chdir("/root") || mount(".", "/", 0, MS_MOVE, 0) || chroot(".") || chdir("/"), "enter the system");
    mount("proc", "/proc", "proc", 0, 0);
    mount("sys", "/sys", "sysfs", 0, 0);
    mount("cgroup2", "/sys/fs/cgroup", "cgroup2", 0, 0);
    const char *fresh[] = {"/tmp", "/var", "/run", "/root", "/home", 0};
    for (int n = 0; fresh[n]; n++) mount("fresh", fresh[n], "tmpfs", 0, "mode=755");
    chmod("/tmp", 01777);
    dprintf(1, "the system is up\n");
    if (fork() == 0) {
        setsid();
        char *argv[] = {"sh", "/test.sh", 0}, *env[] = {"PATH=/usr/local/bin:/usr/sbin:/usr/bin", "HOME=/root", 0};
        execve("/usr/bin/dash", argv, env);
        perror("sh"); _exit(127);
    }
    while (wait(0) > 0) ;
    sync();
    reboot(RB_AUTOBOOT);
    return 0;
}
"""

NAME = os.path.basename(sys.argv[0])


def say(text):
    print(f"{NAME}: {text}", flush=True)


def die(text):
    sys.exit(f"{NAME}: {text}")


def closure(programs):
    """The programs and every library that they ask for."""
    files = set()
    for program in programs:
        files.add(program)
        told = subprocess.run(["ldd", program], capture_output=True, text=True)
        files.update(re.findall(r"(/\S+) \(0x", told.stdout))
    return files


def put(root, path, to=None):
    """Copies a file under a merged /usr."""
    to = os.path.abspath(to or path)
    if not to.startswith("/usr/") and re.match(r"/(bin|sbin|lib|lib32|lib64|libx32)/", to):
        to = "/usr" + to
    at = root + to
    os.makedirs(os.path.dirname(at), exist_ok=True)
    shutil.copyfile(os.path.realpath(path), at)
    shutil.copymode(os.path.realpath(path), at)


def merged(root):
    """A root that is bare but for the folders of programs."""
    for name in ["bin", "sbin", "lib", "lib64"]:
        os.makedirs(f"{root}/usr/{name}", exist_ok=True)
        os.symlink(f"usr/{name}", f"{root}/{name}")


def bare(root, programs, files, script):
    """A root with these programs as `/usr`, these texts below `/etc` and this script as what is run."""
    merged(root)
    for name in ["proc", "sys", "dev", "tmp", "var", "run", "root", "home", "etc"]:
        os.makedirs(f"{root}/{name}")
    for path in closure(programs):
        put(root, path)
    os.symlink("dash", f"{root}/usr/bin/sh")
    for name, text in files.items():
        with open(f"{root}/etc/{name}", "w") as file:
            file.write(text)
    with open(f"{root}/test.sh", "w") as file:
        file.write(script)


def archive(entries):
    """A `newc` archive of (name, mode, content, device)."""
    out = bytearray()
    for number, (name, mode, content, device) in enumerate([*entries, ("TRAILER!!!", 0, b"", (0, 0))], 1):
        fields = [number, mode, 0, 0, 1, 0, len(content), 0, 0, *device, len(name) + 1, 0]
        out += b"070701" + b"".join(b"%08x" % f for f in fields) + name.encode() + b"\0"
        out += bytes(-len(out) % 4)
        out += content
        out += bytes(-len(out) % 4)
    return bytes(out)


def kernel(*names):
    """Image, release and modules of the first kernel that `scripts/fetch-kernel` unpacked under one of these names."""
    caches = ["/var/cache/oubliette", os.path.expanduser("~/.cache/oubliette")]
    places = [f"{cache}/{name}" for name in names for cache in caches]
    for place in [*places, ""]:
        for image in sorted(glob.glob(f"{place}/boot/vmlinuz-*cloud*"), reverse=True):
            release = os.path.basename(image).removeprefix("vmlinuz-")
            for modules in [f"{place}/lib/modules/{release}", f"{place}/usr/lib/modules/{release}"]:
                if os.path.isdir(modules):
                    return image, release, modules
    die("no cloud kernel; run scripts/fetch-kernel")


def files_of(modules):
    found = {}
    for folder, _, names in os.walk(modules):
        for name in names:
            if ".ko" in name:
                found[name.split(".ko")[0].replace("_", "-")] = os.path.join(folder, name)
    return found


def module(path):
    with open(path, "rb") as file:
        content = file.read()
    if path.endswith(".ko"):
        return content
    if path.endswith(".ko.xz"):
        return lzma.decompress(content)
    die(f"{path}: modules packed like this are not unpacked here")


def pack(root, work, modules, more=()):
    """The root as an image, and an archive of what comes before it: the first process and modules."""
    system = f"{work}/system"
    how = ["-comp", "lz4", "-all-root", "-noappend", "-quiet", "-no-progress"]
    subprocess.run(["mksquashfs", root, system, *how], check=True)
    source = f"{work}/init.c"
    with open(source, "w") as file:
        file.write(INIT)
    subprocess.run(["cc", "-static", "-O1", "-o", f"{work}/init", source], check=True)
    entries = [(name, 0o040755, b"", (0, 0)) for name in ["dev", "root", "modules"]]
    entries.append(("dev/console", 0o020600, b"", (5, 1)))
    with open(f"{work}/init", "rb") as file:
        entries.append(("init", 0o100755, file.read(), (0, 0)))
    found, number = files_of(f"{modules}/kernel"), 0
    for name in [*MODULES, *more]:
        if path := found.get(name.replace("_", "-")):
            entries.append((f"modules/{number:02d}.ko", 0o100644, module(path), (0, 0)))
            number += 1
    with open(f"{work}/initramfs", "wb") as file:
        file.write(archive(entries))
    return system, f"{work}/initramfs"


def tsc_khz():
    """An emulated machine passes the counter through, and cannot measure it under load."""
    with open("/proc/cpuinfo") as file:
        told = re.search(r"^cpu MHz\s*:\s*([0-9.]+)", file.read(), re.M)
    return int(float(told.group(1)) * 1000) if told else 0


def boot(work, image, system, initramfs, timeout, memory="1536M", cpu="max", cores=2, quiet=math.inf):
    """Runs it to its end; what it said on its serial line. One that hangs, so says nothing for `quiet` seconds, is started
    again: under emulation a kernel does so now and then before it has run anything of ours, and one that emulates
    virtualisation for a machine of its own also later. The second time it has four times as long, the third as long as there is:
    a machine that is merely slow comes to its end."""
    log = f"{work}/serial"
    clock = f"tsc_early_khz={tsc_khz()} tsc=reliable no_timer_check"
    append = f"console=ttyS0 loglevel=3 panic=-1 reboot=t {clock} mitigations=off rdinit=/init"
    # String instructions are not fast for bytes here: one turn for each byte.
    cpu = f"{cpu},erms=off,fsrm=off"
    # In turns, by one thread: QEMU 7.2 with a thread for each processor loses what a kernel writes into its own code
    # while the other one runs it (static keys, switched by bounds of groups), and that kernel ends with `int3`.
    argv = ["qemu-system-x86_64", "-M", "microvm", "-accel", "tcg,thread=single,tb-size=512", "-cpu", cpu,
            "-smp", str(cores), "-m", memory, "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
            "-serial", f"file:{log}", "-kernel", image, "-initrd", initramfs, "-append", append,
            "-drive", f"if=none,id=system,format=raw,readonly=on,file={system}",
            "-device", "virtio-blk-device,drive=system"]
    last = time.monotonic() + timeout
    for longer in [1, 4, math.inf]:
        if ended(argv, log, last, (COMES_UP * longer, quiet * longer)):
            break
        if time.monotonic() >= last:
            say(f"the machine did not end within {timeout} s")
            break
        said = read(log).strip().splitlines()[-1:] or ["the start"]
        say(f"the machine hangs behind {said[0]!r}: once more")
    return read(log)


def ended(argv, log, last, patience):
    """Whether it came to its end: by then, and never silent for longer than this, before and after `init is up`."""
    with open(log, "w"):
        pass
    heard, since = 0, time.monotonic()
    with subprocess.Popen(argv) as machine:
        while True:
            try:
                machine.wait(1)
                return True
            except subprocess.TimeoutExpired:
                now, told = time.monotonic(), read(log)
            if len(told) > heard:
                heard, since = len(told), now
            if now >= last or now - since >= patience["init is up" in told]:
                machine.kill()
                return False


def read(log):
    with open(log, errors="replace") as file:
        return file.read()


def checks(log):
    """Its lines `CHECK NAME WHAT ...`: what was said, by name and what."""
    told = {}
    for line in log.splitlines():
        if match := re.match(r"CHECK (\S+) (\w+) ?(.*)", line.strip()):
            told.setdefault((match[1], match[2]), []).append(match[3])
    return told


class Judge:
    """Says what holds, and keeps what does not."""

    def __init__(self):
        self.faults = []
        self.began = time.monotonic()

    def hold(self, what, found):
        if found:
            say(f"ok: {what}")
        else:
            self.faults.append(f"NOT OK: {what}")

    def end(self, log):
        if self.faults:
            print(log, file=sys.stderr)
            die("\n".join(self.faults))
        say(f"all of it in {time.monotonic() - self.began:.0f} s")


def folder(keep, fresh):
    """Where things are made: the folder that is kept, else the fresh one."""
    if not keep:
        return fresh
    os.makedirs(keep, exist_ok=True)
    if os.listdir(keep):
        die(f"{keep} is not empty")
    return keep
