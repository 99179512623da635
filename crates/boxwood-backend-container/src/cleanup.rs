//! Removes containers of dead daemons, and containers whose removal failed because the engine was
//! unavailable.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use boxwood_api::with_causes;
use boxwood_local::lock;
use tokio::sync::OnceCell;
use tokio::time::Instant;

use crate::args;
use crate::cli::{Cli, CliError};
use crate::ownership::{NAME_PREFIX, Owner, State};

/// Timeout of a removal.
const REMOVAL: Duration = Duration::from_secs(30);
const LISTING: Duration = Duration::from_secs(20);
/// Interval between attempts while the engine is unavailable.
const RETRY_INTERVAL: Duration = Duration::from_secs(2);
/// By then an engine that is available again has processed earlier requests.
const SETTLE_TIME: Duration = Duration::from_secs(10);

pub(crate) struct Cleanup {
    cli: Cli,
    owner: Owner,
    orphans_removed: OnceCell<()>,
    /// Boxes of an earlier daemon that were adopted.
    adopted: Mutex<BTreeSet<String>>,
    /// Containers that are still to be removed, and when an available engine first reported them as missing.
    waiting: Mutex<BTreeMap<String, Option<Instant>>>,
    /// Set when a call found the engine unavailable, so that other calls do not wait for it.
    unavailable: AtomicBool,
}

impl Cleanup {
    pub(crate) fn new(cli: Cli, owner: Owner) -> Arc<Self> {
        Arc::new(Self {
            cli,
            owner,
            orphans_removed: OnceCell::new(),
            adopted: Mutex::default(),
            waiting: Mutex::default(),
            unavailable: AtomicBool::new(false),
        })
    }

    /// Excludes an adopted box from the cleanup. Called before the first cleanup.
    pub(crate) fn keep(&self, name: &str) {
        lock(&self.adopted).insert(name.to_owned());
    }

    fn is_orphan(&self, found: &ListedContainer) -> bool {
        let name = plain(&found.name);
        name.starts_with(NAME_PREFIX)
            && !lock(&self.adopted).contains(name)
            && self.owner.is_orphan(&found.labels, found.state)
    }

    /// Removes containers of dead daemons once per run. Tried again with the next call if the engine is
    /// unavailable.
    pub(crate) async fn remove_orphans_once(&self) -> Result<(), CliError> {
        self.orphans_removed
            .get_or_try_init(|| self.remove_orphans())
            .await
            .map(drop)
    }

