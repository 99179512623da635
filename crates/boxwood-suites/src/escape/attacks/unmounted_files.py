# Files of the host that are not mounted. Arguments: the path of a secret, its content, and a path to
# write to. If the root is an image with its own files: `image`, and the hashes of the host's files as
# `sha256:...`.
import hashlib
secret, words, target = sys.argv[1], sys.argv[2].encode(), sys.argv[3]
WONT = ABSENT | {errno.EROFS, errno.ELOOP, errno.ESRCH, errno.EISDIR}
ways = [secret, "/proc/1/root" + secret, "/proc/self/root" + secret, "/proc/1/cwd/../../../../../.." + secret,
        "/proc/self/cwd/../../../../../../../.." + secret, "/.." * 20 + secret,
        "/workspace" + "/.." * 20 + secret, "/tmp/.." + secret, "/dev/fd/../../../../.." + secret]
ways += ["/proc/%s/root%s" % (pid, secret) for pid in os.listdir("/proc") if pid.isdigit()]
for way in ways:
    probe("read " + way, reads(way), WONT)
for way in [target, "/proc/1/root" + target, "/.." * 20 + target]:
    probe("write " + way, writes(way, b"box was here"), WONT)
    probe("create beside " + way, writes(way + ".new", b"box was here", os.O_CREAT), WONT)


def by_descriptor():
    """Walks up from an open directory; the kernel must stop at the box's root."""
    fd = os.open("/workspace", os.O_RDONLY | os.O_DIRECTORY)
    for _ in range(40):
        fd = os.open("..", os.O_RDONLY | os.O_DIRECTORY, dir_fd=fd)
    return os.read(os.open(secret.lstrip("/"), os.O_RDONLY, dir_fd=fd), 64)


probe("walk up by descriptor", by_descriptor, WONT)
for path in ["/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/root/.bashrc", "/root/.ssh", "/etc/ssh/ssh_host_ed25519_key",
             "/var/log/syslog", "/var/lib/dpkg/status-old", "/boot", "/var/lib/boxwood", "/run/boxwood"]:
    def look(path=path):
        if os.path.isdir(path):
            names = os.listdir(path)
            if not names:
                raise OSError(errno.ENOENT, "empty")
            return repr(names)
        content = open(path, "rb").read()
        if not content.strip():
            raise OSError(errno.ENOENT, "empty")
        if "image" in sys.argv and "sha256:" + hashlib.sha256(content).hexdigest() not in sys.argv:
            raise OSError(errno.ENOENT, "the image's own")
        return repr(content[:64])
    probe("look at " + path, look, WONT)

# No file that can be read in the box contains the secret.
seen, found = 0, []
for top, directories, files in os.walk("/"):
    if top in ("/proc", "/sys", "/usr", "/lib", "/bin", "/dev"):
        directories[:] = []
        continue
    for file in files:
        path = os.path.join(top, file)
        try:
            if not os.path.isfile(path) or os.path.getsize(path) > 1 << 20:
                continue
            with open(path, "rb") as f:
                seen += 1
                if words in f.read():
                    found.append(path)
        except OSError:
            pass
check("%d files searched" % seen, seen > 5 and not found, repr(found))
finish()
