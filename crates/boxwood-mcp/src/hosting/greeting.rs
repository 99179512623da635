//! The first words with a process, and how to say that there were none.

use std::sync::Arc;
use std::time::Duration;

use boxwood_agent::BoxesError;
use boxwood_api::{ErrorCode, McpPhase, ProcessId, ProcessStatus, Reason, SessionId};

use super::clock::StartClock;
use super::fault::Fault;
use super::kit::Kit;
use super::naming;
use super::redact::Secrets;
use super::retry::Mends;
use super::runtime::{Gone, Wire};
use super::tail::tail;
use super::tools::ListError;
use crate::wire::{self, CallError, Connection, Ended, GreetAs, GreetError, Greeting};

const WITH_HINT: &str = "a package it needs may be missing or too new: name what it was written for in `with`, such as `mcp<2`";
const NO_SERVER: &str = "the command may be no MCP server, or wants other arguments";
/// Of what is kept for later.
const KEPT_BYTES: usize = 256 * 1024;
/// The end of it, where the reason stands.
const LAST_BYTES: usize = 500;
/// A server that ended may have said why just before.
const STDERR_PATIENCE: Duration = Duration::from_secs(2);

/// Takes hold of a process that was just started. One that ended sooner than that has not answered, as
/// one has that ended a moment later: which of the two it was is chance, and must not show.
pub(crate) async fn take_hold(
    kit: &Kit,
    session: &SessionId,
    process: &ProcessId,
    clock: &StartClock,
) -> Result<Box<dyn Wire>, Fault> {
    let phase = McpPhase::RelayConnect;
    let taking = async {
        let error = match kit.runtime.attach(session, process).await {
            Ok(wire) => return Ok(wire),
            Err(error) => error,
        };
        Err(match error.code {
            ErrorCode::ManagedProcessNotFound => not_started(),
            _ => match gone(kit, session, process, &error).await {
                Some(gone) => of_ended(McpPhase::McpInit, &Ended::Exited(gone)),
                None => Fault::of_runtime(phase, error),
            },
        })
    };
    clock.within(phase, taking).await?
}

/// How a process ended that could not be taken hold of; `None` when it has not.
async fn gone(
    kit: &Kit,
    session: &SessionId,
    process: &ProcessId,
    error: &BoxesError,
) -> Option<Gone> {
    let listed = match error.code {
        ErrorCode::ManagedProcessConflict => kit.runtime.processes(session).await,
        _ => Err(error.clone()),
    };
    let listed = match listed {
        Ok(listed) => listed,
        // It had a box when it was started.
        Err(error) => {
            let is_gone = matches!(
                error.code,
                ErrorCode::SessionGone | ErrorCode::SessionNotFound
            );
            return is_gone.then(|| Gone::new(None, Some(&Reason::BoxGone)));
        }
    };
    let found = listed.into_iter().find(|it| it.process_id == *process)?;
    (found.status != ProcessStatus::Running)
        .then(|| Gone::new(found.exit_code, found.reason.as_ref()))
}

pub(crate) async fn greet(
    connection: &Connection,
    client: &GreetAs,
    clock: &StartClock,
) -> Result<Greeting, Fault> {
    wire::greet(connection, client, clock.left())
        .await
        .map_err(|error| of_greet(error, clock))
}

fn of_greet(error: GreetError, clock: &StartClock) -> Fault {
    match error {
        GreetError::Call(error) => of_call(error, clock),
        GreetError::Refused {
            method,
            code,
            message,
        } => refused(method, code, message).with_hint(NO_SERVER.to_owned()),
        other @ GreetError::Unreadable { .. } => {
            Fault::new(McpPhase::McpInit, other.to_string()).with_hint(NO_SERVER.to_owned())
        }
    }
}

pub(crate) fn of_list(error: ListError, clock: &StartClock) -> Fault {
    match error {
        ListError::Call(error) => of_call(error, clock),
        ListError::Refused { code, message } => refused("tools/list", code, message),
        other @ ListError::Unreadable => Fault::new(McpPhase::McpInit, other.to_string()),
    }
}

fn refused(method: &str, code: i64, message: String) -> Fault {
    let words = format!("the server refused `{method}` ({code})");
    Fault::new(McpPhase::McpInit, words).saying(message)
}

