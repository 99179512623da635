//! Describes why a command ended, with a hint.

use boxwood_api::Reason;

/// A short description, for lists.
pub(crate) fn short(reason: &Reason) -> String {
    match reason {
        Reason::Timeout => "timeout".to_owned(),
        Reason::Oom => "out of memory".to_owned(),
        Reason::PidsLimit => "process limit".to_owned(),
        Reason::DiskQuota => "disk full".to_owned(),
        Reason::OutputLimit => "too much output".to_owned(),
        Reason::Seccomp { syscall } => format!("system call {syscall} refused"),
        Reason::NetworkDenied { host } => format!("network to {host} refused"),
        Reason::Signal { signal } => format!("signal {signal}"),
        Reason::BoxGone => "box gone".to_owned(),
        Reason::Cancelled => "cancelled".to_owned(),
    }
}

/// A sentence for stderr, and a hint.
pub(crate) fn explain(reason: &Reason) -> (String, Option<&'static str>) {
    match reason {
        Reason::Timeout => (
            "the command exceeded its timeout and was stopped with its child processes".to_owned(),
            Some("increase the timeout with `--timeout 5m`, up to the limit of the profile"),
        ),
        Reason::Oom => (
            "the box reached its memory limit".to_owned(),
            Some("increase the limit with `--memory 1g`"),
        ),
        Reason::PidsLimit => (
            "the box reached its limit of processes".to_owned(),
            Some("increase the limit with `--pids 512`"),
        ),
        Reason::DiskQuota => (
            "a private area of the box is full, or its workspace is over its quota".to_owned(),
            Some("remove files, or increase the size with `--disk 2g`"),
        ),
        Reason::OutputLimit => (
            "the output exceeded its limit; its middle was omitted".to_owned(),
            None,
        ),
        Reason::Seccomp { syscall } => (
            format!("the system call `{syscall}` is not allowed in boxes"),
            None,
        ),
        Reason::NetworkDenied { host } => (format!("access to `{host}` is not allowed"), None),
        Reason::Signal { signal } => (format!("the command was ended by signal {signal}"), None),
        Reason::BoxGone => ("the box died while the command ran".to_owned(), None),
        Reason::Cancelled => ("the command was cancelled".to_owned(), None),
    }
}
