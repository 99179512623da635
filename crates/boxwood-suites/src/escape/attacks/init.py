# The daemon trusts PID 1 of the box. A command must not be able to stop, slow down or read it, or to
# connect to it. With the argument `same_uid`, the host has only one uid for the box: signals to PID 1
# are accepted by the kernel and have no effect; everything else must be refused too.
SAME_UID = "same_uid" in sys.argv[1:]



def stat_of_init():
    """State, priority and niceness; nothing where /proc hides other users' processes."""
    try:
        fields = open("/proc/1/stat").read().rsplit(")", 1)[1].split()
        return fields[0], fields[15], fields[16]
    except OSError:
        return "S", "hidden", "hidden"


before = stat_of_init()
for number in [signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV, signal.SIGTERM, signal.SIGCHLD]:
    def shoot(number=number):
        os.kill(1, number)
        if SAME_UID:
            raise OSError(errno.EPERM, "taken and ignored: PID 1")
    probe("kill -%d 1" % number, shoot)

PTRACE_ATTACH, PTRACE_SEIZE = 16, 0x4206
probe("ptrace attach", lambda: call("ptrace", PTRACE_ATTACH, 1, 0, 0))
probe("ptrace seize", lambda: call("ptrace", PTRACE_SEIZE, 1, 0, 0))
local = ctypes.create_string_buffer(16)
iov = struct.pack("QQ", ctypes.addressof(local), 16)
far = struct.pack("QQ", 0x400000, 16)
probe("process_vm_readv", lambda: call("process_vm_readv", 1, iov, 1, far, 1, 0))
probe("process_vm_writev", lambda: call("process_vm_writev", 1, iov, 1, far, 1, 0))
probe("kcmp", lambda: call("kcmp", 1, os.getpid(), 0, 0, 0))
probe("pidfd_getfd", lambda: call("pidfd_getfd", call("pidfd_open", 1, 0), 3, 0))


def by_pidfd():
    call("pidfd_send_signal", call("pidfd_open", 1, 0), signal.SIGKILL, 0, 0)
    if SAME_UID:
        raise OSError(errno.EPERM, "taken and ignored: PID 1")


probe("pidfd_send_signal", by_pidfd)
for name, resource, limit in [("NOFILE", 7, 3), ("CPU", 0, 0), ("AS", 9, 4096), ("NPROC", 6, 0)]:
    probe("prlimit %s" % name,
          lambda: call("prlimit64", 1, resource, struct.pack("QQ", limit, limit), 0))
probe("affinity", lambda: call("sched_setaffinity", 1, 8, struct.pack("Q", 1)))
probe("SCHED_IDLE", lambda: call("sched_setscheduler", 1, 5, struct.pack("i", 0)))
probe("SCHED_OTHER by sched_setparam", lambda: call("sched_setparam", 1, struct.pack("i", 0)))
probe("sched_setattr", lambda: call("sched_setattr", 1, struct.pack("IIQiIQQQ", 48, 5, 0, 0, 0, 0, 0, 0), 0))
probe("renice", lambda: call("setpriority", 0, 1, 19))
# May succeed on the command's own processes; what counts is init's niceness at the end.
for which in (1, 2):
    try:
        call("setpriority", which, 0, 5)
    except OSError:
        pass
probe("ioprio", lambda: call("ioprio_set", 1, 1, (3 << 13)))
probe("move_pages", lambda: call("move_pages", 1, 1, struct.pack("Q", 0x400000), struct.pack("i", 0), ctypes.create_string_buffer(8), 2))
probe("migrate_pages", lambda: call("migrate_pages", 1, 8, struct.pack("Q", 1), struct.pack("Q", 1)))
probe("process_madvise", lambda: call("process_madvise", call("pidfd_open", 1, 0), far, 1, 20, 0),
      REFUSED | {errno.EINVAL})

for name in ["mem", "environ", "maps", "auxv", "stack", "syscall", "io", "pagemap", "smaps", "exe"]:
    probe("read /proc/1/" + name, reads("/proc/1/" + name), ABSENT)
for name in ["root", "cwd", "exe"]:
    probe("follow /proc/1/" + name, lambda: os.readlink("/proc/1/" + name), ABSENT)
for name in ["root", "cwd"]:
    probe("list /proc/1/" + name, lambda: os.listdir("/proc/1/" + name), ABSENT)
for name in ["fd", "fdinfo", "map_files", "task/1/fd"]:
    probe("list /proc/1/" + name, lambda: os.listdir("/proc/1/" + name), ABSENT)
for name in ["mem", "oom_score_adj", "clear_refs", "coredump_filter", "comm", "uid_map", "setgroups",
             "attr/current", "timerslack_ns", "loginuid", "autogroup"]:
    probe("write /proc/1/" + name, writes("/proc/1/" + name, b"0"), ABSENT | {errno.EINVAL, errno.EROFS})

# Its socket must not be reachable by a descriptor, a path or an abstract name.
names = [line.split(" ", 7)[7:] for line in open("/proc/net/unix").read().splitlines()[1:]]
names = [n[0].strip() for n in names if n and n[0].strip()]
for name in names:
    address = "\0" + name[1:] if name.startswith("@") else name

    def speak(address=address):
        for kind in (socket.SOCK_SEQPACKET, socket.SOCK_STREAM):
            try:
                with socket.socket(socket.AF_UNIX, kind) as s:
                    s.settimeout(2)
                    s.connect(address)
                    return "connected to " + repr(address)
            except OSError as refusal:
                if refusal.errno != errno.EPROTOTYPE:
                    raise
        raise OSError(errno.EACCES, "neither kind")
    probe("speak to %r" % address, speak, ABSENT | {errno.ECONNREFUSED})
check("named sockets seen: %d" % len(names), True)
own = {fd: os.readlink("/proc/self/fd/" + fd) for fd in os.listdir("/proc/self/fd") if os.path.lexists("/proc/self/fd/" + fd)}
check("no inherited socket", not any(t.startswith("socket:") for t in own.values()), repr(own))
after = stat_of_init()
check("init is not stopped", after[0] in "SRID", after[0])
check("init's priority and niceness are as before", after[1:] == before[1:], "%s %s" % (before, after))
finish()
