# Information about the host that is visible in the box. Arguments: the host's machine id, then login
# names of the host.
machine_id, names = sys.argv[1], sys.argv[2:]
accounts = open("/etc/passwd").read() + open("/etc/group").read()
told = [n for n in names if any(l.split(":")[0] == n for l in accounts.splitlines())]
check("accounts of people on the host", not told, repr(told))
for path in ["/etc/machine-id", "/var/lib/dbus/machine-id"]:
    try:
        content = open(path).read().strip()
    except OSError:
        content = ""
    check(path + " is not the host's", content == "" or content != machine_id, content)
for path in ["/proc/kallsyms", "/proc/modules"]:
    try:
        numbers = [w for l in open(path).read(400000).splitlines() for w in l.split() if len(w.strip("0x")) > 8 and all(c in "0123456789abcdefx" for c in w)]
    except OSError:
        numbers = []
    check("no kernel address in " + path, not numbers, repr(numbers[:3]))
probe("dmesg", lambda: call("syslog", 3, ctypes.create_string_buffer(4096), 4096))
for path in ["/proc/keys", "/proc/timer_list", "/proc/sched_debug", "/proc/kcore"]:
    try:
        content = open(path, "rb").read(256).strip(b"\0\n ")
    except OSError:
        content = b""
    check("nothing in " + path, not content, repr(content[:60]))
finish()
