# Changing what is mounted: by the old call, by the new ones, by leaving the root.
os.makedirs("/tmp/m", exist_ok=True)
os.makedirs("/tmp/n", exist_ok=True)
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_MOVE, MS_REC, MS_PRIVATE = 1, 32, 4096, 8192, 16384, 1 << 18

probe("mount tmpfs", lambda: call("mount", b"t", b"/tmp/m", b"tmpfs", 0, 0))
probe("mount proc", lambda: call("mount", b"p", b"/tmp/m", b"proc", 0, 0))
probe("mount sysfs", lambda: call("mount", b"s", b"/tmp/m", b"sysfs", 0, 0))
probe("mount cgroup v1", lambda: call("mount", b"c", b"/tmp/m", b"cgroup", 0, b"memory"))
probe("mount cgroup v2", lambda: call("mount", b"c", b"/tmp/m", b"cgroup2", 0, 0))
probe("mount overlay", lambda: call("mount", b"o", b"/tmp/m", b"overlay", 0, b"lowerdir=/usr:/tmp/n"))
probe("mount devpts", lambda: call("mount", b"d", b"/tmp/m", b"devpts", 0, 0))
probe("bind mount", lambda: call("mount", b"/usr", b"/tmp/m", 0, MS_BIND | MS_REC, 0))
probe("remount / writable", lambda: call("mount", b"none", b"/", 0, MS_REMOUNT | MS_BIND, 0))
probe("remount /usr writable", lambda: call("mount", b"none", b"/usr", 0, MS_REMOUNT | MS_BIND, 0))
probe("remount /proc", lambda: call("mount", b"none", b"/proc", 0, MS_REMOUNT, 0))
probe("move a mount", lambda: call("mount", b"/tmp", b"/home", 0, MS_MOVE, 0))
probe("make / private", lambda: call("mount", b"none", b"/", 0, MS_REC | MS_PRIVATE, 0))
for masked in [b"/", b"/proc", b"/proc/sys", b"/tmp", b"/workspace", b"/usr"]:
    probe("umount %s" % masked.decode(), lambda: call("umount2", masked, 2))
probe("fsopen", lambda: call("fsopen", b"tmpfs", 0))
probe("fspick", lambda: call("fspick", AT_FDCWD, b"/tmp", 0))
probe("open_tree clone", lambda: call("open_tree", AT_FDCWD, b"/usr", 1 | 0x8000))
probe("move_mount", lambda: call("move_mount", AT_FDCWD, b"/tmp", AT_FDCWD, b"/home", 0))
ATTR = struct.pack("QQQQ", 0, 1, 0, 0)  # clear MOUNT_ATTR_RDONLY
probe("mount_setattr", lambda: call("mount_setattr", AT_FDCWD, b"/usr", 0, ATTR, len(ATTR)))
probe("pivot_root", lambda: call("pivot_root", b"/tmp", b"/tmp/m"))


def walk_out():
    """The classic: chroot deeper while keeping a descriptor, then walk up."""
    top = os.open("/", os.O_RDONLY)
    call("chroot", b"/tmp/m")
    os.fchdir(top)
    for _ in range(64):
        os.chdir("..")
    return "chroot allowed"


probe("chroot walk", walk_out)
# A shared mount passes what is mounted below it to its peers, and those would be the host's.
peers = [line.strip() for line in open("/proc/self/mountinfo") if " shared:" in line.split(" - ")[0]]
check("no mount is a peer of the host's", not peers, repr(peers))
finish()
