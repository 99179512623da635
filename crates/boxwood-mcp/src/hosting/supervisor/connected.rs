//! Watches a connected server: exit, hangs, idle time and commands.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use boxwood_api::{McpPhase, ProcessId};
use tokio::time::Instant;

use super::fault::Fault;
use super::run_record::{RunRecord, fingerprint};
use super::start::Started;
use super::state::{RunState, ServerState, StopCause};
use super::{Activity, Step, Supervisor};
use super::{adopt, health};
use crate::hosting::context::{HostContext, blocking};
use crate::hosting::process::handshake;
use crate::hosting::process::server::RunningServer;
use crate::hosting::process::tools;
use crate::hosting::process::tools::ListError;
use crate::wire::{CallError, CloseReason, Inbound, InboundEvent};

/// Reattachments within `REATTACHED_WITHIN` before the server counts as failed.
const MAX_REATTACHED: usize = 5;
const REATTACHED_WITHIN: Duration = Duration::from_mins(1);
const TO_LIST_TOOLS: Duration = Duration::from_mins(1);
/// Minimum interval between two `tools/list` requests.
const BETWEEN_LISTS: Duration = Duration::from_secs(1);

enum News {
    Ended(CloseReason),
    Broken(Fault),
    Unused,
    Over(Step),
}

/// `left` contains the other processes of an adopted server.
pub(crate) async fn attend(
    supervisor: &mut Supervisor,
    started: Started,
    left: Option<Vec<ProcessId>>,
) -> Step {
    let state = Arc::clone(&supervisor.state);
    let context = Arc::clone(&supervisor.context);
    remember(supervisor, &started).await;
    let incarnation = started.incarnation;
    let is_adopted = left.is_some();
    let (running, mut inbound) =
        started.into_running(&context, &state, &supervisor.ran_as, is_adopted);
    running.children.stop_leftover(left.unwrap_or_default());
    let mut live = Arc::new(running);
    supervisor.unavailable_count = 0;
    supervisor.retry.connected(Instant::now());
    state.has_box(true);
    state.touch();
    let name = &state.name;
    tracing::info!(%name, "hosted MCP server connected");
    let mut attached: VecDeque<Instant> = VecDeque::new();
    loop {
        supervisor.live = Some(Arc::clone(&live));
        state.becomes(RunState::Connected(Arc::clone(&live)));
        let ended = match watch(supervisor, &live, inbound).await {
            News::Ended(ended) => ended,
            News::Broken(fault) => return broken(supervisor, fault).await,
            News::Unused => return fall_asleep(supervisor).await,
            News::Over(step) => return step,
        };
        // The process may still be running with only the connection lost.
        let again = reattached(&context, &state, incarnation, &live, &ended);
        (live, inbound) = match supervisor.run_or_command(again).await {
            Ok(Some(again)) => again,
            Ok(None) => {
                return broken(
                    supervisor,
                    handshake::connection_ended(McpPhase::Runtime, &ended),
                )
                .await;
            }
            Err(step) => return step,
        };
        attached.retain(|at| at.elapsed() < REATTACHED_WITHIN);
        attached.push_back(Instant::now());
        if attached.len() > MAX_REATTACHED {
            let message = "the connection to the server was lost repeatedly";
            return broken(supervisor, Fault::new(McpPhase::Runtime, message)).await;
        }
    }
}

async fn watch(supervisor: &mut Supervisor, live: &Arc<RunningServer>, inbound: Inbound) -> News {
    let state = Arc::clone(&supervisor.state);
    let context = Arc::clone(&supervisor.context);
    let mut ended = Box::pin(live.connection.ended());
    let mut broken = Box::pin(health::broken(
        health::Watched::main(live),
        &context.settings,
    ));
    let mut unused = Box::pin(health::unused(&state, live));
    let mut minded = Box::pin(live.children.stop_idle());
    let mut followed = Box::pin(follow_tools(&state, live, inbound));
    loop {
        let healthy_at = supervisor.retry.healthy_at();
        tokio::select! {
            // An exit explains other failures at the same time.
            biased;
            why = &mut ended => return News::Ended(why),
            command = supervisor.next_command() => {
                let Some(command) = command else {
                    return News::Over(Step::Exit);
                };
                if let Some(step) = supervisor.execute(command, Activity::Active).await {
                    return News::Over(step);
                }
            }
            fault = &mut broken => return News::Broken(fault),
            () = &mut unused => return News::Unused,
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

async fn broken(supervisor: &mut Supervisor, fault: Fault) -> Step {
    // Calls wait for the next start from here on.
    supervisor.state.becomes(RunState::Queued);
    let session = supervisor.state.session.clone();
    let fault = handshake::with_stderr(&supervisor.context, &session, fault).await;
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

/// Reconnects to the same process if it is still running.
async fn reattached(
    context: &Arc<HostContext>,
    state: &Arc<ServerState>,
    incarnation: u64,
    live: &Arc<RunningServer>,
    ended: &CloseReason,
) -> Option<(Arc<RunningServer>, Inbound)> {
    if !matches!(ended, CloseReason::OutputClosed | CloseReason::Detached) {
        return None;
    }
    let again = adopt::attach(context, state, incarnation).await?;
    let live = Arc::new(RunningServer {
        connection: again.connection,
        handshake: Arc::clone(&live.handshake),
        children: Arc::clone(&live.children),
        install: live
            .install
            .as_ref()
            .map(|used| context.use_install(&used.key)),
        is_adopted: true,
    });
    Some((live, again.inbound))
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
    let before = blocking(move || {
        let before = held.run_record(&name);
        held.store
            .put_run_record(&name, &record)
            .map_err(std::io::Error::other)?;
        Ok((before, record.cache_key))
    });
    match before.await {
        Ok((Some(before), now)) if before.cache_key != now => {
            if let Some(old) = before.cache_key {
                context.spawn_drop_install(old);
            }
        }
        Ok(_) => {}
        Err(error) => {
            let name = &state.name;
            tracing::warn!(%name, %error, "failed to store the run record of a server");
        }
    }
}
