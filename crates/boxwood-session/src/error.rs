//! Errors of sessions, each with its stable code.
//!
//! Cloneable, because callers that wait for the same creation share its error.

use std::path::PathBuf;
use std::sync::Arc;

use boxwood_api::{ErrorCode, ProcessId, SessionId, with_causes};
use boxwood_backend::{
    ControlError, FileError, FileFault, MountError, SpawnError, StartError, StopError,
};
use boxwood_ledger::LedgerError;

use crate::admission::Busy;

/// Reason of a session whose box died.
pub(crate) const DIED: &str = "its box died";

pub(crate) type Result<T, E = SessionError> = std::result::Result<T, E>;

#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    #[error("session {session} not found")]
    NotFound { session: SessionId },
    #[error("sandbox_exec session {session} already exists with {field}={value}")]
    Conflict {
        session: SessionId,
        field: &'static str,
        /// The value of the existing session.
        value: String,
    },
    /// The caller has no access.
    #[error("session {session} belongs to a hosted MCP server")]
    Hosted { session: SessionId },
    /// Hosting has no access.
    #[error(
        "session {session} was created by another caller, so no MCP server can be hosted in it"
    )]
    NotHosted { session: SessionId },
    #[error("session {session} was deleted while it was being started")]
    DeletedWhileStarting { session: SessionId },
    /// The session has ended, or has another incarnation.
    #[error("session {session} is gone: {why}")]
    Gone { session: SessionId, why: String },
    /// A box that is not recorded could be lost, so it is not started.
    #[error("the state directory `{}` has no space left to record the session", .directory.display())]
    StateFull { directory: PathBuf },
    #[error("failed to record session {session} in the ledger")]
    Unrecorded {
        session: SessionId,
        source: Arc<LedgerError>,
    },
    #[error("there are already {limit} sessions, which is the most this daemon keeps")]
    TooManySessions { limit: usize },
    #[error("there are already {limit} managed processes, which is the most this daemon runs")]
    TooManyProcesses { limit: usize },
    /// A load limit was reached. The request had no effect.
    #[error(transparent)]
    Busy(Busy),
    #[error("the daemon is shutting down")]
    ShuttingDown,
    #[error("{what}")]
    Invalid { what: String },
    /// The session stays: files can be deleted in it.
    #[error(
        "workspace quota exceeded {phase}: used={used} bytes limit={limit} bytes host_path={host_path} \
         session_id={session}"
    )]
    OverQuota {
        session: SessionId,
        /// When it was measured.
        phase: &'static str,
        used: u64,
        limit: u64,
        host_path: String,
    },
    /// A workspace that cannot be measured cannot be limited.
    #[error("failed to measure the workspace: {why}: host_path={host_path} session_id={session}")]
    Unmeasured {
        session: SessionId,
        host_path: String,
        why: String,
    },
    #[error("{source}")]
    Start { source: Arc<StartError> },
    /// No backend that could run the box is available.
    #[error("{why}")]
    Unavailable { why: String, hint: String },
    #[error("unknown backend `{name}`, available backends: {}", .known.join(", "))]
    UnknownBackend { name: String, known: Vec<String> },
    #[error("session {session} could not be removed")]
    Stop {
        session: SessionId,
        source: Arc<StopError>,
    },
    #[error("session {session} could not run the program: {}", with_causes(.source))]
    Spawn {
        session: SessionId,
        source: Arc<SpawnError>,
    },
    /// The session stays without the mount.
    #[error("session {session}: {}", with_causes(.source))]
    Mount {
        session: SessionId,
        source: Arc<MountError>,
    },
    #[error("{source}")]
    Control { source: Arc<ControlError> },
    #[error("{}", with_causes(.source))]
    File { source: Arc<FileError> },
    #[error("session {session} has no managed process{}", with_id(" with process_id=", .process))]
    ProcessNotFound {
        session: SessionId,
        process: ProcessId,
    },
    #[error("session {session} already has a managed process{}", with_id(" with process_id=", .process))]
    ProcessConflict {
        session: SessionId,
        process: ProcessId,
    },
    #[error("managed process{} in session {session} is not running", with_id(" ", .process))]
    ProcessNotRunning {
        session: SessionId,
        process: ProcessId,
    },
    #[error("managed process{} in session {session} was stopped or replaced", with_id(" ", .process))]
    ProcessReplaced {
        session: SessionId,
        process: ProcessId,
    },
    #[error("session {session} has no command {exec_id}")]
    ExecNotFound { session: SessionId, exec_id: u64 },
    /// Output is kept for a limited time.
    #[error("output from byte {requested} on is no longer kept; the oldest byte kept is {oldest}")]
    ReplayGone { requested: u64, oldest: u64 },
    #[error("the command has ended and takes no more input")]
    InputClosed,
    /// A bug, reported before it could block a caller.
    #[error("an internal step failed: {step}")]
    Internal { step: &'static str },
}

