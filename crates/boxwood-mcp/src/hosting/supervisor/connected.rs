//! Watches a connected server: exit, hangs, idle time and commands.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use boxwood_api::McpPhase;
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

/// A connection that is lost again within this time counts as a failure of the server.
const BETWEEN_LOSSES: Duration = Duration::from_mins(1);
const TO_LIST_TOOLS: Duration = Duration::from_mins(1);
/// Minimum interval between two `tools/list` requests.
const BETWEEN_LISTS: Duration = Duration::from_secs(1);

pub(crate) async fn attend(supervisor: &mut Supervisor, started: Started) -> Step {
    let state = Arc::clone(&supervisor.state);
    let context = Arc::clone(&supervisor.context);
    remember(supervisor, &started).await;
    let (running, inbound) = started.into_running(&context, &state, &supervisor.ran_as);
    let live = Arc::new(running);
    supervisor.unavailable_count = 0;
    supervisor.retry.connected(Instant::now());
    state.has_box(true);
    state.touch();
    let name = &state.name;
    tracing::info!(%name, "hosted MCP server connected");
    supervisor.live = Some(Arc::clone(&live));
    state.becomes(RunState::Connected(Arc::clone(&live)));
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
    let mut broken = Box::pin(health::broken(watched, &context.settings));
    let mut unused = Box::pin(health::unused(&state, live));
    let mut minded = Box::pin(live.children.stop_idle());
    let mut followed = Box::pin(follow_tools(&state, live, inbound));
    loop {
        let healthy_at = supervisor.retry.healthy_at();
        tokio::select! {
            // An exit explains other failures at the same time.
            biased;
            why = &mut ended => return connection_ended(supervisor, &why).await,
            command = supervisor.next_command() => {
                let Some(command) = command else {
                    return Step::Exit;
                };
                if let Some(step) = supervisor.execute(command, Activity::Active).await {
                    return step;
                }
            }
            fault = &mut broken => return failed(supervisor, fault).await,
            () = &mut unused => return fall_asleep(supervisor).await,
            never = &mut minded => match never {},
            never = &mut followed => match never {},
            () = until(healthy_at) => {
                supervisor.retry.settle(Instant::now());
                state.retries(supervisor.retry.count());
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
    let mut is_notification = live.is_adopted;
    loop {
        if !is_notification {
            is_notification = match inbound.next().await {
                InboundEvent::Message(message) => {
                    message.method() == Some("notifications/tools/list_changed")
                }
                InboundEvent::Lagged(_) => true,
                InboundEvent::Closed => std::future::pending().await,
            };
            continue;
        }
        tokio::time::sleep(BETWEEN_LISTS).await;
        is_notification = match tools::list(&live.connection, &live.handshake, TO_LIST_TOOLS).await
        {
            Ok(tools) => {
                state.list_tools(tools);
                false
            }
            // The server is busy. Try again.
            Err(ListError::Call(CallError::TimedOut { .. })) => true,
            Err(error) => {
                let name = &state.name;
                let error = state.secrets().hide_words(error.to_string());
                tracing::info!(%name, error, "failed to list the tools of a server");
                false
            }
        };
    }
}

async fn connection_ended(supervisor: &mut Supervisor, ended: &CloseReason) -> Step {
    // The process may still be running.
    if matches!(ended, CloseReason::OutputClosed | CloseReason::Detached) {
        let before = supervisor.connection_lost_at.replace(Instant::now());
        if before.is_none_or(|before| before.elapsed() >= BETWEEN_LOSSES) {
            let name = &supervisor.state.name;
            tracing::warn!(%name, reason = %ended, "lost the connection to a hosted MCP server, reconnecting");
            return Step::Adopt;
        }
    }
    let fault = handshake::connection_ended(McpPhase::Runtime, ended);
    failed(supervisor, fault).await
}

async fn failed(supervisor: &mut Supervisor, fault: Fault) -> Step {
    // Calls wait for the next start from here on.
    supervisor.state.becomes(RunState::Queued);
    let (session, main) = (&supervisor.state.session, ids::main_process());
    let fault = handshake::with_stderr(&supervisor.context, session, &main, fault).await;
    supervisor.failed(fault).await
}

async fn fall_asleep(supervisor: &mut Supervisor) -> Step {
    // Calls wait for the next start from here on.
    let state = Arc::clone(&supervisor.state);
    let name = &state.name;
    state.becomes(RunState::Stopped(StopCause::Idle));
    if let Err(error) = supervisor.clear().await {
        tracing::warn!(%name, %error, "failed to remove the box of an idle server");
    }
    Step::Inactive
}

/// Stores what the next daemon needs to adopt the server. Without it the server is restarted.
async fn remember(supervisor: &Supervisor, started: &Started) {
    let (context, state) = (&supervisor.context, &supervisor.state);
    let record = RunRecord {
        fingerprint: fingerprint(&supervisor.ran_as),
        incarnation: Some(started.incarnation),
        cache_key: started.install.as_ref().map(|used| used.key.clone()),
        launched: started.launched.clone(),
        handshake: (*started.handshake).clone(),
        tools: started.tools.clone(),
        notices: state.progress_log.notices(),
    };
    let (held, name) = (Arc::clone(context), state.name.clone());
    let put = move || held.store.put_run_record(&name, &record);
    if let Err(error) = storing("storing the run record of an MCP server", put).await {
        let name = &state.name;
        tracing::warn!(%name, %error, "failed to store the run record of a server");
    }
}
