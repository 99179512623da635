# Processes of the host. Arguments: the pid of a host process, a marker in its command line, variables of
# the daemon's environment that must not be readable anywhere.
pid, words, canaries = int(sys.argv[1]), sys.argv[2].encode(), [c.encode() for c in sys.argv[3:]]
ABSENT_PROCESS = ABSENT | {errno.ESRCH}
own = [int(p) for p in os.listdir("/proc") if p.isdigit()]
lines = {}
for other in own:
    try:
        lines[other] = open("/proc/%d/cmdline" % other, "rb").read()
    except OSError:
        pass
others = [p for p, line in lines.items() if words in line and p != os.getpid()]
check("the host's process is not in /proc (%d processes seen)" % len(own), not others, repr(others))
check("few processes", len(own) <= 8, repr(sorted(own)))
if pid not in own:
    for number in (0, signal.SIGTERM, signal.SIGKILL, signal.SIGSTOP):
        probe("kill -%d %d" % (number, pid), lambda: os.kill(pid, number), ABSENT_PROCESS)
    probe("pidfd_open", lambda: call("pidfd_open", pid, 0), ABSENT_PROCESS | {errno.EINVAL})
    probe("ptrace", lambda: call("ptrace", 16, pid, 0, 0), ABSENT_PROCESS)
    for name in ["mem", "environ", "root", "cwd", "fd", "maps", "cmdline"]:
        probe("/proc/%d/%s" % (pid, name), reads("/proc/%d/%s" % (pid, name)), ABSENT_PROCESS)
    probe("prlimit", lambda: call("prlimit64", pid, 7, struct.pack("QQ", 3, 3), 0), ABSENT_PROCESS)
    probe("renice", lambda: call("setpriority", 0, pid, 19), ABSENT_PROCESS)
for other in own:
    for name in ["environ", "cmdline"]:
        try:
            content = open("/proc/%d/%s" % (other, name), "rb").read()
        except OSError:
            continue
        leaked = [c for c in canaries if c in content and other != os.getpid()]
        check("/proc/%d/%s tells nothing of the daemon" % (other, name), not leaked, repr(leaked))


def all_processes():
    """Reaches only the box: the suite checks the host's process afterwards."""
    # In a child of its own session that survives long enough to report.
    os.kill(-1, signal.SIGCONT)
    raise OSError(errno.EPERM, "reached the box's own only")


probe("kill all processes", all_processes, ABSENT_PROCESS)
finish()
