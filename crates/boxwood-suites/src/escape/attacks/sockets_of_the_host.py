# Unix sockets of the host, such as those of engines, D-Bus and agents. None may be visible or reachable.
import stat
KNOWN = ["/var/run/docker.sock", "/run/docker.sock", "/run/podman/podman.sock", "/run/containerd/containerd.sock",
         "/run/dbus/system_bus_socket", "/run/systemd/notify", "/run/systemd/private", "/run/udev/control",
         "/tmp/.X11-unix/X0", "/run/user/0/bus", "/run/user/1000/bus", "/run/crio/crio.sock", "/run/snapd.socket",
         "/dev/log", "/run/boxwood/boxwood.sock", "/run/nscd/socket"] + sys.argv[1:]


def speaks(path):
    def attack():
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
            try:
                with socket.socket(socket.AF_UNIX, kind) as s:
                    s.connect(path)
                    return "connected to " + path
            except OSError as refusal:
                if refusal.errno != errno.EPROTOTYPE:
                    raise
        raise OSError(errno.EACCES, "no kind fits")
    return attack


for path in KNOWN:
    probe("connect " + path, speaks(path), ABSENT | {errno.ECONNREFUSED})
found = []
for top, directories, files in os.walk("/"):
    if top in ("/proc", "/usr", "/lib", "/bin"):
        directories[:] = []
        continue
    for file in files:
        path = os.path.join(top, file)
        try:
            if stat.S_ISSOCK(os.lstat(path).st_mode):
                found.append(path)
        except OSError:
            pass
check("no socket anywhere on the file system", not found, repr(found))
for name in ["SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS", "NOTIFY_SOCKET", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "DOCKER_HOST"]:
    check("no %s" % name, name not in os.environ)
finish()