const STOP_PROCESSES_HINT: &str = "stop background processes of the session, or raise pids_limit";

/// Callers with a single process have not named it, so its id is left out.
fn with_id(before: &str, process: &ProcessId) -> String {
    if *process == ProcessId::default() {
        String::new()
    } else {
        format!("{before}{process}")
    }
}

impl SessionError {
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::NotFound { .. } => ErrorCode::SessionNotFound,
            Self::Conflict { .. } | Self::NotHosted { .. } => ErrorCode::SessionConflict,
            Self::Hosted { .. } => ErrorCode::Forbidden,
            Self::DeletedWhileStarting { .. } | Self::Gone { .. } => ErrorCode::SessionGone,
            Self::TooManySessions { .. }
            | Self::TooManyProcesses { .. }
            | Self::Busy(_)
            | Self::StateFull { .. } => ErrorCode::Capacity,
            Self::ShuttingDown | Self::Unavailable { .. } => ErrorCode::BackendUnavailable,
            Self::Invalid { .. }
            | Self::InputClosed
            | Self::UnknownBackend { .. }
            | Self::OverQuota { .. }
            | Self::Unmeasured { .. } => ErrorCode::ValidationError,
            Self::Start { source } => source.code(),
            Self::Spawn { source, .. } => spawn_code(source),
            Self::Mount { source, .. } => source.code(),
            Self::Control { source } => control_code(source),
            Self::File { source } => file_code(source),
            Self::ProcessNotFound { .. } => ErrorCode::ManagedProcessNotFound,
            Self::ExecNotFound { .. } => ErrorCode::NotFound,
            Self::ReplayGone { .. } => ErrorCode::ReplayGone,
            Self::ProcessConflict { .. }
            | Self::ProcessNotRunning { .. }
            | Self::ProcessReplaced { .. } => ErrorCode::ManagedProcessConflict,
            Self::Stop { .. } | Self::Unrecorded { .. } | Self::Internal { .. } => {
                ErrorCode::InternalError
            }
        }
    }

    /// What the caller can do next, if anything.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Start { source } => return source.hint().map(str::to_owned),
            Self::Unavailable { hint, .. } => hint,
            Self::UnknownBackend { .. } => "name one of these, or `auto` for the first that works",
            Self::Conflict { .. } => {
                "use another session_id, send the same settings, or delete the session first"
            }
            Self::Hosted { .. } => {
                "use `boxwood mcp status|logs|tools|call|restart|rm NAME`, or connect to `/mcp/NAME`"
            }
            Self::NotHosted { session } => {
                return Some(format!(
                    "delete it with `boxwood rm {session}`, or give the server another name"
                ));
            }
            Self::OverQuota { .. } | Self::Unmeasured { .. } => {
                "remove files from the workspace (file operations still work), or use a session with a \
                 larger workspace_quota_mb"
            }
            Self::TooManySessions { .. } => "delete a session that is no longer needed",
            Self::TooManyProcesses { .. } => "stop a managed process that is no longer needed",
            Self::Busy(busy) => busy.hint(),
            Self::Gone { .. } => {
                "retry, without an incarnation if one was given: a new session is created"
            }
            Self::StateFull { .. } => "free space there; existing sessions continue meanwhile",
            Self::Unrecorded { .. } => {
                "restart the daemon to repair the ledger; `boxwood serve --takeover` keeps its boxes running"
            }
            Self::ExecNotFound { .. } => {
                "list the session's commands; ended ones are kept for a limited time"
            }
            Self::ReplayGone { .. } => "request a later offset, or `now`",
            Self::Stop { .. } | Self::Internal { .. } => "see the cause in the log of the daemon",
            Self::ProcessConflict { .. } => "stop it first, or use another process_id",
            Self::Spawn { source, .. } if matches!(**source, SpawnError::PidsLimit) => {
                STOP_PROCESSES_HINT
            }
            Self::Spawn { source, .. } if matches!(**source, SpawnError::TooLong) => {
                "put the text in a file of the session, or send it as stdin"
            }
            Self::File { source } if matches!(**source, FileError::PidsLimit) => {
                STOP_PROCESSES_HINT
            }
            _ => return None,
        };
        Some(hint.to_owned())
    }

    pub(crate) fn invalid(what: impl Into<String>) -> Self {
        Self::Invalid { what: what.into() }
    }

    pub(crate) fn internal(step: &'static str) -> Self {
        Self::Internal { step }
    }

    pub(crate) fn died(session: &SessionId) -> Self {
        Self::Gone {
            session: session.clone(),
            why: DIED.to_owned(),
        }
    }

    pub(crate) fn unrecorded(session: &SessionId, source: LedgerError) -> Self {
        match source {
            LedgerError::Full { directory } => Self::StateFull { directory },
            source => Self::Unrecorded {
                session: session.clone(),
                source: Arc::new(source),
            },
        }
    }

    /// An error of the box itself, not of a program in it.
    pub(crate) fn control_of(session: &SessionId, source: ControlError) -> Self {
        match source {
            ControlError::Gone => Self::died(session),
            source => Self::control(source),
        }
    }

    pub(crate) fn start(source: StartError) -> Self {
        Self::Start {
            source: Arc::new(source),
        }
    }

    pub(crate) fn control(source: ControlError) -> Self {
        Self::Control {
            source: Arc::new(source),
        }
    }
}

