# Creating device nodes, and opening devices in /dev.
import stat
for name, kind, device in [("null", stat.S_IFCHR, (1, 3)), ("mem", stat.S_IFCHR, (1, 1)),
                           ("kmsg", stat.S_IFCHR, (1, 11)), ("disk", stat.S_IFBLK, (254, 0)),
                           ("sda", stat.S_IFBLK, (8, 0)), ("loop", stat.S_IFBLK, (7, 0))]:
    for place in ["/tmp", "/workspace", "/dev/shm", "/home/box"]:
        def make(path="%s/%s" % (place, name), mode=kind | 0o666, number=os.makedev(*device)):
            os.mknod(path, mode, number)
            os.open(path, os.O_RDWR)
            return "made and opened"
        probe("mknod %s in %s" % (name, place), make, ABSENT | {errno.EROFS})
for path in ["/dev/mem", "/dev/kmem", "/dev/port", "/dev/kmsg", "/dev/kvm", "/dev/fuse", "/dev/loop0",
             "/dev/loop-control", "/dev/sda", "/dev/vda", "/dev/nvme0n1", "/dev/net/tun", "/dev/vhost-net",
             "/dev/vhost-vsock", "/dev/vsock", "/dev/uinput", "/dev/userfaultfd", "/dev/btrfs-control",
             "/dev/autofs", "/dev/cpu_dma_latency", "/dev/tty0", "/dev/tty1", "/dev/ttyS0", "/dev/console",
             "/dev/vcs", "/dev/hwrng", "/dev/rtc0", "/dev/snapshot", "/dev/mapper/control"]:
    def look(path=path):
        fd = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_NOCTTY)
        return "opened %s" % os.readlink("/proc/self/fd/%d" % fd)
    probe("open " + path, look, ABSENT)
# All devices in /dev must be harmless.
HARMLESS = {(1, 3), (1, 5), (1, 7), (1, 8), (1, 9), (5, 0), (5, 2)}
strange = []
for top, _, files in os.walk("/dev"):
    for file in files:
        path = os.path.join(top, file)
        info = os.lstat(path)
        if stat.S_ISBLK(info.st_mode):
            strange.append(path)
        if stat.S_ISCHR(info.st_mode):
            number = (os.major(info.st_rdev), os.minor(info.st_rdev))
            if number not in HARMLESS and number[0] not in range(136, 144):
                strange.append("%s %s" % (path, number))
check("only harmless devices", not strange, repr(strange))
finish()
