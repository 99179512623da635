//! Attends to a server while it is connected: does it live, does it answer, does anybody need it?

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use boxwood_api::{McpPhase, ProcessId};
use tokio::time::Instant;

use super::children::Children;
use super::fault::Fault;
use super::hosted::{Condition, Hosted, Stop};
use super::kit::{Kit, blocking};
use super::run_record::{RunRecord, fingerprint};
use super::server::Live;
use super::starting::Up;
use super::supervisor::{During, Mode, Supervisor};
use super::tools::{self, ListError};
use super::{adopt, greeting, health};
use crate::wire::{CallError, Ended, Heard, Inbound};

/// How often a dropped connection is made anew before something else must be wrong.
const MAX_REATTACHED: usize = 5;
const REATTACHED_WITHIN: Duration = Duration::from_mins(1);
const TO_LIST_TOOLS: Duration = Duration::from_mins(1);
/// A server that changes its tools all the time is asked no more often.
const BETWEEN_LISTS: Duration = Duration::from_secs(1);

enum News {
    Ended(Ended),
    Broken(Fault),
    Unused,
    Over(Mode),
}

/// `left` are the processes that a server which was taken over has beside its main one.
pub(crate) async fn attend(
    supervisor: &mut Supervisor,
    up: Up,
    left: Option<Vec<ProcessId>>,
) -> Mode {
    let hosted = Arc::clone(&supervisor.hosted);
    let kit = Arc::clone(&supervisor.kit);
    remember(supervisor, &up).await;
    let children = Children::new(&kit, &hosted, &supervisor.ran_as, up.launched);
    let is_taken_over = left.is_some();
    let incarnation = up.incarnation;
    children.end_left(left.unwrap_or_default());
    let mut live = Arc::new(Live {
        connection: up.connection,
        greeting: up.greeting,
        children,
        install: up.install,
        is_taken_over,
    });
    let mut inbound = up.inbound;
    supervisor.found_no_boxes = 0;
    supervisor.retry.connected(Instant::now());
    hosted.has_box(true);
    hosted.touch();
    hosted.list_tools(up.tools);
    let name = &hosted.name;
    tracing::info!(%name, "a hosted MCP server is connected");
    let mut attached: VecDeque<Instant> = VecDeque::new();
    loop {
        supervisor.live = Some(Arc::clone(&live));
        hosted.becomes(Condition::Connected(Arc::clone(&live)));
        let ended = match watch(supervisor, &live, inbound).await {
            News::Ended(ended) => ended,
            News::Broken(fault) => return broken(supervisor, fault).await,
            News::Unused => return fall_asleep(supervisor).await,
            News::Over(mode) => return mode,
        };
        // The process may be well, and only the way to it was lost.
        let again = reattached(&kit, &hosted, incarnation, &live, &ended);
        (live, inbound) = match supervisor.unless_ordered(again).await {
            Ok(Some(again)) => again,
            Ok(None) => {
                return broken(supervisor, greeting::of_ended(McpPhase::Runtime, &ended)).await;
            }
            Err(mode) => return mode,
        };
        attached.retain(|at| at.elapsed() < REATTACHED_WITHIN);
        attached.push_back(Instant::now());
        if attached.len() > MAX_REATTACHED {
            let message = "the connection to the server was lost again and again";
            return broken(supervisor, Fault::new(McpPhase::Runtime, message)).await;
        }
    }
}

