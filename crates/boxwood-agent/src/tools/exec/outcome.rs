//! The end of a command, as the result reports it.

use boxwood_api::{ExecExit, ExecStatus, Reason};

use crate::error::ToolError;

/// The prefix of notices about a workspace over its quota. LangBot uses the same text.
const OVER_QUOTA: &str = "workspace quota exceeded";

pub(super) struct Outcome {
    pub(super) status: &'static str,
    pub(super) exit_code: Option<i32>,
    reason: Option<Reason>,
    pub(super) duration_ms: u64,
    pub(super) error: Option<String>,
    notices: Vec<String>,
}

impl Outcome {
    pub(super) fn exited(exit: ExecExit) -> Self {
        Self {
            status: match exit.status {
                ExecStatus::Completed => "completed",
                ExecStatus::TimedOut => "timed_out",
            },
            exit_code: exit.exit_code,
            reason: exit.reason,
            duration_ms: exit.duration_ms,
            error: None,
            notices: exit.notices,
        }
    }

    pub(super) fn late(duration_ms: u64) -> Self {
        Self {
            status: "timed_out",
            exit_code: None,
            reason: Some(Reason::Timeout),
            duration_ms,
            error: None,
            notices: Vec::new(),
        }
    }

    pub(super) fn lost(duration_ms: u64, error: &ToolError) -> Self {
        Self {
            status: "failed",
            exit_code: None,
            reason: None,
            duration_ms,
            error: Some(error.message.clone()),
            notices: Vec::new(),
        }
    }

    pub(super) fn ok(&self) -> bool {
        self.status == "completed" && self.exit_code == Some(0)
    }

    /// What stopped it, if something did.
    pub(super) fn reason(&self) -> Option<&'static str> {
        self.reason.as_ref().map(reason_word)
    }

    /// The error to record if the workspace is over its quota.
    pub(super) fn over_quota(&self) -> Option<String> {
        let notice = self.notices.iter().find(|it| it.starts_with(OVER_QUOTA));
        let stopped = (self.reason == Some(Reason::DiskQuota))
            .then(|| "a command was stopped: the box's disk quota is used up".to_owned());
        notice.cloned().or(stopped)
    }

    /// Details of the reason, for the model.
    pub(super) fn notices(&self) -> Vec<String> {
        let own = self.reason_notice();
        self.notices.iter().cloned().chain(own).collect()
    }

    fn reason_notice(&self) -> Option<String> {
        Some(match self.reason.as_ref()? {
            Reason::Seccomp { syscall } => {
                format!("the system call `{syscall}` is not allowed in a box")
            }
            Reason::NetworkDenied { host } => format!("the box may not reach {host}"),
            Reason::Signal { signal } => format!("a signal ended the command: {signal}"),
            Reason::DiskQuota => {
                "the box's disk quota is used up; remove files before you write more".to_owned()
            }
            Reason::Oom => "the box's memory is used up; work on less at a time".to_owned(),
            Reason::PidsLimit => "the box has no room for more processes".to_owned(),
            Reason::Timeout | Reason::OutputLimit | Reason::BoxGone | Reason::Cancelled => {
                return None;
            }
        })
    }
}

fn reason_word(reason: &Reason) -> &'static str {
    match reason {
        Reason::Timeout => "timeout",
        Reason::Oom => "oom",
        Reason::PidsLimit => "pids_limit",
        Reason::DiskQuota => "disk_quota",
        Reason::OutputLimit => "output_limit",
        Reason::Seccomp { .. } => "seccomp",
        Reason::NetworkDenied { .. } => "network_denied",
        Reason::Signal { .. } => "signal",
        Reason::BoxGone => "box_gone",
        Reason::Cancelled => "cancelled",
    }
}
