# Gaining a capability: from the start, by a setuid file, by file capabilities, by changing the uid.
import shutil, subprocess
status = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines())
for name in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"]:
    check(name + " is empty", int(status[name], 16) == 0, status[name].strip())
check("no_new_privs", status["NoNewPrivs"].strip() == "1")
check("seccomp filter", status["Seccomp"].strip() == "2")
check("one uid only", len(set(status["Uid"].split())) == 1, status["Uid"])

ASK = "import os; print(os.getuid(), os.geteuid(), os.getegid(), [l for l in open('/proc/self/status') if l.startswith('CapEff')][0].split()[1])"
EXPECT = [str(os.getuid()), str(os.getuid()), str(os.getgid()), "0" * 16]
for path in sys.argv[1:]:
    # Setuid copies of the interpreter that the test put into the workspace.
    try:
        done = subprocess.run([path, "-I", "-c", ASK], capture_output=True, text=True, timeout=20)
        check("run " + path, done.stdout.split() == EXPECT, (done.stdout + done.stderr)[-200:])
    except PermissionError as refusal:
        check("run " + path, True, errno_name(refusal.errno))
for program in ["su", "sudo", "pkexec", "mount", "newgrp", "passwd", "chsh", "fusermount3", "newuidmap"]:
    path = shutil.which(program)
    if path is None:
        continue
    # A setuid program of the host. Its mount is checked instead of starting it: with nosuid the bit has
    # no effect.
    flags = os.statvfs(path).f_flag
    check("%s lies on a nosuid mount" % path, flags & os.ST_NOSUID, hex(flags))
for place in ["/tmp", "/home", "/workspace", "/dev/shm", "/", "/usr"]:
    check(place + " is nosuid", os.statvfs(place).f_flag & os.ST_NOSUID)
for place in ["/tmp", "/home", "/workspace", "/dev/shm", "/", "/usr"]:
    check(place + " is nodev", os.statvfs(place).f_flag & os.ST_NODEV)
for uid in [0, 1, 2, 999, 65534]:
    if uid != os.getuid():
        probe("setuid %d" % uid, lambda: os.setuid(uid), REFUSED | {errno.EINVAL})
        probe("setresuid %d" % uid, lambda: os.setresuid(uid, uid, uid), REFUSED | {errno.EINVAL})
        probe("setgid %d" % uid, lambda: os.setgid(uid), REFUSED | {errno.EINVAL})
probe("setgroups", lambda: os.setgroups([0]), REFUSED | {errno.EINVAL})
shutil.copy("/bin/cat", "/workspace/cat-with-caps")
capability = struct.pack("<IIIII", 0x02000001, 0xFFFFFFFF, 0, 0xFFFFFFFF, 0)
probe("file capabilities", lambda: os.setxattr("/workspace/cat-with-caps", "security.capability", capability), REFUSED | {errno.EOPNOTSUPP})
probe("chown to root", lambda: os.chown("/workspace/cat-with-caps", 0, 0) if os.getuid() else os.chown("/workspace/cat-with-caps", 1, 1),
      REFUSED | {errno.EINVAL, errno.EOVERFLOW})
PR_CAP_AMBIENT, RAISE = 47, 2


def raise_ambient():
    if libc.prctl(PR_CAP_AMBIENT, RAISE, 21, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def clear_no_new_privs():
    if libc.prctl(38, 0, 0, 0, 0) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


probe("ambient CAP_SYS_ADMIN", raise_ambient, REFUSED | {errno.EINVAL})
probe("clear no_new_privs", clear_no_new_privs, REFUSED | {errno.EINVAL})
finish()
