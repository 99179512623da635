# Writing kernel settings under /proc and /sys, and reading what they reveal about the host.
import glob
WONT = ABSENT | {errno.EROFS, errno.EINVAL, errno.EIO}
for path in ["/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe",
             "/proc/sys/kernel/hostname", "/proc/sys/kernel/domainname", "/proc/sys/kernel/randomize_va_space",
             "/proc/sys/kernel/hotplug", "/proc/sys/vm/panic_on_oom", "/proc/sys/vm/overcommit_memory",
             "/proc/sys/fs/suid_dumpable", "/proc/sys/fs/binfmt_misc/register", "/proc/sys/net/ipv4/ip_forward",
             "/proc/sys/net/ipv4/ping_group_range", "/proc/sys/kernel/shmmax", "/proc/sys/user/max_user_namespaces",
             "/proc/sys/kernel/ns_last_pid", "/proc/kcore", "/proc/mtrr", "/proc/irq/default_smp_affinity",
             "/proc/timer_list", "/proc/sched_debug", "/proc/keys", "/proc/acpi/wakeup", "/proc/scsi/scsi",
             "/proc/bus/pci/00/00.0", "/proc/fs/ext4", "/proc/latency_stats",
             "/sys/kernel/uevent_helper", "/sys/kernel/mm/ksm/run", "/sys/power/state", "/sys/fs/cgroup/cgroup.procs",
             "/sys/kernel/security/landlock", "/sys/module/kernel/parameters/panic"]:
    probe("write " + path, opens_for_writing(path), WONT | {errno.EISDIR})

# All the others.
knobs = [p for p in glob.glob("/proc/sys/**", recursive=True) if os.path.isfile(p)]
open_ones = []
for path in knobs:
    try:
        os.close(os.open(path, os.O_WRONLY))
        open_ones.append(path)
    except OSError:
        pass
check("none of %d knobs opens for writing" % len(knobs), not open_ones, repr(open_ones[:5]))


def empty_or_refused(path):
    try:
        with open(path, "rb") as f:
            return f.read(4096).strip(b"\0\n ") == b""
    except OSError:
        return True


for path in ["/proc/kcore", "/proc/keys", "/proc/key-users", "/proc/timer_list", "/proc/sched_debug",
             "/proc/kpagecount", "/proc/kpageflags", "/proc/kmsg", "/proc/vmallocinfo"]:
    check("nothing to read in " + path, empty_or_refused(path))
try:
    addresses = {line.split()[0].strip("0") for line in open("/proc/kallsyms").read(200000).splitlines()}
except OSError:
    addresses = set()
check("kernel addresses are hidden", addresses <= {""}, repr(sorted(addresses)[:3]))
check("no /sys/firmware", not (os.path.isdir("/sys/firmware") and os.listdir("/sys/firmware")))
check("no /sys", not os.path.isdir("/sys") or not os.listdir("/sys"), repr(os.path.isdir("/sys") and os.listdir("/sys")))
finish()
