# Socket families that reach past a network namespace or into rarely walked kernel code.
AF_ALG, AF_VSOCK, AF_PACKET, AF_KEY, AF_RDS, AF_XDP, AF_TIPC, AF_BLUETOOTH, AF_NFC, AF_CAN = 38, 40, 17, 15, 21, 44, 30, 31, 39, 29
NOT_HERE = REFUSED | {errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT, errno.ESOCKTNOSUPPORT, errno.ENODEV}


def opens(family, kind, protocol=0):
    def attack():
        socket.socket(family, kind, protocol)
        return "opened"
    return attack


probe("raw IPv4", opens(socket.AF_INET, socket.SOCK_RAW, 1), NOT_HERE)
probe("raw IPv4, any protocol", opens(socket.AF_INET, socket.SOCK_RAW, 255), NOT_HERE)
probe("raw IPv6", opens(socket.AF_INET6, socket.SOCK_RAW, 58), NOT_HERE)
probe("packet raw", opens(AF_PACKET, socket.SOCK_RAW, 0x0300), NOT_HERE)
probe("packet dgram", opens(AF_PACKET, socket.SOCK_DGRAM, 0x0300), NOT_HERE)
probe("vsock stream", opens(AF_VSOCK, socket.SOCK_STREAM), NOT_HERE)
probe("vsock dgram", opens(AF_VSOCK, socket.SOCK_DGRAM), NOT_HERE)
probe("alg", opens(AF_ALG, socket.SOCK_SEQPACKET), NOT_HERE)
for name, family in [("key", AF_KEY), ("rds", AF_RDS), ("xdp", AF_XDP), ("tipc", AF_TIPC),
                     ("bluetooth", AF_BLUETOOTH), ("nfc", AF_NFC), ("can", AF_CAN)]:
    probe(name, opens(family, socket.SOCK_RAW), NOT_HERE)


def netlink(protocol, message):
    def attack():
        s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol)
        s.settimeout(5)
        s.bind((0, 0))
        s.send(message)
        reply = s.recv(4096)
        if struct.unpack("=H", reply[4:6])[0] == 2:
            code = -struct.unpack("=i", reply[16:20])[0]
            if code:
                raise OSError(code, os.strerror(code))
        return "answered %r" % reply[:24]
    return attack


def message(kind, body, flags=5):
    return struct.pack("=IHHII", 16 + len(body), kind, flags, 1, 0) + body


# Route change: add 203.0.113.0/24 by way of lo. Link: a dummy. Netfilter: a table.
route = struct.pack("=BBBBBBBBI", 2, 24, 0, 0, 254, 3, 253, 1, 0) + struct.pack("=HH4s", 8, 1, bytes([203, 0, 113, 0])) + struct.pack("=HHI", 8, 4, 1)
probe("add a route", netlink(0, message(24, route, 0x605)), NOT_HERE)
link = struct.pack("=BBHiII", 0, 0, 0, 0, 0, 0) + struct.pack("=HH", 16, 18) + struct.pack("=HH", 9, 1) + b"dummy\0\0\0"
probe("add a link", netlink(0, message(16, link, 0x605)), NOT_HERE)
address = struct.pack("=BBBBI", 2, 32, 0, 0, 1) + struct.pack("=HH4s", 8, 2, bytes([203, 0, 113, 9]))
probe("add an address", netlink(0, message(20, address, 0x605)), NOT_HERE)
probe("audit", netlink(9, message(1000, b"")), NOT_HERE | {errno.ECONNREFUSED})
SIOCSIFFLAGS = 0x8914


def lower_loopback():
    import fcntl
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    fcntl.ioctl(s, SIOCSIFFLAGS, struct.pack("16sH14s", b"lo", 0, b""))
    return "took lo down"


probe("take lo down", lower_loopback, NOT_HERE)
finish()
