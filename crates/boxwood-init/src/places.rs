//! Which places of the host a box with the `host` root sees.

/// System directories at the top: bound read-only, or copied as symlinks where they are that.
pub(crate) const SYSTEM: [&str; 7] = ["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"];

/// What programs need of `/etc` and that holds no secret: names end at the first component that
/// varies (`*`). Everything else in `/etc` does not exist in a box.
pub(crate) const ETC: [&str; 20] = [
    "alternatives",
    "ca-certificates",
    "crypto-policies",
    "debian_version",
    "fonts",
    "java-*",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
    "os-release",
    "perl",
    "pki/ca-trust",
    "protocols",
    "python3*",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
    "timezone",
];

pub(crate) const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// Files of `/proc` that tell about the host or reach into it: hidden behind `/dev/null`.
pub(crate) const PROC_HIDDEN_FILES: [&str; 8] = [
    "kcore",
    "keys",
    "key-users",
    "kmsg",
    "latency_stats",
    "sched_debug",
    "sysrq-trigger",
    "timer_list",
];

/// Directories of `/proc` that an empty one takes the place of.
pub(crate) const PROC_HIDDEN_DIRECTORIES: [&str; 3] = ["acpi", "scsi", "asound"];

/// Directories of `/proc` that stay visible and cannot be written.
pub(crate) const PROC_READ_ONLY: [&str; 4] = ["bus", "fs", "irq", "sys"];

/// A directory every host has, to stand on while the box's root is put together.
pub(crate) const STAGES: [&str; 4] = ["/tmp", "/mnt", "/var", "/run"];
