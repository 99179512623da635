//! Tries a server out, in a box that is always gone afterwards.
//!
//! Comes in: a description that is stored nowhere. Goes out: how far it came, its tools, and everything
//! that was written on the way.

use std::sync::Arc;

use boxwood_api::{
    McpPhase, McpProgress, McpRuntimeInfo, McpServerSpec, McpStatus, McpTestResult, SessionId,
};
use tokio::sync::{broadcast, mpsc};

use super::box_spec::Lasts;
use super::fault::Fault;
use super::kit::Kit;
use super::overhear::{Overhearing, Told};
use super::redact::Secrets;
use super::starting::{Start, Up};
use super::temporary_box::TemporaryBox;
use super::track::Track;
use super::turns::{Turn, Turns};
use super::{ToolFilter, greeting, naming};
use crate::wire::ProtocolLog;

/// One attempt. Dropping the future removes the box too, and then its copy.
pub(crate) async fn test(
    kit: &Arc<Kit>,
    spec: McpServerSpec,
    progress: mpsc::Sender<McpProgress>,
) -> McpTestResult {
    let track = Arc::new(Track::new());
    let (_, mut heard) = track.follow();
    let mut tested = Box::pin(in_a_box(kit, &spec, &track));
    // Telling only ends with the track, so whoever is slow to hear does not hold the test up.
    let result = tokio::select! {
        result = &mut tested => result,
        () = tell(&mut heard, &progress) => tested.as_mut().await,
    };
    tell_rest(&mut heard, &progress);
    let runtime = Box::new(result.runtime.clone());
    // The last word is worth a moment of patience.
    let last = progress.send(McpProgress::Done { runtime });
    drop(tokio::time::timeout(kit.settings.ping_timeout, last).await);
    result
}

/// Lines that do not fit are left out: the log has them all.
async fn tell(heard: &mut broadcast::Receiver<McpProgress>, to: &mpsc::Sender<McpProgress>) {
    loop {
        match heard.recv().await {
            Ok(progress) => drop(to.try_send(progress)),
            Err(broadcast::error::RecvError::Lagged(_)) => {}
            Err(broadcast::error::RecvError::Closed) => return,
        }
    }
}

/// What was said in the very moment in which the test was over.
fn tell_rest(heard: &mut broadcast::Receiver<McpProgress>, to: &mpsc::Sender<McpProgress>) {
    loop {
        match heard.try_recv() {
            Ok(progress) => drop(to.try_send(progress)),
            Err(broadcast::error::TryRecvError::Lagged(_)) => {}
            Err(broadcast::error::TryRecvError::Empty | broadcast::error::TryRecvError::Closed) => {
                return;
            }
        }
    }
}

async fn in_a_box(kit: &Arc<Kit>, spec: &McpServerSpec, track: &Arc<Track>) -> McpTestResult {
    let _room = in_turn(&kit.tests, track, "other tests are going on").await;
    let _turn = in_turn(&kit.turns, track, "other servers are starting").await;
    let secrets = Secrets::of(&spec.env);
    let session = naming::test_session();
    let trial = TemporaryBox::named(kit, session.clone());
    let protocol = Arc::new(ProtocolLog::default());
    let start = Start {
        kit,
        spec,
        session: &session,
        lasts: Lasts::ForATest,
        track,
        protocol: &protocol,
    };
    let mut overhearing = Overhearing {
        kit,
        session: &session,
        secrets: &secrets,
        track,
        told: Told::default(),
    };
    let outcome = tokio::select! {
        outcome = start.run() => outcome,
        never = overhearing.go_on() => match never {},
    };
    overhearing.finish().await;
    let outcome = outcome.map_err(|fault| fault.redacted(&secrets));
    track.rest();
    let mut log = track.install_log();
    if let Some(stderr) = greeting::stderr(kit, &session, &secrets).await {
        log.push_str(&stderr);
    }
    let mut runtime = runtime(spec, &session, track, &outcome);
    drop(outcome);
    if let Err(error) = trial.delete().await {
        // It is tried again at once, then every hour, and by the next daemon.
        let notice = format!("the test's box could not be removed yet: {error}");
        runtime.hint.get_or_insert(notice);
    }
    McpTestResult {
        ok: runtime.status == McpStatus::Connected,
        runtime,
        log,
    }
}

/// Whoever waits is told what for.
async fn in_turn(turns: &Turns, track: &Track, why: &str) -> Turn {
    if let Some(turn) = turns.take_now() {
        return turn;
    }
    track.tell(format!("waiting: {why}"));
    turns.take().await
}

fn runtime(
    spec: &McpServerSpec,
    session: &SessionId,
    track: &Track,
    outcome: &Result<Up, Fault>,
) -> McpRuntimeInfo {
    let filter = ToolFilter::from(&spec.tools);
    let had_box = !matches!(outcome, Err(fault) if fault.phase == McpPhase::BoxUnavailable);
    let up = outcome.as_ref().ok();
    let fault = outcome.as_ref().err();
    let tools: Vec<_> = up
        .map(|up| up.tools.iter())
        .into_iter()
        .flatten()
        .filter(|tool| filter.admits(&tool.name))
        .cloned()
        .collect();
    McpRuntimeInfo {
        status: if up.is_some() {
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
        steps: track.steps(),
        notices: track.notices(),
        retry_at: None,
        hint: fault.and_then(|fault| fault.hint.clone()),
        protocol_version: up.map(|up| up.greeting.protocol_version.clone()),
        server_info: up
            .and_then(|up| up.greeting.server_info.as_ref())
            .and_then(|raw| serde_json::from_str(raw.get()).ok()),
    }
}
