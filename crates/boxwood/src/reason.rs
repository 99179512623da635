//! Says in words why a command stopped, and what to do about it.

use boxwood_api::Reason;

/// A word or two, for lists.
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

/// A sentence for stderr, and the next step where there is one.
pub(crate) fn explain(reason: &Reason) -> (String, Option<&'static str>) {
    match reason {
        Reason::Timeout => (
            "the command ran longer than its timeout and was stopped, with everything it had started".to_owned(),
            Some("give it more time with `--timeout 5m`, as far as the profile allows"),
        ),
        Reason::Oom => (
            "the box reached its memory limit".to_owned(),
            Some("give it more with `--memory 1g`"),
        ),
        Reason::PidsLimit => (
            "the box reached its limit of processes".to_owned(),
            Some("allow more with `--pids 512`"),
        ),
        Reason::DiskQuota => (
            "a private area of the box is full, or its workspace is over its quota".to_owned(),
            Some("remove files, or give it more with `--disk 2g`"),
        ),
        Reason::OutputLimit => ("more output than is kept; the middle was left out".to_owned(), None),
        Reason::Seccomp { syscall } => (
            format!("the system call `{syscall}` is not allowed in boxes"),
            None,
        ),
        Reason::NetworkDenied { host } => (format!("the box may not reach `{host}`"), None),
        Reason::Signal { signal } => (format!("the command was ended by signal {signal}"), None),
        Reason::BoxGone => ("the box died while the command ran".to_owned(), None),
        Reason::Cancelled => ("the command was cancelled".to_owned(), None),
    }
}
