# A user namespace of one's own gives back every capability inside it, and with them the kernel's
# largest attack surface. By every call that can make or join one.
KINDS = dict(user=CLONE_NEWUSER, mount=CLONE_NEWNS, pid=CLONE_NEWPID, net=CLONE_NEWNET,
             ipc=CLONE_NEWIPC, uts=CLONE_NEWUTS, cgroup=CLONE_NEWCGROUP)

for name, flag in KINDS.items():
    probe("unshare %s" % name, lambda: call("unshare", flag))


def cloned(flags):
    # x86_64 takes (flags, stack, ...), every order used elsewhere also starts with the flags.
    pid = call("clone", flags | signal.SIGCHLD, 0, 0, 0, 0)
    if pid == 0:
        os._exit(0)
    return "cloned"


def cloned3(flags):
    args = struct.pack("Q" * 11, flags, 0, 0, 0, signal.SIGCHLD, 0, 0, 0, 0, 0, 0)
    pid = call("clone3", args, len(args))
    if pid == 0:
        os._exit(0)
    return "cloned"


for name, flag in KINDS.items():
    probe("clone %s" % name, lambda: cloned(flag))
    probe("clone3 %s" % name, lambda: cloned3(flag))
    probe("clone user+%s" % name, lambda: cloned(flag | CLONE_NEWUSER))
    # seccomp cannot see clone3's flags, so the call must be refused as a whole or fail by itself.
    probe("clone3 user+%s" % name, lambda: cloned3(flag | CLONE_NEWUSER))
# The same flags hidden in the upper half, which the kernel ignores for `unshare` and `clone`.
probe("unshare user, high bits set", lambda: call("unshare", CLONE_NEWUSER | (1 << 40)),
      REFUSED | {errno.EINVAL})
probe("clone user, high bits set", lambda: cloned(CLONE_NEWUSER | (1 << 40)),
      REFUSED | {errno.EINVAL})
for name in ["user", "mnt", "pid", "net", "ipc", "uts", "cgroup"]:
    def join(name=name):
        return call("setns", os.open("/proc/self/ns/" + name, os.O_RDONLY), 0)
    probe("setns own %s" % name, join, REFUSED | {errno.EINVAL} if name == "user" else REFUSED)

    def join_init(name=name):
        return call("setns", os.open("/proc/1/ns/" + name, os.O_RDONLY), 0)
    probe("setns init's %s" % name, join_init, ABSENT)
finish()
