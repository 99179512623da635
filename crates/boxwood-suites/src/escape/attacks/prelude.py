# Runs before every attack. An attack is a list of probes; each runs in a child process, so that one
# that succeeds or is killed does not affect the next.
#
# A probe is a function that returns when the attack WORKED and raises OSError when it was refused.
# It raises Harmless when it reached something of the box itself. Any other end means that the attack
# was not really made, and is a failure too.
#
# A probe that succeeds must not harm the host: it opens files for writing without writing, sets values
# to what they are, and names objects that do not exist.
import ctypes, errno, os, select, signal, socket, stat, struct, sys, time

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long

REFUSED = {errno.EPERM, errno.EACCES, errno.ENOSYS}
ABSENT = REFUSED | {errno.ENOENT, errno.ENOTDIR, errno.ENXIO, errno.ENODEV}

_X86_64 = dict(
    personality=135, ptrace=101, sched_setparam=142, sched_setscheduler=144, setpriority=141,
    pivot_root=155, adjtimex=159, chroot=161, acct=163, settimeofday=164, mount=165, umount2=166,
    swapon=167, swapoff=168, reboot=169, sethostname=170, setdomainname=171, init_module=175,
    delete_module=176, quotactl=179, sched_setaffinity=203, clock_settime=227, kexec_load=246,
    add_key=248, request_key=249, keyctl=250, ioprio_set=251, mknodat=259, unshare=272,
    move_pages=279, perf_event_open=298, fanotify_init=300, prlimit64=302, name_to_handle_at=303,
    open_by_handle_at=304, setns=308, process_vm_readv=310, process_vm_writev=311, kcmp=312,
    finit_module=313, sched_setattr=314, kexec_file_load=320, bpf=321, userfaultfd=323, clone=56,
    syslog=103, fchmodat=268, mkdirat=258, openat=257, getpid=39, migrate_pages=256, vhangup=153,
    mq_open=240, shmget=29, msgget=68, semget=64)
_AARCH64 = dict(
    personality=92, ptrace=117, sched_setparam=118, sched_setscheduler=119, setpriority=140,
    pivot_root=41, adjtimex=171, chroot=51, acct=89, settimeofday=170, mount=40, umount2=39,
    swapon=224, swapoff=225, reboot=142, sethostname=161, setdomainname=162, init_module=105,
    delete_module=106, quotactl=60, sched_setaffinity=122, clock_settime=112, kexec_load=104,
    add_key=217, request_key=218, keyctl=219, ioprio_set=30, mknodat=33, unshare=97,
    move_pages=239, perf_event_open=241, fanotify_init=262, prlimit64=261, name_to_handle_at=264,
    open_by_handle_at=265, setns=268, process_vm_readv=270, process_vm_writev=271, kcmp=272,
    finit_module=273, sched_setattr=274, kexec_file_load=294, bpf=280, userfaultfd=282, clone=220,
    syslog=116, fchmodat=53, mkdirat=34, openat=56, getpid=172, migrate_pages=238, vhangup=58,
    mq_open=180, shmget=194, msgget=186, semget=190)
_SHARED = dict(
    pidfd_send_signal=424, io_uring_setup=425, open_tree=428, move_mount=429, fsopen=430,
    fsconfig=431, fsmount=432, fspick=433, pidfd_open=434, clone3=435, pidfd_getfd=438,
    process_madvise=440, mount_setattr=442, quotactl_fd=443, landlock_create_ruleset=444,
    fchmodat2=452)
NR = {**{"x86_64": _X86_64, "aarch64": _AARCH64}[os.uname().machine], **_SHARED}

CLONE_NEWNS, CLONE_NEWCGROUP, CLONE_NEWUTS = 0x20000, 0x02000000, 0x04000000
CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x08000000, 0x10000000, 0x20000000, 0x40000000
AT_FDCWD = -100


def call(name, *args):
    """One raw system call; a refusal is an OSError."""
    number = NR[name] if isinstance(name, str) else name
    ctypes.set_errno(0)
    wide = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    answer = libc.syscall(ctypes.c_long(number), *wide)
    if answer == -1:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return answer


class Harmless(Exception):
    """The attack worked, on the box itself."""


def errno_name(code):
    return errno.errorcode.get(code, str(code))


_results = []


def probe(name, attack, refused=REFUSED, seconds=20, deaths=frozenset({signal.SIGSYS})):
    """Tries one attack in a child and notes what came of it."""
    sys.stdout.flush()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        signal.alarm(seconds)
        try:
            said = attack()
            text = "broken %s" % ("" if said is None else said)
        except OSError as refusal:
            if isinstance(refusal, TimeoutError) and refusal.errno is None:
                refusal = OSError(errno.ETIMEDOUT, "timed out")
            kind = "held" if refusal.errno in refused else "unclear"
            text = "%s %s" % (kind, errno_name(refusal.errno))
        except Harmless as reason:
            text = "held %s" % reason
        except BaseException as fault:
            text = "unclear %r" % (fault,)
        os.write(writer, text.encode()[:4000])
        os._exit(0)
    os.close(writer)
    said = b""
    while True:
        part = os.read(reader, 4096)
        if not part:
            break
        said += part
    os.close(reader)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        # The filter may kill instead of refusing.
        said = b"%s died by signal %d" % (b"held" if number in deaths else b"unclear", number)
    kind, _, detail = (said.decode(errors="replace") or "unclear no answer").partition(" ")
    note(name, kind, detail)


def note(name, kind, detail=""):
    _results.append((name, kind, detail))
    print("probe %s: %s %s" % (name, kind, detail))


def check(name, held, detail=""):
    """An observation instead of an attempt."""
    note(name, "held" if held else "broken", detail)


def finish():
    """The one line the suite reads."""
    bad = ["%s (%s %s)" % r for r in _results if r[1] != "held"]
    if bad:
        print("VERDICT broken: " + "; ".join(bad))
    else:
        print("VERDICT held %d" % len(_results))
    sys.stdout.flush()
    sys.exit(1 if bad else 0)


def host_uid():
    """The uid in the parent user namespace: the host's, unless an ordinary user started the daemon."""
    for line in open("/proc/self/uid_map"):
        inside, outside, count = map(int, line.split())
        if inside <= os.getuid() < inside + count:
            return outside + os.getuid() - inside
    return None


# The probes must not run with the rights of the host's root. A box that has them is broken anyway. A
# box of an ordinary user cannot have them.
if host_uid() == 0 and "STARTED_BY_AN_ORDINARY_USER" not in os.environ:
    print("VERDICT broken: commands have the uid of the host's root")
    sys.exit(1)


def opens_for_writing(path):
    """An attack: the permission to write to something of the kernel's. Never writes."""
    def attack():
        info = os.fstat(os.open(path, os.O_WRONLY))
        if stat.S_ISCHR(info.st_mode) and info.st_rdev == os.makedev(1, 3):
            raise OSError(errno.ENOENT, "masked by /dev/null")
        return "opened %s for writing" % path
    return attack


def writes(path, data=b"x", flags=0):
    """An attack: write to a path."""
    def attack():
        fd = os.open(path, os.O_WRONLY | flags)
        os.write(fd, data)
        return "wrote to " + path
    return attack


def reads(path, size=64):
    """An attack: read from a path."""
    def attack():
        fd = os.open(path, os.O_RDONLY)
        return "read %r from %s" % (os.read(fd, size), path)
    return attack
