//! Attaches to a new process, performs the handshake and describes failures.

use std::time::Duration;

use boxwood_agent::BoxesError;
use boxwood_api::{ErrorCode, McpPhase, ProcessId, ProcessStatus, Reason, SessionId};

use super::tools::ListError;
use crate::hosting::context::HostContext;
use crate::hosting::logs::redact::Secrets;
use crate::hosting::logs::tail::tail;
use crate::hosting::runtime::{ProcessExit, ProcessIo};
use crate::hosting::supervisor::deadline::StartClock;
use crate::hosting::supervisor::fault::Fault;
use crate::hosting::supervisor::retry::Retryable;
use crate::wire;
use crate::wire::{CallError, ClientIdentity, CloseReason, Connection, Handshake, HandshakeError};

const WITH_HINT: &str =
    "a package may be missing or too new: add a constraint to `with`, such as `mcp<2`";
const READ_ONLY_HINT: &str = "it writes to a directory that is mounted read-only: set `box.host_path_mode` to `rw`, or make it write to \
     another directory, such as /tmp";
const NO_SERVER_HINT: &str = "the command may not be an MCP server, or may need other arguments";
/// Limit of the stderr that is searched for known errors.
const SEARCHED_BYTES: usize = 500;
/// Timeout for reading the stderr of an exited process.
const STDERR_TIMEOUT: Duration = Duration::from_secs(2);

/// Attaches to a process that was just started. An exit before and shortly after attaching are reported alike,
/// because which of them happens is a matter of timing.
pub(crate) async fn attach(
    context: &HostContext,
    session: &SessionId,
    process: &ProcessId,
    clock: &StartClock,
) -> Result<Box<dyn ProcessIo>, Fault> {
    let phase = McpPhase::RelayConnect;
    let attaching = async {
        let error = match context.runtime.attach(session, process).await {
            Ok(wire) => return Ok(wire),
            Err(error) => error,
        };
        Err(match error.code {
            ErrorCode::ManagedProcessNotFound => command_not_started(),
            _ => match process_exit(context, session, process, &error).await {
                Some(exit) => connection_ended(McpPhase::McpInit, &CloseReason::Exited(exit)),
                None => Fault::from_runtime(phase, error),
            },
        })
    };
    clock.within(phase, attaching).await?
}

/// How a process ended. `None` if it is still running.
async fn process_exit(
    context: &HostContext,
    session: &SessionId,
    process: &ProcessId,
    error: &BoxesError,
) -> Option<ProcessExit> {
    let listed = match error.code {
        ErrorCode::ManagedProcessConflict => context.runtime.processes(session).await,
        _ => Err(error.clone()),
    };
    let listed = match listed {
        Ok(listed) => listed,
        // The box existed when the process was started.
        Err(error) => {
            let is_gone = matches!(
                error.code,
                ErrorCode::SessionGone | ErrorCode::SessionNotFound
            );
            return is_gone.then(|| ProcessExit::new(None, Some(&Reason::BoxGone)));
        }
    };
    let info = listed.into_iter().find(|it| it.process_id == *process)?;
    (info.status != ProcessStatus::Running)
        .then(|| ProcessExit::new(info.exit_code, info.reason.as_ref()))
}

pub(crate) async fn handshake(
    connection: &Connection,
    client: &ClientIdentity,
    clock: &StartClock,
) -> Result<Handshake, Fault> {
    let result = wire::handshake(connection, client, clock.remaining()).await;
    let fault = match result {
        Ok(handshake) => return Ok(handshake),
        Err(HandshakeError::Call(error)) => return Err(from_call_error(error, clock)),
        Err(HandshakeError::Refused {
            method,
            code,
            message,
        }) => refused(method, code, message),
        Err(other @ HandshakeError::Unreadable { .. }) => {
            Fault::new(McpPhase::McpInit, other.to_string())
        }
    };
    Err(fault.with_hint(NO_SERVER_HINT.to_owned()))
}

pub(crate) fn from_list_error(error: ListError, clock: &StartClock) -> Fault {
    match error {
        ListError::Call(error) => from_call_error(error, clock),
        ListError::Refused { code, message } => refused("tools/list", code, message),
        other @ ListError::Unreadable => Fault::new(McpPhase::McpInit, other.to_string()),
    }
}

