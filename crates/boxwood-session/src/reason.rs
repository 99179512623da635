//! From the way a program ended to the reason a caller can branch on.

use boxwood_api::Reason;
use boxwood_backend::{Exit, ExitStatus};

/// Who wanted the end, when somebody did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Nobody,
    /// A signal, a stop, a delete.
    Caller,
    /// Its workspace held too much, or the host had too little room.
    Quota,
}

/// A counter that rose explains nothing when the program did well all the same.
pub(crate) fn reason(exit: &Exit, asked: Asked) -> Option<Reason> {
    let by_caller = asked == Asked::Caller;
    match exit.status {
        ExitStatus::Code(0) => return None,
        ExitStatus::BoxGone | ExitStatus::Signal(_) if by_caller => {
            return Some(Reason::Cancelled);
        }
        _ if asked == Asked::Quota => return Some(Reason::DiskQuota),
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
    fn check(exit: &Exit, asked: Asked, expected: Option<Reason>) {
        assert_eq!(reason(exit, asked), expected, "{exit:?} {asked:?}");
    }

    #[test]
    fn a_program_that_did_well_has_no_reason() {
        let mut exit = plain(ExitStatus::Code(0));
        exit.oom = true;
        exit.pids_limit = true;
        exit.disk_full = true;
        exit.denied_syscall = Some("mount".to_owned());
        check(&exit, Asked::Nobody, None);
        check(&exit, Asked::Caller, None);
    }

    #[test]
    fn counters_explain_a_failure() {
        let failed = || plain(ExitStatus::Code(1));
        check(&failed(), Asked::Nobody, None);
        let mut oom = plain(ExitStatus::Signal(9));
        oom.oom = true;
        check(&oom, Asked::Nobody, Some(Reason::Oom));
        let mut pids = failed();
        pids.pids_limit = true;
        check(&pids, Asked::Nobody, Some(Reason::PidsLimit));
        let mut disk = failed();
        disk.disk_full = true;
        check(&disk, Asked::Nobody, Some(Reason::DiskQuota));
        let mut denied = failed();
        denied.denied_syscall = Some("mount".to_owned());
        let seccomp = Reason::Seccomp {
            syscall: "mount".to_owned(),
        };
        check(&denied, Asked::Nobody, Some(seccomp));
    }

    #[test]
    fn a_signal_is_named_unless_the_caller_sent_it() {
        let killed = plain(ExitStatus::Signal(11));
        let signal = Some(Reason::Signal { signal: 11 });
        check(&killed, Asked::Nobody, signal);
        check(&killed, Asked::Caller, Some(Reason::Cancelled));
    }

    #[test]
    fn a_box_that_died_is_told_apart_from_one_that_was_deleted() {
        let gone = plain(ExitStatus::BoxGone);
        check(&gone, Asked::Nobody, Some(Reason::BoxGone));
        check(&gone, Asked::Caller, Some(Reason::Cancelled));
    }
}
