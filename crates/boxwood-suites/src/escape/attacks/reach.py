# Reaching something over the network. Arguments: one `kind:address:port` each (tcp, udp), or
# `abstract::name`. Every attempt must fail; the listeners count what arrives anyway.
import ipaddress
WONT = REFUSED | {errno.ECONNREFUSED, errno.ENETUNREACH, errno.EHOSTUNREACH, errno.ETIMEDOUT,
                  errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.ENONET, errno.EHOSTDOWN, errno.EINVAL}


def gateways():
    found = []
    for line in open("/proc/net/route").read().splitlines()[1:]:
        fields = line.split("\t")
        if fields[2] != "00000000":
            found.append(socket.inet_ntoa(struct.pack("<I", int(fields[2], 16))))
    return found


def connect(kind, address, port):
    def attack():
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        s = socket.socket(family, socket.SOCK_STREAM if kind == "tcp" else socket.SOCK_DGRAM)
        s.settimeout(1.5)
        s.connect((address, port))
        if kind == "udp":
            # The kernel accepts a datagram even if it does not arrive. A reply would be a failure; an
            # arrival is counted outside the box.
            s.send(b"box")
            return s.recv(64)
        return connection(s)
    return attack


def connection(s):
    """What a connected TCP socket is connected to. State 1 is ESTABLISHED."""
    names = []
    for ask in (s.getsockname, s.getpeername):
        try:
            names.append(ask()[:2])
        except OSError as fault:
            names.append(errno_name(fault.errno))
    # For an address of the box itself, the kernel may choose the target port as the source port.
    if names[0] == names[1]:
        raise Harmless("connected to itself")
    state = s.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    return "connected: socket %s, peer %s, TCP state %d" % (*names, state)


def abstract(name):
    def attack():
        for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_DGRAM):
            try:
                with socket.socket(socket.AF_UNIX, kind) as s:
                    s.connect("\0" + name)
                    return "connected to abstract " + name
            except OSError as refusal:
                if refusal.errno not in (errno.EPROTOTYPE, errno.ECONNREFUSED):
                    raise
        raise OSError(errno.ECONNREFUSED, "no such socket")
    return attack


for target in sys.argv[1:]:
    kind, rest = target.split(":", 1)
    if kind == "abstract":
        probe("abstract socket", abstract(rest.lstrip(":")), WONT)
        continue
    address, port = rest.rsplit(":", 1)
    for spelling in gateways() if address == "GATEWAY" else [address]:
        probe("%s %s port %s" % (kind, spelling, port), connect(kind, spelling, int(port)), WONT)
        if address != "GATEWAY" and "." in spelling and kind == "tcp":
            mapped = "::ffff:" + spelling
            probe("%s %s port %s" % (kind, mapped, port), connect(kind, mapped, int(port)), WONT)
check("interfaces", True, repr([l.split(":")[0].strip() for l in open("/proc/net/dev").read().splitlines()[2:]]))
finish()
