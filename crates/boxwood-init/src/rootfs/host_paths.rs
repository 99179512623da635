//! Host paths that are visible in a box with the `host` root.

/// Top-level system directories: bind-mounted read-only, or copied if they are symlinks.
pub(crate) const SYSTEM: [&str; 7] = ["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"];

/// Entries of `/etc` that programs need and that hold no secrets. A trailing `*` matches any suffix.
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

/// Files of `/proc` that expose or affect the host: covered with `/dev/null`.
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

/// Directories of `/proc` that are covered with an empty directory.
pub(crate) const PROC_HIDDEN_DIRECTORIES: [&str; 3] = ["acpi", "scsi", "asound"];

/// Directories of `/proc` that are remounted read-only.
pub(crate) const PROC_READ_ONLY: [&str; 4] = ["bus", "fs", "irq", "sys"];

/// Candidates for the directory on which the new root is mounted. Every host has one of them.
pub(crate) const STAGING: [&str; 4] = ["/tmp", "/mnt", "/var", "/run"];
