//! Tests a definition in a temporary box, without storing it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use boxwood_api::{
    McpPhase, McpProgress, McpRuntimeInfo, McpServerSpec, McpStatus, McpTestResult, SessionId,
};
use tokio::sync::{Semaphore, SemaphorePermit, broadcast, mpsc};

use super::fault::Fault;
use super::start::{Start, Started};
use crate::hosting::ToolFilter;
use crate::hosting::boxes::box_spec::BoxLifetime;
use crate::hosting::boxes::ids;
use crate::hosting::boxes::temporary_box::TemporaryBox;
use crate::hosting::context::HostContext;
use crate::hosting::logs::progress::ProgressLog;
use crate::hosting::logs::redact::Secrets;
use crate::hosting::process::handshake;
use crate::wire::ProtocolLog;

/// One attempt. Dropping the future removes the box.
pub(crate) async fn test(
    context: &Arc<HostContext>,
    spec: McpServerSpec,
    progress: mpsc::Sender<McpProgress>,
) -> McpTestResult {
    let progress_log = Arc::new(ProgressLog::new());
    let (_, mut events) = progress_log.follow();
    let mut tested = Box::pin(in_a_box(context, &spec, &progress_log));
    // Forwarding never blocks the test. It ends when the progress log is dropped.
    let result = tokio::select! {
        result = &mut tested => result,
        () = forward(&mut events, &progress) => tested.as_mut().await,
    };
    forward_remaining(&mut events, &progress);
    let runtime = Box::new(result.runtime.clone());
    // Wait a moment for a slow receiver, because this event ends the stream.
    let last = progress.send(McpProgress::Done { runtime });
    drop(tokio::time::timeout(context.settings.ping_timeout, last).await);
    result
}

/// Drops events that do not fit. The log has all lines.
async fn forward(events: &mut broadcast::Receiver<McpProgress>, to: &mpsc::Sender<McpProgress>) {
    loop {
        match events.recv().await {
            Ok(progress) => drop(to.try_send(progress)),
            Err(broadcast::error::RecvError::Lagged(_)) => {}
            Err(broadcast::error::RecvError::Closed) => return,
        }
    }
}

/// Forwards events that arrived as the test ended.
fn forward_remaining(
    events: &mut broadcast::Receiver<McpProgress>,
    to: &mpsc::Sender<McpProgress>,
) {
    loop {
        match events.try_recv() {
            Ok(progress) => drop(to.try_send(progress)),
            Err(broadcast::error::TryRecvError::Lagged(_)) => {}
            Err(broadcast::error::TryRecvError::Empty | broadcast::error::TryRecvError::Closed) => {
                return;
            }
        }
    }
}

async fn in_a_box(
    context: &Arc<HostContext>,
    spec: &McpServerSpec,
    progress_log: &Arc<ProgressLog>,
) -> McpTestResult {
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
    let secrets = Secrets::of(&spec.env);
    let session = ids::test_session();
    let trial = TemporaryBox::named(context, session.clone());
    let protocol = Arc::new(ProtocolLog::default());
    let start = Start {
        context,
        spec,
        session: &session,
        lifetime: BoxLifetime::Test,
        progress_log,
        protocol: &protocol,
        must_reinstall: &AtomicBool::new(false),
    };
    let outcome = start.run().await;
    let outcome = outcome.map_err(|fault| fault.redacted(&secrets));
    progress_log.rest();
    let mut log = progress_log.install_log();
    if let Some(stderr) = handshake::stderr(context, &session, &secrets).await {
        for line in stderr.lines() {
            progress_log.emit(line.to_owned());
        }
        log.push_str(&stderr);
    }
    let mut runtime = runtime(spec, &session, progress_log, &outcome);
    drop(outcome);
    if let Err(error) = trial.delete().await {
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

fn runtime(
    spec: &McpServerSpec,
    session: &SessionId,
    progress_log: &ProgressLog,
    outcome: &Result<Started, Fault>,
) -> McpRuntimeInfo {
    let filter = ToolFilter::from(&spec.tools);
    let had_box = !matches!(outcome, Err(fault) if fault.phase == McpPhase::BoxUnavailable);
    let started = outcome.as_ref().ok();
    let fault = outcome.as_ref().err();
    let tools: Vec<_> = started
        .map(|started| started.tools.iter())
        .into_iter()
        .flatten()
        .filter(|tool| filter.admits(&tool.name))
        .cloned()
        .collect();
    McpRuntimeInfo {
        status: if started.is_some() {
            McpStatus::Connected
        } else {
            McpStatus::Error
        },
        error_message: fault.map(|fault| fault.message.clone()),
        error_phase: fault.map(|fault| fault.phase),
        retry_count: 0,
        tool_count: tools.len(),
        tools,
        box_session_id: had_box.then(|| session.clone()),
        box_enabled: had_box.then_some(true),
        steps: progress_log.steps(),
        notices: progress_log.notices(),
        retry_at: None,
        hint: fault.and_then(|fault| fault.hint.clone()),
        protocol_version: started.map(|started| started.handshake.protocol_version.clone()),
        server_info: started
            .and_then(|started| started.handshake.server_info.as_ref())
            .and_then(|raw| serde_json::from_str(raw.get()).ok()),
    }
}