fn spawn_code(error: &SpawnError) -> ErrorCode {
    match error {
        SpawnError::Gone => ErrorCode::SessionGone,
        SpawnError::PidsLimit => ErrorCode::Capacity,
        SpawnError::TooLong => ErrorCode::ValidationError,
        SpawnError::Step { .. } => ErrorCode::InternalError,
    }
}

fn control_code(error: &ControlError) -> ErrorCode {
    match error {
        ControlError::Gone => ErrorCode::SessionGone,
        ControlError::Ended => ErrorCode::ManagedProcessConflict,
        ControlError::NoTerminal | ControlError::BadSignal(_) => ErrorCode::ValidationError,
        ControlError::Io(_) => ErrorCode::InternalError,
    }
}

fn file_code(error: &FileError) -> ErrorCode {
    match error {
        FileError::Gone => ErrorCode::SessionGone,
        FileError::PidsLimit => ErrorCode::Capacity,
        FileError::Step { .. } => ErrorCode::InternalError,
        FileError::Fault { fault, .. } | FileError::Refused { fault, .. } => match fault {
            FileFault::NotFound => ErrorCode::NotFound,
            FileFault::Denied | FileFault::ReadOnly => ErrorCode::Forbidden,
            FileFault::NoSpace => ErrorCode::Capacity,
            FileFault::Exists
            | FileFault::NotADirectory
            | FileFault::IsADirectory
            | FileFault::NotAFile
            | FileFault::NotEmpty
            | FileFault::TooManyLinks
            | FileFault::BadPath
            | FileFault::Unfit
            | FileFault::TooLarge
            | FileFault::Other => ErrorCode::ValidationError,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> SessionId {
        SessionId::new("s1").expect("a legal id")
    }

    #[test]
    fn the_process_called_default_is_not_named() {
        let missing = |process| {
            SessionError::ProcessNotFound {
                session: session(),
                process,
            }
            .to_string()
        };
        assert_eq!(
            missing(ProcessId::default()),
            "session s1 has no managed process"
        );
        assert_eq!(
            missing(ProcessId::new("p2").expect("a legal id")),
            "session s1 has no managed process with process_id=p2"
        );
    }

    #[test]
    fn each_cause_is_shown_once() {
        let step = || "mounting `/proc`".to_owned();
        let source = || std::io::Error::from_raw_os_error(1);
        let texts = [
            with_causes(&SessionError::start(StartError::Step {
                step: step(),
                source: source(),
            })),
            with_causes(&SessionError::Stop {
                session: session(),
                source: Arc::new(StopError {
                    step: step(),
                    source: source(),
                }),
            }),
            with_causes(&SessionError::Spawn {
                session: session(),
                source: Arc::new(SpawnError::Step {
                    step: step(),
                    source: source(),
                }),
            }),
        ];
        let kernel = source().to_string();
        for text in texts {
            assert!(
                text.ends_with(&format!("mounting `/proc`: {kernel}")),
                "{text}"
            );
            assert_eq!(text.matches(&kernel).count(), 1, "{text}");
            assert_eq!(text.matches(&step()).count(), 1, "{text}");
        }
    }

    #[test]
    fn a_file_operation_without_room_for_a_process_is_a_matter_of_capacity() {
        let error = SessionError::File {
            source: Arc::new(FileError::PidsLimit),
        };
        assert_eq!(error.code(), ErrorCode::Capacity);
        assert_eq!(error.hint().as_deref(), Some(STOP_PROCESSES_HINT));
    }

    #[test]
    fn error_texts_are_those_that_langbot_box_clients_expect() {
        let process = ProcessId::default();
        let check = |error: SessionError, text: &str, code: ErrorCode| {
            assert_eq!(error.to_string(), text);
            assert_eq!(error.code(), code);
        };
        check(
            SessionError::NotFound { session: session() },
            "session s1 not found",
            ErrorCode::SessionNotFound,
        );
        check(
            SessionError::ProcessConflict {
                session: session(),
                process: process.clone(),
            },
            "session s1 already has a managed process",
            ErrorCode::ManagedProcessConflict,
        );
        check(
            SessionError::ProcessNotRunning {
                session: session(),
                process,
            },
            "managed process in session s1 is not running",
            ErrorCode::ManagedProcessConflict,
        );
        check(
            SessionError::Conflict {
                session: session(),
                field: "image",
                value: "host".to_owned(),
            },
            "sandbox_exec session s1 already exists with image=host",
            ErrorCode::SessionConflict,
        );
    }
}
