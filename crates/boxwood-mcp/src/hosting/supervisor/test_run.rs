//! Tests a definition in a temporary box, without storing it.

use std::sync::Arc;

use boxwood_api::{McpPhase, McpProgress, McpServerSpec, McpStatus, McpTestResult};
use jiff::Timestamp;
use tokio::sync::{Semaphore, SemaphorePermit, broadcast, mpsc, watch};
use tokio_util::task::AbortOnDropHandle;

use super::start::Start;
use super::state::{RunState, ServerState};
use crate::hosting::boxes::box_spec::BoxLifetime;
use crate::hosting::boxes::ids;
use crate::hosting::boxes::temporary_box::TemporaryBox;
use crate::hosting::context::HostContext;
use crate::hosting::definitions::store::Stored;
use crate::hosting::logs::progress::ProgressLog;
use crate::hosting::process::handshake;

/// One attempt. Dropping the future removes the box.
pub(crate) async fn test(
    context: &Arc<HostContext>,
    spec: McpServerSpec,
    progress: mpsc::Sender<McpProgress>,
) -> McpTestResult {
    let now = Timestamp::now();
    let stored = Stored {
        spec,
        created_at: now,
        updated_at: now,
    };
    let state = ServerState::new(stored, ids::test_session(), watch::Sender::new(0));
    let (_, events) = state.progress_log.follow();
    let forwarding = AbortOnDropHandle::new(tokio::spawn(forward(events, progress.clone())));
    let result = in_a_box(context, &state).await;
    // Forwarding ends after the last event.
    drop(state);
    drop(forwarding.await);
    let runtime = Box::new(result.runtime.clone());
    // Wait a moment for a slow receiver, because this event ends the stream.
    let sending = progress.send(McpProgress::Done { runtime });
    drop(tokio::time::timeout(context.settings.ping_timeout, sending).await);
    result
}

/// Drops events that do not fit. The log has all lines.
async fn forward(mut events: broadcast::Receiver<McpProgress>, to: mpsc::Sender<McpProgress>) {
    loop {
        match events.recv().await {
            // Sent after the box is removed.
            Ok(McpProgress::Done { .. }) | Err(broadcast::error::RecvError::Lagged(_)) => {}
            Ok(progress) => drop(to.try_send(progress)),
            Err(broadcast::error::RecvError::Closed) => return,
        }
    }
}

async fn in_a_box(context: &Arc<HostContext>, state: &ServerState) -> McpTestResult {
    let progress_log = &state.progress_log;
    let _test_permit = acquire(
        &context.test_permits,
        progress_log,
        "other tests are running",
    )
    .await;
    let _permit = acquire(
        &context.start_permits,
        progress_log,
        "other servers are starting",
    )
    .await;
    let (spec, secrets) = (state.spec(), state.secrets());
    let mut temporary_box = TemporaryBox::named(context, state.session.clone());
    let start = Start {
        context,
        state,
        spec: &spec,
        lifetime: BoxLifetime::Test,
    };
    let outcome = start.run().await;
    progress_log.end_phase();
    let mut log = progress_log.install_log();
    let main = ids::main_process();
    if let Some(stderr) = handshake::stderr(context, &state.session, &main, &secrets).await {
        for line in stderr.lines() {
            progress_log.emit(line.to_owned());
        }
        log.push_str(&stderr);
    }
    match outcome {
        Ok(started) => {
            state.set_has_box(true);
            let (running, _) = started.into_running(context, state, &spec);
            state.set_run_state(RunState::Connected(Arc::new(running)));
        }
        Err(fault) => {
            state.set_has_box(fault.phase != McpPhase::BoxUnavailable);
            state.set_run_state(RunState::Failed(fault.redacted(&secrets)));
        }
    }
    let mut runtime = state.runtime();
    if let Err(error) = temporary_box.delete().await {
        // Removal is retried at once, then hourly, and by the next daemon.
        let notice = format!("the box of the test could not be removed yet: {error}");
        runtime.hint.get_or_insert(notice);
    }
    McpTestResult {
        ok: runtime.status == McpStatus::Connected,
        runtime,
        log,
    }
}

/// Reports the reason if the permit is not available at once. The semaphore is never closed.
async fn acquire<'a>(
    permits: &'a Semaphore,
    progress_log: &ProgressLog,
    why: &str,
) -> Option<SemaphorePermit<'a>> {
    if let Ok(permit) = permits.try_acquire() {
        return Some(permit);
    }
    progress_log.emit(format!("waiting: {why}"));
    permits.acquire().await.ok()
}
