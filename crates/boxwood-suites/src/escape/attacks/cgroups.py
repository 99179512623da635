# Leaving the cgroups that enforce the limits, or changing their limits.
WONT = ABSENT | {errno.EROFS}
mounted = [l for l in open("/proc/self/mountinfo") if " - cgroup" in l]
writable = []
for line in mounted:
    place = line.split()[4]
    for top, _, files in os.walk(place):
        writable += [os.path.join(top, f) for f in files if os.access(os.path.join(top, f), os.W_OK)]
check("no group can be written", not writable, repr(writable[:5]))
for path in ["/sys/fs/cgroup/cgroup.procs", "/sys/fs/cgroup/memory/cgroup.procs", "/sys/fs/cgroup/memory/release_agent",
             "/sys/fs/cgroup/pids/cgroup.procs", "/sys/fs/cgroup/unified/cgroup.procs", "/sys/fs/cgroup/memory.max",
             "/sys/fs/cgroup/pids.max", "/sys/fs/cgroup/devices/devices.allow", "/sys/fs/cgroup/cgroup.subtree_control"]:
    probe("write " + path, opens_for_writing(path), WONT)
# In a cgroup namespace a process sees its own cgroup as the root, not the host's layout.
own = [l.split(":", 2)[2] for l in open("/proc/self/cgroup").read().splitlines()]
if "cgroup_namespace" in sys.argv[1:]:
    check("the host's groups are not named", all(p == "/" or not p.strip("/").startswith("..") for p in own), repr(own))
os.makedirs("/tmp/cg", exist_ok=True)
for kind, options in [(b"cgroup2", 0), (b"cgroup", b"memory"), (b"cgroup", b"pids"), (b"cgroup", b"none,name=x")]:
    probe("mount %s" % kind.decode(), lambda: call("mount", b"c", b"/tmp/cg", kind, 0, options))
finish()
