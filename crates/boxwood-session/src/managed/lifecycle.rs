//! Starts, finds and stops managed processes.

use std::sync::Arc;

use boxwood_api::{EventKind, ProcessId, ProcessInfo, ProcessSpec};
use boxwood_backend::{SpawnRequest, Stdio};
use jiff::Timestamp;

use super::follow::{Start, follow_process};
use super::table::{Claim, Ticket};
use super::{Managed, Replace};
use crate::program::{Files, Killed, Note, spawn};
use crate::quota;
use crate::session::registry::Registry;
use crate::session::{Handle, Lease, Session};
use crate::{Result, SessionError};

/// Runs in a task once the id is claimed, so that the process is started completely even if the caller
/// disconnects.
pub(crate) async fn start(
    registry: &Arc<Registry>,
    handle: Handle<'_>,
    spec: ProcessSpec,
    replace: Replace,
) -> Result<ProcessInfo> {
    check(&spec)?;
    let lease = registry.existing(handle).await?;
    let backend = &lease.session.backend;
    if !backend.capabilities().managed_processes {
        return Err(SessionError::invalid(format!(
            "the `{}` backend does not support managed processes",
            backend.name()
        )));
    }
    // First, because a process is not replaced if the new one is refused.
    quota::check_before_exec(&lease.session).await?;
    let (ticket, previous) = claim(&lease.session, &spec.process_id, replace).await?;
    let registry = Arc::clone(registry);
    let starting = tokio::spawn(async move {
        if let Some(previous) = previous {
            terminate(&registry, &lease, &previous).await;
        }
        start_in(&registry, lease, spec, ticket).await
    });
    starting
        .await
        .unwrap_or(Err(SessionError::internal("starting a managed process")))
}

async fn claim(
    session: &Session,
    process: &ProcessId,
    replace: Replace,
) -> Result<(Ticket, Option<Arc<Managed>>)> {
    loop {
        match session.processes.claim(process, replace) {
            Claim::Granted { ticket, previous } => return Ok((ticket, previous)),
            Claim::Refused => {
                return Err(SessionError::ProcessConflict {
                    session: session.id.clone(),
                    process: process.clone(),
                });
            }
            Claim::Wait(mut over) => {
                // Closed when the other start is over.
                let _ = over.changed().await;
            }
        }
    }
}

async fn start_in(
    registry: &Arc<Registry>,
    lease: Lease,
    spec: ProcessSpec,
    ticket: Ticket,
) -> Result<ProcessInfo> {
    let session = &lease.session;
    let _permit = registry.gate.start_permit(session.incarnation).await?;
    let permit = registry.gate.process(session.incarnation)?;
    let argv = std::iter::once(spec.command.clone())
        .chain(spec.args.iter().cloned())
        .collect();
    let started_at = Timestamp::now();
    let note = Note::Managed {
        spec: spec.clone(),
        started_at,
    };
    let prepared =
        Files::new(&session.budget).and_then(|files| Ok((note.keep(files.all())?, files)));
    let (keep, files) = prepared.map_err(|error| session.journals_failed(error))?;
    let request = SpawnRequest {
        argv,
        env: spec.env.clone(),
        cwd: spec.cwd.clone(),
        stdio: Stdio::Pipes,
        keep: Some(keep),
    };
    let quota_kills = session.quota.kill_count();
    let process = spawn(session, request)
        .await
        .map_err(|error| session.spawn_failed(error))?;
    let start = Start {
        spec,
        started_at,
        quota_kills,
        process,
        files,
        permit,
        replay_bytes: registry.settings.replay.bytes,
    };
    let managed = follow_process(session, start, &[]);
    session
        .events
        .emit_inside(session, || EventKind::ProcessStarted {
            process_id: managed.id().clone(),
        });
    let info = managed.info();
    ticket.fill(managed);
    Ok(info)
}

/// Stops the process, and removes the session if that fails.
pub(crate) async fn terminate(registry: &Arc<Registry>, lease: &Lease, managed: &Managed) {
    let grace = registry.settings.stop_grace;
    if let Killed::Alive = managed.terminate(grace).await {
        registry.close_unkillable(&lease.session);
    }
}

pub(crate) fn not_found(handle: Handle<'_>, process: &ProcessId) -> SessionError {
    SessionError::ProcessNotFound {
        session: handle.id.clone(),
        process: process.clone(),
    }
}

pub(crate) async fn stop(
    registry: &Arc<Registry>,
    handle: Handle<'_>,
    process: &ProcessId,
) -> Result<ProcessInfo> {
    let lease = registry.existing(handle).await?;
    let managed = loop {
        match lease.session.processes.take(process) {
            Ok(Some(managed)) => break managed,
            Ok(None) => return Err(not_found(handle, process)),
            Err(mut starting) => {
                // Closed when the start is over.
                let _ = starting.changed().await;
            }
        }
    };
    let registry = Arc::clone(registry);
    let stopping = tokio::spawn(async move {
        terminate(&registry, &lease, &managed).await;
        managed.info()
    });
    stopping
        .await
        .map_err(|_| SessionError::internal("stopping a managed process"))
}

fn check(spec: &ProcessSpec) -> Result<()> {
    let has_nul = |text: &String| text.contains('\0');
    let is_bad_variable = |(name, value): (&String, &String)| {
        name.is_empty() || name.contains(['=', '\0']) || has_nul(value)
    };
    Err(SessionError::invalid(if spec.command.trim().is_empty() {
        "command must not be empty"
    } else if !spec.cwd.starts_with('/') {
        "cwd must be an absolute path inside the sandbox"
    } else if has_nul(&spec.command) || has_nul(&spec.cwd) || spec.args.iter().any(has_nul) {
        "command, args and cwd must not contain NUL bytes"
    } else if spec.env.iter().any(is_bad_variable) {
        "env names must not be empty or contain `=`, and NUL is not allowed"
    } else {
        return Ok(());
    }))
}

pub(crate) fn check_argv(argv: &[String]) -> Result<()> {
    let message = match argv.first() {
        None => "argv must not be empty",
        Some(program) if program.is_empty() => "the program must not be empty",
        Some(_) if argv.iter().any(|argument| argument.contains('\0')) => {
            "arguments must not contain NUL bytes"
        }
        Some(_) => return Ok(()),
    };
    Err(SessionError::invalid(message))
}
