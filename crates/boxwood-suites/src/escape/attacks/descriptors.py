# Descriptors and signal settings inherited from the daemon. Only descriptors 0, 1 and 2 may be open.
held = {}
for fd in range(0, 4096):
    try:
        os.fstat(fd)
        held[fd] = os.readlink("/proc/self/fd/%d" % fd)
    except OSError:
        pass
check("descriptors are 0, 1, 2", set(held) == {0, 1, 2}, repr(held))
check("stdin is /dev/null", held.get(0) == "/dev/null", held.get(0))
check("stdout and stderr are pipes", all(held.get(n, "").startswith("pipe:") for n in (1, 2)), repr(held))
status = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines())
check("no signal is blocked", int(status["SigBlk"], 16) == 0, status["SigBlk"])
# Python itself ignores SIGPIPE and SIGXFSZ.
check("no signal is ignored", int(status["SigIgn"], 16) & ~0x1001000 == 0, status["SigIgn"])
probe("controlling terminal", lambda: os.open("/dev/tty", os.O_RDWR), ABSENT)
# CVE-2024-21626: a working directory or a path that is a leaked descriptor.
for fd in range(3, 64):
    def follow(fd=fd):
        return os.listdir("/proc/self/fd/%d/." % fd)
    probe("follow descriptor %d" % fd, follow, ABSENT)
cwd = os.getcwd()
check("the working directory is inside the root", cwd.startswith("/") and "unreachable" not in cwd, cwd)


def overwrite_interpreter():
    fd = os.open("/proc/self/exe", os.O_WRONLY)
    return "opened %d" % fd


probe("overwrite /proc/self/exe", overwrite_interpreter, REFUSED | {errno.EROFS, errno.ETXTBSY})


def overwrite_by_magic_link():
    fd = os.open("/proc/self/exe", os.O_PATH)
    os.open("/proc/self/fd/%d" % fd, os.O_WRONLY | os.O_TRUNC)


probe("overwrite by a descriptor", overwrite_by_magic_link, REFUSED | {errno.EROFS, errno.ETXTBSY})
for pid in [p for p in os.listdir("/proc") if p.isdigit() and int(p) != os.getpid()]:
    probe("overwrite /proc/%s/exe" % pid, lambda: os.open("/proc/%s/exe" % pid, os.O_WRONLY),
          ABSENT | {errno.EROFS, errno.ETXTBSY, errno.ESRCH})
finish()