async fn watch(supervisor: &mut Supervisor, live: &Arc<Live>, inbound: Inbound) -> News {
    let hosted = Arc::clone(&supervisor.hosted);
    let kit = Arc::clone(&supervisor.kit);
    let mut ended = Box::pin(live.connection.ended());
    let mut broken = Box::pin(health::broken(health::Watched::main(live), &kit.settings));
    let mut unused = Box::pin(health::unused(&hosted, live));
    let mut minded = Box::pin(live.children.mind());
    let mut followed = Box::pin(follow_tools(&hosted, live, inbound));
    loop {
        let healthy_at = supervisor.retry.healthy_at();
        tokio::select! {
            // An end explains what else is wrong at the same moment.
            biased;
            why = &mut ended => return News::Ended(why),
            order = supervisor.next_order() => {
                let Some(order) = order else {
                    return News::Over(Mode::Gone);
                };
                if let Some(order) = supervisor.harmless(order)
                    && let Some(mode) = supervisor.obey(order, During::Life).await
                {
                    return News::Over(mode);
                }
            }
            fault = &mut broken => return News::Broken(fault),
            () = &mut unused => return News::Unused,
            never = &mut minded => match never {},
            never = &mut followed => match never {},
            () = until(healthy_at) => {
                supervisor.retry.settle(Instant::now());
                hosted.retries(supervisor.retry.count());
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

/// Lists the tools again whenever the server says that they are others now, and once it has time for that
/// when it was taken over.
async fn follow_tools(hosted: &Hosted, live: &Live, mut inbound: Inbound) -> Infallible {
    let mut is_news = live.is_taken_over;
    loop {
        if !is_news {
            is_news = match inbound.next().await {
                Heard::Message(message) => {
                    message.method() == Some("notifications/tools/list_changed")
                }
                Heard::Missed(_) => true,
                Heard::Ended => std::future::pending().await,
            };
            continue;
        }
        tokio::time::sleep(BETWEEN_LISTS).await;
        is_news = match tools::list(&live.connection, &live.greeting, TO_LIST_TOOLS).await {
            Ok(tools) => {
                hosted.list_tools(tools);
                false
            }
            // It is busy, and will be asked again.
            Err(ListError::Call(CallError::TimedOut { .. })) => true,
            Err(error) => {
                let name = &hosted.name;
                let error = hosted.secrets().hide_words(error.to_string());
                tracing::info!(%name, error, "the tools of a server could not be listed again");
                false
            }
        };
    }
}

async fn broken(supervisor: &mut Supervisor, fault: Fault) -> Mode {
    // From here on a call waits for what comes next instead of meeting a server that is gone.
    supervisor.hosted.becomes(Condition::Queued);
    let session = supervisor.hosted.session.clone();
    let fault = greeting::with_stderr(&supervisor.kit, &session, fault).await;
    supervisor.failed(fault).await
}

async fn fall_asleep(supervisor: &mut Supervisor) -> Mode {
    // From here on a call waits for the next start instead of meeting a box that goes.
    let hosted = Arc::clone(&supervisor.hosted);
    let name = &hosted.name;
    hosted.becomes(Condition::Stopped(Stop::Idle));
    if let Err(error) = supervisor.clear().await {
        tracing::warn!(%name, %error, "the box of an idle server could not be removed");
    }
    Mode::Rest
}

/// A new connection to the same process, where it still runs.
async fn reattached(
    kit: &Arc<Kit>,
    hosted: &Arc<Hosted>,
    incarnation: u64,
    live: &Arc<Live>,
    ended: &Ended,
) -> Option<(Arc<Live>, Inbound)> {
    if !matches!(ended, Ended::OutputClosed | Ended::Detached) {
        return None;
    }
    let again = adopt::attach(kit, hosted, incarnation).await?;
    let live = Arc::new(Live {
        connection: again.connection,
        greeting: Arc::clone(&live.greeting),
        children: Arc::clone(&live.children),
        install: live.install.as_ref().map(|used| kit.use_install(&used.key)),
        is_taken_over: true,
    });
    Some((live, again.inbound))
}

/// For the daemon after this one. Without it that one starts the server anew, which is no harm.
async fn remember(supervisor: &Supervisor, up: &Up) {
    let (kit, hosted) = (&supervisor.kit, &supervisor.hosted);
    let record = RunRecord {
        fingerprint: fingerprint(&supervisor.ran_as),
        incarnation: Some(up.incarnation),
        cache_key: up.install.as_ref().map(|used| used.key.clone()),
        launched: up.launched.clone(),
        greeting: (*up.greeting).clone(),
        tools: up.tools.clone(),
        notices: hosted.track.notices(),
    };
    let (held, name) = (Arc::clone(kit), hosted.name.clone());
    let before = blocking(move || {
        let before = held.run_record(&name);
        held.store
            .put_greeting(&name, &record)
            .map_err(std::io::Error::other)?;
        Ok((before, record.cache_key))
    });
    match before.await {
        Ok((Some(before), now)) if before.cache_key != now => {
            if let Some(old) = before.cache_key {
                kit.drop_when_unused(old);
            }
        }
        Ok(_) => {}
        Err(error) => {
            let name = &hosted.name;
            tracing::warn!(%name, %error, "what a server said could not be kept");
        }
    }
}
