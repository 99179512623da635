//! Takes over a server that runs since before this daemon, or before its connection was lost.
//!
//! Its process is not restarted and not greeted again: what it said then was kept. Nor is it asked anything
//! here. It may be in the middle of a call, with its only thread; whoever attends to it gives it the time
//! that a busy server has.

use std::sync::Arc;
use std::time::Duration;

use boxwood_agent::Answer;
use boxwood_api::{ErrorCode, McpPhase, McpServerSpec, ProcessId, ProcessStatus};

use super::hosted::Hosted;
use super::kit::{Kit, blocking};
use super::naming;
use super::run_record::fingerprint;
use super::starting::Up;
use crate::wire::{Connection, Hears, Inbound, WireLimits};

/// A runtime that says no once may have had other things to do; a server is not given up for it.
const TRIES: usize = 3;
const BETWEEN_TRIES: Duration = Duration::from_secs(1);

pub(crate) struct TakenOver {
    pub(crate) up: Up,
    /// Processes whose clients went with the daemon that knew them.
    pub(crate) left: Vec<ProcessId>,
}

/// None where there is nothing to take over, or where it is not what `spec` says.
pub(crate) async fn adopt(
    kit: &Arc<Kit>,
    hosted: &Arc<Hosted>,
    spec: &McpServerSpec,
) -> Option<TakenOver> {
    if !kit.journal.holds(&hosted.session) {
        return None;
    }
    let (held, name) = (Arc::clone(kit), hosted.name.clone());
    let record = blocking(move || Ok(held.run_record(&name))).await.ok()??;
    if record.fingerprint != fingerprint(spec) {
        return None;
    }
    // What is kept is of the last start that succeeded. One that was under way when the daemon died may
    // have left another box, and there a process that was never greeted.
    let incarnation = record.incarnation?;
    let install = record.cache_key.as_deref().map(|key| kit.use_install(key));
    hosted.track.begin();
    let detail = "it runs since before this daemon".to_owned();
    hosted.track.enter(McpPhase::RelayConnect, Some(detail));
    hosted.track.notice(record.notices);
    let attached = attach(kit, hosted, incarnation).await?;
    hosted.track.enter(McpPhase::Runtime, None);
    Some(TakenOver {
        up: Up {
            connection: attached.connection,
            greeting: Arc::new(record.greeting),
            tools: record.tools,
            inbound: attached.inbound,
            incarnation,
            launched: record.launched,
            install,
        },
        left: attached.children,
    })
}

pub(crate) struct Attached {
    pub(crate) connection: Connection,
    pub(crate) inbound: Inbound,
    /// Further processes that run beside it.
    children: Vec<ProcessId>,
}

/// Goes on where the last reader stopped. None where the main process does not run any more, or where the
/// box is another one.
pub(crate) async fn attach(
    kit: &Arc<Kit>,
    hosted: &Arc<Hosted>,
    incarnation: u64,
) -> Option<Attached> {
    for attempt in 0..TRIES {
        if attempt > 0 {
            tokio::time::sleep(BETWEEN_TRIES).await;
        }
        match attach_once(kit, hosted, incarnation).await {
            Ok(attached) => return attached,
            Err(error) if is_gone(error.code) => return None,
            Err(error) => {
                let name = &hosted.name;
                tracing::warn!(%name, %error, "a running server could not be attached to");
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
    kit: &Arc<Kit>,
    hosted: &Arc<Hosted>,
    incarnation: u64,
) -> Answer<Option<Attached>> {
    let (runtime, session) = (&kit.runtime, &hosted.session);
    let looked = kit.patiently("looking for a box", runtime.session(session));
    if looked.await?.map(|found| found.incarnation) != Some(incarnation) {
        return Ok(None);
    }
    let listed = kit.patiently("listing processes", runtime.processes(session));
    let running: Vec<_> = listed
        .await?
        .into_iter()
        .filter(|process| process.status == ProcessStatus::Running)
        .map(|process| process.process_id)
        .collect();
    let main = naming::main_process();
    if !running.contains(&main) {
        return Ok(None);
    }
    let attaching = kit.patiently("attaching", runtime.attach(session, &main));
    let log = Arc::clone(&hosted.protocol);
    let connection = Connection::open(attaching.await?, WireLimits::default(), log);
    Ok(Some(Attached {
        inbound: connection.inbound(Hears::Notifications),
        connection,
        children: running.into_iter().filter(naming::is_child).collect(),
    }))
}
