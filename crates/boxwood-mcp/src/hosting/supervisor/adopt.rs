//! Adopts a running server: of an earlier daemon, or after its connection was lost.
//!
//! The process is not restarted and no handshake is repeated, because its result was stored. Nothing is requested
//! here either: the server may be busy with a call, so the health check gives it the time of a busy server.

use std::sync::Arc;
use std::time::Duration;

use boxwood_agent::Answer;
use boxwood_api::{ErrorCode, McpPhase, McpServerSpec, ProcessId, ProcessStatus};

use super::run_record::{RunRecord, fingerprint};
use super::start::Started;
use super::state::ServerState;
use crate::hosting::boxes::ids;
use crate::hosting::context::{HostContext, blocking};
use crate::wire::{Connection, InboundFilter, WireLimits};

/// A failed request to the runtime is repeated, because the failure may be temporary.
const MAX_ATTEMPTS: usize = 3;
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// `None` if nothing can be adopted or the running server does not match `spec`.
pub(crate) async fn adopt(
    context: &Arc<HostContext>,
    state: &Arc<ServerState>,
    spec: &McpServerSpec,
) -> Option<Started> {
    let (store_context, name) = (Arc::clone(context), state.name.clone());
    let reading = blocking(move || Ok(store_context.store.run_record::<RunRecord>(&name)));
    let record = reading.await.ok()??;
    if record.fingerprint != fingerprint(spec) {
        return None;
    }
    // The record belongs to the last successful start. A start interrupted by a crash may have left another box
    // with a process that never completed a handshake.
    let incarnation = record.incarnation?;
    let install = record
        .cache_key
        .as_deref()
        .map(|key| context.use_install(key));
    state.progress_log.begin();
    let detail = "already running".to_owned();
    state
        .progress_log
        .enter(McpPhase::RelayConnect, Some(detail));
    state.progress_log.notice(record.notices);
    let (connection, children) = attach(context, state, incarnation).await?;
    state.progress_log.enter(McpPhase::Runtime, None);
    Some(Started {
        inbound: connection.inbound(InboundFilter::Notifications),
        connection,
        handshake: Arc::new(record.handshake),
        tools: record.tools,
        incarnation,
        launched: record.launched,
        install,
        leftover: Some(children),
    })
}

/// The connection to the main process, and the other running processes of the server.
type Attached = (Connection, Vec<ProcessId>);

/// Output continues where the last reader stopped. `None` if the main process has exited or the box was replaced.
async fn attach(
    context: &Arc<HostContext>,
    state: &Arc<ServerState>,
    incarnation: u64,
) -> Option<Attached> {
    for attempt in 0..MAX_ATTEMPTS {
        if attempt > 0 {
            tokio::time::sleep(RETRY_DELAY).await;
        }
        match attach_once(context, state, incarnation).await {
            Ok(attached) => return attached,
            Err(error) if is_gone(error.code) => return None,
            Err(error) => {
                let name = &state.name;
                tracing::warn!(%name, %error, "failed to attach to a running server");
            }
        }
    }
    None
}

fn is_gone(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::SessionNotFound | ErrorCode::ManagedProcessNotFound
    )
}

async fn attach_once(
    context: &Arc<HostContext>,
    state: &Arc<ServerState>,
    incarnation: u64,
) -> Answer<Option<Attached>> {
    let (runtime, session) = (&context.runtime, &state.session);
    let finding = context.with_timeout("looking for a box", runtime.session(session));
    if finding.await?.map(|info| info.incarnation) != Some(incarnation) {
        return Ok(None);
    }
    let listed = context.with_timeout("listing processes", runtime.processes(session));
    let running: Vec<_> = listed
        .await?
        .into_iter()
        .filter(|process| process.status == ProcessStatus::Running)
        .map(|process| process.process_id)
        .collect();
    let main = ids::main_process();
    if !running.contains(&main) {
        return Ok(None);
    }
    let attaching = context.with_timeout("attaching", runtime.attach(session, &main));
    let log = Arc::clone(&state.protocol);
    let connection = Connection::open(attaching.await?, WireLimits::default(), log);
    let children = running.into_iter().filter(ids::is_child);
    Ok(Some((connection, children.collect())))
}