fn refused(method: &str, code: i64, message: String) -> Fault {
    let text = format!("the server refused `{method}` ({code})");
    Fault::new(McpPhase::McpInit, text).with_server_message(message)
}

fn from_call_error(error: CallError, clock: &StartClock) -> Fault {
    match error {
        CallError::TimedOut { .. } => clock.timed_out(McpPhase::McpInit),
        CallError::Closed(reason) => connection_ended(McpPhase::McpInit, &reason),
        other => Fault::new(McpPhase::McpInit, other.to_string()),
    }
}

/// Describes why the connection to the main process ended.
pub(crate) fn connection_ended(phase: McpPhase, reason: &CloseReason) -> Fault {
    let fault = match reason {
        // Exit codes of shells for a command that cannot be run.
        CloseReason::Exited(exit)
            if phase == McpPhase::McpInit && matches!(exit.exit_code, Some(126 | 127)) =>
        {
            return command_not_started();
        }
        CloseReason::Exited(_) if phase == McpPhase::Runtime => {
            let message = format!("Box managed process exited unexpectedly: {reason}");
            let hint = "`boxwood mcp logs NAME` shows its stderr; if it ran out of memory, raise `box.memory_mb`".to_owned();
            return Fault::new(phase, message)
                .main_process_exited()
                .with_hint(hint);
        }
        CloseReason::Exited(_) => {
            return Fault::new(phase, format!("{reason} before the handshake completed"))
                .main_process_exited()
                .with_hint("see its stderr; it may need variables or arguments".to_owned());
        }
        other => Fault::new(phase, other.to_string()),
    };
    let hint = match reason {
        CloseReason::Garbage { .. } => "make the server log to stderr instead of stdout",
        CloseReason::TooLong { .. } => "make the server send smaller messages",
        _ => return fault,
    };
    fault.with_hint(hint.to_owned())
}

/// The command cannot be executed in the box.
pub(crate) fn command_not_started() -> Fault {
    let message = "the command could not be started: the program does not exist in the box or cannot be executed";
    let hint = "choose an image that contains it, install it on the host, or use `uvx` or `npx`";
    Fault {
        retryable: Retryable::Once,
        ..Fault::new(McpPhase::ProcessStart, message)
    }
    .with_hint(hint.to_owned())
    .main_process_exited()
}

/// Adds the last stderr of the process, which usually contains the reason.
pub(crate) async fn with_stderr(
    context: &HostContext,
    session: &SessionId,
    process: &ProcessId,
    mut fault: Fault,
) -> Fault {
    // Clients compare this message, so it stays unchanged.
    if fault.phase == McpPhase::BoxUnavailable {
        return fault;
    }
    let Some(text) = raw_stderr(context, session, process).await else {
        return fault;
    };
    let last = tail(text.trim(), SEARCHED_BYTES);
    if is_read_only(last) {
        fault.hint = Some(READ_ONLY_HINT.to_owned());
    } else if fault.phase == McpPhase::McpInit && is_missing_package(last) {
        fault.hint = Some(WITH_HINT.to_owned());
    }
    fault.stderr = Some(text);
    fault
}

/// Returns true if the server tried to write to a directory that is mounted read-only.
fn is_read_only(stderr: &str) -> bool {
    stderr.contains("Read-only file system") || stderr.contains("EROFS")
}

/// Returns true if a package is missing or has an incompatible version.
fn is_missing_package(stderr: &str) -> bool {
    const ERRORS: [&str; 6] = [
        "ModuleNotFoundError",
        "ImportError",
        "AttributeError",
        "TypeError",
        "Cannot find module",
        "ERR_MODULE_NOT_FOUND",
    ];
    ERRORS.iter().any(|error| stderr.contains(error))
}

/// The stderr of a process, redacted.
pub(crate) async fn stderr(
    context: &HostContext,
    session: &SessionId,
    process: &ProcessId,
    secrets: &Secrets,
) -> Option<String> {
    Some(secrets.hide_behind_cut(raw_stderr(context, session, process).await?))
}

/// The stderr of a process, not redacted. The runtime keeps only the latest part.
async fn raw_stderr(
    context: &HostContext,
    session: &SessionId,
    process: &ProcessId,
) -> Option<String> {
    let reading = context.runtime.stderr(session, process);
    tokio::time::timeout(STDERR_TIMEOUT, reading)
        .await
        .ok()?
        .ok()
}
