# A setuid or setgid file left in a mounted directory would run with its owner's rights on the host.
# By every call that can set the bits; the test then looks at the directory from the host.
import shutil
SUID, SGID = 0o4755, 0o2755
shutil.copy("/bin/cat", "/workspace/tool")


def held_if_cleared(path):
    """Refusing and quietly dropping the bits are both fine; keeping them is not."""
    mode = os.stat(path).st_mode
    if not mode & 0o6000:
        raise OSError(errno.EPERM, "bits dropped")
    return "mode %o" % mode


def chmod(mode):
    os.chmod("/workspace/tool", mode)
    return held_if_cleared("/workspace/tool")


def fchmod(mode):
    fd = os.open("/workspace/tool", os.O_RDONLY)
    os.fchmod(fd, mode)
    return held_if_cleared("/workspace/tool")


def by_fchmodat(name, mode):
    call(name, AT_FDCWD, b"/workspace/tool", mode, 0)
    return held_if_cleared("/workspace/tool")


def created(mode):
    os.umask(0)
    path = "/workspace/born-%o" % mode
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, mode))
    return held_if_cleared(path)


def node(mode):
    import stat
    os.umask(0)
    path = "/workspace/node-%o" % mode
    os.mknod(path, stat.S_IFREG | mode)
    return held_if_cleared(path)


for mode in (SUID, SGID, 0o6777):
    for name, attack in [("chmod", chmod), ("fchmod", fchmod), ("open", created), ("mknod", node)]:
        probe("%s %o" % (name, mode), lambda: attack(mode))
    probe("fchmodat %o" % mode, lambda: by_fchmodat("fchmodat", mode))
    probe("fchmodat2 %o" % mode, lambda: by_fchmodat("fchmodat2", mode))
finish()