fn of_call(error: CallError, clock: &StartClock) -> Fault {
    match error {
        CallError::TimedOut { .. } => clock.ran_out(McpPhase::McpInit),
        CallError::Ended(ended) => of_ended(McpPhase::McpInit, &ended),
        other => Fault::new(McpPhase::McpInit, other.to_string()),
    }
}

/// Why a conversation with the main process is over.
pub(crate) fn of_ended(phase: McpPhase, ended: &Ended) -> Fault {
    let fault = match ended {
        // As shells say it, and as boxes do.
        Ended::Exited(gone)
            if phase == McpPhase::McpInit && matches!(gone.exit_code, Some(126 | 127)) =>
        {
            return not_started();
        }
        Ended::Exited(_) if phase == McpPhase::Runtime => {
            let words = format!("Box managed process exited unexpectedly: {ended}");
            let hint = "`boxwood mcp logs` shows its last words; where memory ran out, raise `box.memory_mb`".to_owned();
            return Fault::new(phase, words).of_ended_main().with_hint(hint);
        }
        Ended::Exited(_) => {
            return Fault::new(phase, format!("{ended} before it had answered"))
                .of_ended_main()
                .with_hint("its stderr says more; some need variables or arguments".to_owned());
        }
        other => Fault::new(phase, other.to_string()),
    };
    let hint = match ended {
        Ended::Garbage { .. } => "make the server log to stderr instead of stdout",
        Ended::TooLong { .. } => "make the server answer in smaller pieces",
        _ => return fault,
    };
    fault.with_hint(hint.to_owned())
}

/// The box could not run the command at all.
pub(crate) fn not_started() -> Fault {
    let message = "the command could not be started: its box has no such program, or cannot run it";
    let hint = "choose an image that has it, install it on the host, or give `uvx` or `npx` as the command";
    Fault {
        mends: Mends::HardlyTwice,
        ..Fault::new(McpPhase::ProcessStart, message)
    }
    .with_hint(hint.to_owned())
    .of_ended_main()
}

/// The last words of the main process belong to the error: they mostly are the reason.
pub(crate) async fn with_stderr(kit: &Arc<Kit>, session: &SessionId, fault: Fault) -> Fault {
    with_stderr_of(&naming::main_process(), kit, session, fault).await
}

/// The same for any process.
pub(crate) async fn with_stderr_of(
    process: &ProcessId,
    kit: &Arc<Kit>,
    session: &SessionId,
    mut fault: Fault,
) -> Fault {
    // Those words are for programs to compare.
    if fault.phase == McpPhase::BoxUnavailable {
        return fault;
    }
    let Some(text) = said_by(process, kit, session).await else {
        return fault;
    };
    if fault.phase == McpPhase::McpInit && lacks_a_package(tail(text.trim(), LAST_BYTES)) {
        fault.hint = Some(WITH_HINT.to_owned());
    }
    fault.stderr = Some(text);
    fault
}

/// A package that is missing, or of a version the server was not written for.
fn lacks_a_package(stderr: &str) -> bool {
    const WORDS: [&str; 6] = [
        "ModuleNotFoundError",
        "ImportError",
        "AttributeError",
        "TypeError",
        "Cannot find module",
        "ERR_MODULE_NOT_FOUND",
    ];
    WORDS.iter().any(|word| stderr.contains(word))
}

/// What the main process wrote to stderr, as far as the runtime kept it and as far as it may be shown.
pub(crate) async fn stderr(
    kit: &Arc<Kit>,
    session: &SessionId,
    secrets: &Secrets,
) -> Option<String> {
    let main = naming::main_process();
    let text = stderr_of(&main, kit, session, secrets).await?;
    Some(tail(&text, KEPT_BYTES).to_owned())
}

/// The same for any process, as long as it is.
pub(crate) async fn stderr_of(
    process: &ProcessId,
    kit: &Arc<Kit>,
    session: &SessionId,
    secrets: &Secrets,
) -> Option<String> {
    Some(secrets.hide_behind_cut(said_by(process, kit, session).await?))
}

/// As it is. The runtime forgets the oldest, wherever that ends.
pub(crate) async fn said(kit: &Arc<Kit>, session: &SessionId) -> Option<String> {
    said_by(&naming::main_process(), kit, session).await
}

async fn said_by(process: &ProcessId, kit: &Arc<Kit>, session: &SessionId) -> Option<String> {
    let asked = kit.runtime.stderr(session, process);
    tokio::time::timeout(STDERR_PATIENCE, asked)
        .await
        .ok()?
        .ok()
}
