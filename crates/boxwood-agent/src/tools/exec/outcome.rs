//! What the result says about the end of a command.

use boxwood_api::{ExecExit, Reason};

/// The prefix of notices about a workspace over its quota. LangBot uses the same text.
const OVER_QUOTA: &str = "workspace quota exceeded";

/// The error to record if the workspace is over its quota.
pub(super) fn over_quota(exit: &ExecExit) -> Option<String> {
    let notice = exit
        .notices
        .iter()
        .find(|notice| notice.starts_with(OVER_QUOTA));
    let stopped = (exit.reason == Some(Reason::DiskQuota))
        .then(|| "a command was stopped: the box's disk quota is used up".to_owned());
    notice.cloned().or(stopped)
}

/// The reason in words, for the model.
pub(super) fn reason_notice(reason: &Reason) -> Option<String> {
    Some(match reason {
        Reason::Seccomp { syscall } => {
            format!("the system call `{syscall}` is not allowed in a box")
        }
        Reason::NetworkDenied { host } => format!("the box may not reach {host}"),
        Reason::Signal { signal } => format!("a signal ended the command: {signal}"),
        Reason::DiskQuota => {
            "the box's disk quota is used up; remove files before you write more".to_owned()
        }
        Reason::Oom => "the box's memory is used up; work on less at a time".to_owned(),
        Reason::PidsLimit => {
            "the box's limit of processes is reached; run fewer at a time".to_owned()
        }
        Reason::Timeout | Reason::OutputLimit | Reason::BoxGone | Reason::Cancelled => {
            return None;
        }
    })
}
