# On a terminal of the box: simulating typed characters, and reaching the console of the host.
import fcntl, termios
TIOCLINUX, TIOCCONS, TIOCSETD = 0x541C, 0x541D, 0x5423
check("this is a terminal", os.isatty(0))
probe("TIOCSTI", lambda: fcntl.ioctl(0, termios.TIOCSTI, b"x"), REFUSED | {errno.EIO})
# The ioctl number is 32 bits wide for the kernel; a filter that compares 64 misses this one.
probe("TIOCSTI, high bits set",
      lambda: call({"x86_64": 16, "aarch64": 29}[os.uname().machine], 0, termios.TIOCSTI | (1 << 32), b"x"),
      REFUSED | {errno.EIO})
probe("TIOCLINUX", lambda: fcntl.ioctl(0, TIOCLINUX, b"\x02"), REFUSED | {errno.ENOTTY, errno.EINVAL})
probe("TIOCCONS", lambda: fcntl.ioctl(0, TIOCCONS), REFUSED | {errno.ENOTTY})
for fd in range(0, 3):
    path = os.ttyname(fd)
    check("descriptor %d is the box's own terminal" % fd, path.startswith("/dev/pts/"), path)
check("no other terminal in /dev/pts", set(os.listdir("/dev/pts")) <= {"ptmx", os.path.basename(os.ttyname(0))}, repr(os.listdir("/dev/pts")))



def takes_them_all():
    held = []
    while len(held) < 1000:
        held.append(os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY))
    return "opened %d terminals" % len(held)


if "counted" in sys.argv:
    probe("take the host's terminals", takes_them_all, {errno.ENOSPC})
finish()
