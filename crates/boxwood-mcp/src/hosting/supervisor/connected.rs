//! Watches a connected server: exit, hangs, idle time and commands.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use boxwood_api::{McpPhase, with_causes};
use tokio::time::Instant;

use super::fault::Fault;
use super::health;
use super::run_record::{RunRecord, fingerprint};
use super::start::Started;
use super::state::{RunState, ServerState, StopCause};
use super::{Activity, Step, Supervisor};
use crate::hosting::boxes::ids;
use crate::hosting::context::storing;
use crate::hosting::process::handshake;
use crate::hosting::process::server::RunningServer;
use crate::hosting::process::tools;
use crate::hosting::process::tools::ListError;
use crate::wire::{CallError, CloseReason, Inbound, InboundEvent};

/// A connection that is lost twice within this time counts as a failure of the server.
const LOSS_INTERVAL: Duration = Duration::from_mins(1);
const LIST_TIMEOUT: Duration = Duration::from_mins(1);
/// Minimum interval between two `tools/list` requests.
const LIST_INTERVAL: Duration = Duration::from_secs(1);

pub(crate) async fn run(supervisor: &mut Supervisor, started: Started) -> Step {
    let state = Arc::clone(&supervisor.state);
    let context = Arc::clone(&supervisor.context);
    store_run_record(supervisor, &started).await;
    let (running, inbound) = started.into_running(&context, &state, &supervisor.running_spec);
    let live = Arc::new(running);
    supervisor.unavailable_count = 0;
    supervisor.retry.connected(Instant::now());
    state.set_has_box(true);
    state.touch();
    let name = &state.name;
    tracing::info!(%name, "hosted MCP server connected");
    supervisor.live = Some(Arc::clone(&live));
    state.set_run_state(RunState::Connected(Arc::clone(&live)));
    watch(supervisor, &live, inbound).await
}

/// Returns the next step once the server is no longer connected.
async fn watch(supervisor: &mut Supervisor, live: &Arc<RunningServer>, inbound: Inbound) -> Step {
    let state = Arc::clone(&supervisor.state);
    let context = Arc::clone(&supervisor.context);
    let mut ended = Box::pin(live.connection.ended());
    let watched = health::Watched {
        connection: &live.connection,
        protocol: live.handshake.protocol,
        has_answered: !live.is_adopted,
    };
    let mut hung = Box::pin(health::until_hung(watched, &context.settings));
    let mut idle = Box::pin(health::until_idle(&state, live));
    let mut stopping_idle = Box::pin(live.children.stop_idle());
    let mut following_tools = Box::pin(follow_tools(&state, live, inbound));
    loop {
        let healthy_at = supervisor.retry.healthy_at();
        tokio::select! {
            // An exit explains other failures at the same time.
            biased;
            reason = &mut ended => return connection_ended(supervisor, &reason).await,
            command = supervisor.next_command() => {
                let Some(command) = command else {
                    return Step::Exit;
                };
                if let Some(step) = supervisor.execute(command, Activity::Active).await {
                    return step;
                }
            }
            fault = &mut hung => return failed(supervisor, fault).await,
            () = &mut idle => return stop_idle(supervisor).await,
            never = &mut stopping_idle => match never {},
            never = &mut following_tools => match never {},
            () = until(healthy_at) => {
                supervisor.retry.settle(Instant::now());
                state.set_retry_count(supervisor.retry.count());
            }
        }
    }
}

async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

/// Lists the tools after each change notification, and once after adoption.
async fn follow_tools(
    state: &ServerState,
    live: &RunningServer,
    mut inbound: Inbound,
) -> Infallible {
    let mut is_outdated = live.is_adopted;
    loop {
        if !is_outdated {
            is_outdated = match inbound.next().await {
                InboundEvent::Message(message) => {
                    message.method() == Some("notifications/tools/list_changed")
                }
                InboundEvent::Lagged(_) => true,
                InboundEvent::Closed => std::future::pending().await,
            };
            continue;
        }
        tokio::time::sleep(LIST_INTERVAL).await;
        is_outdated = match tools::list(&live.connection, &live.handshake, LIST_TIMEOUT).await {
            Ok(tools) => {
                state.set_tools(tools);
                false
            }
            // The server is busy. Try again.
            Err(ListError::Call(CallError::TimedOut { .. })) => true,
            Err(error) => {
                let name = &state.name;
                let error = state.secrets().hide_message(error.to_string());
                tracing::info!(%name, error, "failed to list the tools of a server");
                false
            }
        };
    }
}

async fn connection_ended(supervisor: &mut Supervisor, close_reason: &CloseReason) -> Step {
    // The process may still be running.
    if matches!(
        close_reason,
        CloseReason::OutputClosed | CloseReason::Detached
    ) {
        let previous = supervisor.connection_lost_at.replace(Instant::now());
        if previous.is_none_or(|previous| previous.elapsed() >= LOSS_INTERVAL) {
            let name = &supervisor.state.name;
            tracing::warn!(%name, reason = %close_reason, "lost the connection to a hosted MCP server, reconnecting");
            return Step::Adopt;
        }
    }
    let fault = handshake::connection_ended(McpPhase::Runtime, close_reason);
    failed(supervisor, fault).await
}

async fn failed(supervisor: &mut Supervisor, fault: Fault) -> Step {
    // Calls wait for the next start from here on.
    supervisor.state.set_run_state(RunState::Queued);
    let (session, main) = (&supervisor.state.session, ids::main_process());
    let fault = handshake::with_stderr(&supervisor.context, session, &main, fault).await;
    supervisor.failed(fault).await
}

async fn stop_idle(supervisor: &mut Supervisor) -> Step {
    // Calls wait for the next start from here on.
    let state = Arc::clone(&supervisor.state);
    let name = &state.name;
    state.set_run_state(RunState::Stopped(StopCause::Idle));
    if let Err(error) = supervisor.clear().await {
        tracing::warn!(%name, %error, "failed to remove the box of an idle server");
    }
    Step::Inactive
}

/// Stores what the next daemon needs to adopt the server. Without it the server is restarted.
async fn store_run_record(supervisor: &Supervisor, started: &Started) {
    let (context, state) = (&supervisor.context, &supervisor.state);
    let record = RunRecord {
        fingerprint: fingerprint(&supervisor.running_spec),
        incarnation: Some(started.incarnation),
        cache_key: started
            .install
            .as_ref()
            .map(|cache_ref| cache_ref.name.clone()),
        launched: started.launched.clone(),
        handshake: (*started.handshake).clone(),
        tools: started.tools.clone(),
        notices: state.progress_log.notices(),
    };
    let (store_context, name) = (Arc::clone(context), state.name.clone());
    let put = move || store_context.store.put_run_record(&name, &record);
    if let Err(error) = storing("storing the run record of an MCP server", put).await {
        let name = &state.name;
        tracing::warn!(%name, error = %with_causes(&error), "failed to store the run record of a server");
    }
}