    async fn remove_orphans(&self) -> Result<(), CliError> {
        const ATTEMPTS: u32 = 10;
        for _ in 1..ATTEMPTS {
            match self.try_remove_orphans().await {
                // A container disappeared between listing and inspection.
                Err(error) if error.is_gone() => {}
                outcome => return outcome,
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        self.try_remove_orphans().await
    }

    async fn try_remove_orphans(&self) -> Result<(), CliError> {
        let ids = self.cli.run(args::list_boxes(), LISTING).await?;
        let ids: Vec<&str> = ids.split_whitespace().collect();
        if ids.is_empty() {
            return Ok(());
        }
        let output = self.labels_of(&ids).await?;
        let orphans: Vec<String> = output
            .lines()
            .filter_map(read_line)
            .filter(|found| self.is_orphan(found))
            .map(|found| found.id)
            .collect();
        if orphans.is_empty() {
            return Ok(());
        }
        tracing::info!(count = orphans.len(), "removing containers of dead daemons");
        match self.cli.run(args::remove(&orphans), REMOVAL).await {
            Err(error) if !error.no_such_container() && !error.being_removed() => Err(error),
            _ => Ok(()),
        }
    }

    /// One line per container. Containers that disappear meanwhile are left out.
    async fn labels_of(&self, ids: &[&str]) -> Result<String, CliError> {
        match self.cli.run(args::labels_of(ids), LISTING).await {
            Err(error) if error.is_gone() => {}
            outcome => return outcome,
        }
        // If one of several containers is missing, the engine reports none. On a busy engine that may
        // happen every time, so they are inspected one by one.
        let mut lines = String::new();
        for id in ids {
            match self.cli.run(args::labels_of(&[id]), LISTING).await {
                Ok(line) => lines.extend([line.trim_end(), "\n"]),
                Err(error) if error.is_gone() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(lines)
    }

    /// Removes a container whose processes are dead. If the engine is unavailable, it is removed later:
    /// nothing of the box is running any more.
    pub(crate) async fn remove(self: &Arc<Self>, name: &str) -> Result<(), CliError> {
        if self.unavailable.load(Ordering::Acquire) {
            self.remove_later(name);
            return Ok(());
        }
        match self.try_remove(name).await {
            Err(error) if error.engine_is_unavailable() => {
                tracing::warn!(error = %with_causes(&error), name, "the engine is unavailable; the container will be removed later");
                self.remove_later(name);
                Ok(())
            }
            outcome => outcome.map(drop),
        }
    }

    async fn try_remove(&self, name: &str) -> Result<Removed, CliError> {
        let mut pause = Duration::from_millis(5);
        let until = Instant::now() + REMOVAL;
        loop {
            match self.cli.run(args::remove(&[name]), REMOVAL).await {
                Err(error) if error.no_such_container() => return Ok(Removed::Missing),
                // `--rm` removes it when its init exits; wait for that.
                Err(error)
                    if (error.being_removed() || error.has_ended()) && Instant::now() < until =>
                {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_millis(200));
                }
                outcome => return outcome.map(|_| Removed::Now),
            }
        }
    }

    /// Removes a container once the engine is available. The engine may still create it: an earlier request may
    /// have reached it without a reply.
    pub(crate) fn remove_later(self: &Arc<Self>, name: &str) {
        self.unavailable.store(true, Ordering::Release);
        let first = {
            let mut waiting = lock(&self.waiting);
            let first = waiting.is_empty();
            waiting.insert(name.to_owned(), None);
            first
        };
        if first {
            let cleanup = Arc::downgrade(self);
            tokio::spawn(async move {
                loop {
                    tokio::time::sleep(RETRY_INTERVAL).await;
                    // After a shutdown the next daemon removes them.
                    let Some(cleanup) = cleanup.upgrade() else {
                        return;
                    };
                    if cleanup.remove_waiting().await {
                        return;
                    }
                }
            });
        }
    }

    /// Returns true if nothing is left to remove.
    async fn remove_waiting(&self) -> bool {
        let names: Vec<String> = lock(&self.waiting).keys().cloned().collect();
        for name in names {
            let removed = match self.try_remove(&name).await {
                Err(error) if error.engine_is_unavailable() => {
                    self.unavailable.store(true, Ordering::Release);
                    return false;
                }
                Err(error) => {
                    tracing::warn!(error = %with_causes(&error), name, "failed to remove the container of a box");
                    Removed::Now
                }
                Ok(removed) => removed,
            };
            self.unavailable.store(false, Ordering::Release);
            let mut waiting = lock(&self.waiting);
            if let Some(missing_since) = waiting.get_mut(&name)
                && is_final(missing_since, removed, Instant::now())
            {
                waiting.remove(&name);
            }
        }
        lock(&self.waiting).is_empty()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Removed {
    Now,
    Missing,
}

/// Returns true if an available engine will not create the container any more.
fn is_final(missing_since: &mut Option<Instant>, removed: Removed, now: Instant) -> bool {
    let since = *missing_since.get_or_insert(now);
    removed == Removed::Now || now.duration_since(since) >= SETTLE_TIME
}

struct ListedContainer {
    id: String,
    name: String,
    state: State,
    labels: BTreeMap<String, String>,
}

/// Parses four JSON values: id, name, running, and labels or null.
fn read_line(line: &str) -> Option<ListedContainer> {
    let mut values = serde_json::Deserializer::from_str(line).into_iter::<serde_json::Value>();
    let mut next = || values.next()?.ok();
    Some(ListedContainer {
        id: next()?.as_str()?.to_owned(),
        name: next()?.as_str()?.to_owned(),
        state: if next()?.as_bool()? {
            State::Running
        } else {
            State::Ended
        },
        labels: serde_json::from_value(next()?).ok()?,
    })
}

/// Strips the slash that Docker puts in front of names. Boxes are recognised by name and labels, because an
/// image committed from a box carries the labels too.
fn plain(name: &str) -> &str {
    name.trim_start_matches('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_of_the_engine_is_parsed_with_any_label() {
        let line = r#""abc" "/n" true {"langbot.session_id":"a \"b\" } \n","x":""}"#;
        let found = read_line(line).expect("a line");
        assert_eq!((&*found.id, &*found.name), ("abc", "/n"));
        assert_eq!(found.labels["langbot.session_id"], "a \"b\" } \n");
        assert_eq!(found.state, State::Running);
        assert!(read_line("\"abc\" \"/n\" true null").is_none());
        assert!(read_line("").is_none());
    }

    #[test]
    fn containers_with_other_names_are_not_boxes() {
        let is_box = |name| plain(name).starts_with(NAME_PREFIX);
        assert!(is_box("/langbot-box-demo-0badcafe"));
        assert!(is_box("langbot-box-demo-0badcafe"));
        assert!(!is_box("/postgres"));
    }

    #[test]
    fn a_container_that_may_still_appear_is_checked_again() {
        let now = Instant::now();
        let mut missing_since = None;
        assert!(is_final(&mut missing_since, Removed::Now, now));
        let mut missing_since = None;
        let mut is_final = |at| is_final(&mut missing_since, Removed::Missing, at);
        assert!(!is_final(now));
        assert!(!is_final(now + SETTLE_TIME / 2));
        assert!(is_final(now + SETTLE_TIME));
    }
}
