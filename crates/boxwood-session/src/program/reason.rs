//! Maps the exit of a program to the reason that is reported.

use boxwood_api::Reason;
use boxwood_backend::{Exit, ExitStatus};

/// What caused the end of a program, if the daemon knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndCause {
    Unknown,
    /// A signal, a stop, a delete.
    Caller,
    /// The workspace was over its quota, or the host was low on disk space.
    Quota,
}

/// Limits that were reached explain a failure only: a program that exits with 0 has no reason.
pub(crate) fn reason(exit: &Exit, cause: EndCause) -> Option<Reason> {
    let by_caller = cause == EndCause::Caller;
    match exit.status {
        ExitStatus::Code(0) => return None,
        ExitStatus::BoxGone | ExitStatus::Signal(_) if by_caller => {
            return Some(Reason::Cancelled);
        }
        _ if cause == EndCause::Quota => return Some(Reason::DiskQuota),
        ExitStatus::BoxGone => return Some(Reason::BoxGone),
        ExitStatus::Code(_) | ExitStatus::Signal(_) => {}
    }
    if exit.oom {
        return Some(Reason::Oom);
    }
    if exit.pids_limit {
        return Some(Reason::PidsLimit);
    }
    if let Some(syscall) = &exit.denied_syscall {
        return Some(Reason::Seccomp {
            syscall: syscall.clone(),
        });
    }
    if exit.disk_full {
        return Some(Reason::DiskQuota);
    }
    match exit.status {
        ExitStatus::Signal(signal) => Some(Reason::Signal { signal }),
        ExitStatus::Code(_) | ExitStatus::BoxGone => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plain(status: ExitStatus) -> Exit {
        Exit {
            status,
            oom: false,
            pids_limit: false,
            disk_full: false,
            denied_syscall: None,
        }
    }

    #[expect(clippy::needless_pass_by_value, reason = "cases read better so")]
    fn check(exit: &Exit, cause: EndCause, expected: Option<Reason>) {
        assert_eq!(reason(exit, cause), expected, "{exit:?} {cause:?}");
    }

    #[test]
    fn exit_code_0_has_no_reason() {
        let mut exit = plain(ExitStatus::Code(0));
        exit.oom = true;
        exit.pids_limit = true;
        exit.disk_full = true;
        exit.denied_syscall = Some("mount".to_owned());
        check(&exit, EndCause::Unknown, None);
        check(&exit, EndCause::Caller, None);
    }

    #[test]
    fn counters_explain_a_failure() {
        let failed = || plain(ExitStatus::Code(1));
        check(&failed(), EndCause::Unknown, None);
        let mut oom = plain(ExitStatus::Signal(9));
        oom.oom = true;
        check(&oom, EndCause::Unknown, Some(Reason::Oom));
        let mut pids = failed();
        pids.pids_limit = true;
        check(&pids, EndCause::Unknown, Some(Reason::PidsLimit));
        let mut disk = failed();
        disk.disk_full = true;
        check(&disk, EndCause::Unknown, Some(Reason::DiskQuota));
        let mut denied = failed();
        denied.denied_syscall = Some("mount".to_owned());
        let seccomp = Reason::Seccomp {
            syscall: "mount".to_owned(),
        };
        check(&denied, EndCause::Unknown, Some(seccomp));
    }

    #[test]
    fn a_signal_is_named_unless_the_caller_sent_it() {
        let killed = plain(ExitStatus::Signal(11));
        let signal = Some(Reason::Signal { signal: 11 });
        check(&killed, EndCause::Unknown, signal);
        check(&killed, EndCause::Caller, Some(Reason::Cancelled));
    }

    #[test]
    fn a_dead_box_and_a_deleted_box_have_different_reasons() {
        let gone = plain(ExitStatus::BoxGone);
        check(&gone, EndCause::Unknown, Some(Reason::BoxGone));
        check(&gone, EndCause::Caller, Some(Reason::Cancelled));
    }
}
