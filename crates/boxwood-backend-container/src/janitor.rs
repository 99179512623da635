//! Containers that nobody needs any more: those of daemons that died, and those that the engine could
//! not remove while it was away.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::OnceCell;
use tokio::time::Instant;

use crate::args;
use crate::cli::{Cli, CliError};
use crate::labels::{NAME_PREFIX, Owner, State};

/// An engine that takes longer to remove a container is not well.
const REMOVAL: Duration = Duration::from_secs(30);
const LISTING: Duration = Duration::from_secs(20);
/// Between two attempts while the engine is away.
const PAUSE: Duration = Duration::from_secs(2);
/// An engine that answers again has done by then what it was told before.
const LATE: Duration = Duration::from_secs(10);

pub(crate) struct Janitor {
    cli: Cli,
    owner: Owner,
    swept: OnceCell<()>,
    /// Boxes of an earlier life that are ours again.
    adopted: Mutex<BTreeSet<String>>,
    /// Names that the engine still has to remove.
    waiting: Mutex<BTreeMap<String, Doubt>>,
    /// Nobody waits for an engine of which another has found out that it is away.
    away: AtomicBool,
}

/// Whether a container that is not there may still come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doubt {
    None,
    /// The engine was told to make it and did not answer: it may come to that later. Since when it
    /// has been seen not to be there, by an engine that answers.
    Unborn {
        missing_since: Option<Instant>,
    },
}

impl Janitor {
    pub(crate) fn new(cli: Cli, owner: Owner) -> Arc<Self> {
        Arc::new(Self {
            cli,
            owner,
            swept: OnceCell::new(),
            adopted: Mutex::default(),
            waiting: Mutex::default(),
            away: AtomicBool::new(false),
        })
    }

    /// Spares a box that was taken over. Before the first sweep.
    pub(crate) fn spare(&self, name: &str) {
        let mut adopted = self.adopted.lock().unwrap_or_else(PoisonError::into_inner);
        adopted.insert(name.to_owned());
    }

    fn is_orphan(&self, found: &Found) -> bool {
        let adopted = self.adopted.lock().unwrap_or_else(PoisonError::into_inner);
        let name = plain(&found.name);
        name.starts_with(NAME_PREFIX)
            && !adopted.contains(name)
            && self.owner.is_orphan(&found.labels, found.state)
    }

    /// Removes what dead daemons left, once in a life. An engine that is away is asked again at the
    /// next occasion.
    pub(crate) async fn sweep_once(&self) -> Result<(), CliError> {
        self.swept.get_or_try_init(|| self.sweep()).await.map(drop)
    }

    async fn sweep(&self) -> Result<(), CliError> {
        const ATTEMPTS: u32 = 10;
        for _ in 1..ATTEMPTS {
            match self.try_sweep().await {
                // Somebody else's went between two looks.
                Err(error) if error.went_meanwhile() => {}
                outcome => return outcome,
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        self.try_sweep().await
    }

    async fn try_sweep(&self) -> Result<(), CliError> {
        let ids = self.cli.run(args::list_ours(), LISTING).await?;
        let ids: Vec<&str> = ids.split_whitespace().collect();
        if ids.is_empty() {
            return Ok(());
        }
        let told = self.labels_of(&ids).await?;
        let orphans: Vec<String> = told
            .lines()
            .filter_map(read_line)
            .filter(|found| self.is_orphan(found))
            .map(|found| found.id)
            .collect();
        if orphans.is_empty() {
            return Ok(());
        }
        tracing::info!(
            count = orphans.len(),
            "removing boxes of daemons that are gone"
        );
        match self.cli.run(args::remove(&orphans), REMOVAL).await {
            Err(error) if !error.no_such_container() && !error.being_removed() => Err(error),
            _ => Ok(()),
        }
    }

    /// One line for each container; those that go at the same time are left out.
    async fn labels_of(&self, ids: &[&str]) -> Result<String, CliError> {
        match self.cli.run(args::labels_of(ids), LISTING).await {
            Err(error) if error.went_meanwhile() => {}
            outcome => return outcome,
        }
        // Of several containers the engine tells nothing when one is missing. On a busy engine there
        // may always be one.
        let mut lines = String::new();
        for id in ids {
            match self.cli.run(args::labels_of(&[id]), LISTING).await {
                Ok(line) => lines.extend([line.trim_end(), "\n"]),
                Err(error) if error.went_meanwhile() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(lines)
    }

    /// Has the engine remove a container whose processes are dead. Where the engine is away it is done
    /// when that is back: nothing of the box runs, and only its record is left.
    pub(crate) async fn remove(self: &Arc<Self>, name: &str) -> Result<(), CliError> {
        if self.away.load(Ordering::Acquire) {
            self.remove_later(name, Doubt::None);
            return Ok(());
        }
        match self.try_remove(name).await {
            Err(error) if error.engine_is_away() => {
                tracing::warn!(%error, name, "a box's container is removed when the engine is back");
                self.remove_later(name, Doubt::None);
                Ok(())
            }
            outcome => outcome.map(drop),
        }
    }

    /// The same for a container of which nobody knows whether the engine will yet make it.
    pub(crate) fn remove_unborn(self: &Arc<Self>, name: &str) {
        let missing_since = None;
        self.remove_later(name, Doubt::Unborn { missing_since });
    }

    async fn try_remove(&self, name: &str) -> Result<Removed, CliError> {
        let mut pause = Duration::from_millis(5);
        let until = Instant::now() + REMOVAL;
        loop {
            match self.cli.run(args::remove(&[name]), REMOVAL).await {
                Err(error) if error.no_such_container() => return Ok(Removed::WasNotThere),
                // It goes by itself when its init has ended; ours to wait for.
                Err(error)
                    if (error.being_removed() || error.ended_meanwhile())
                        && Instant::now() < until =>
                {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_millis(200));
                }
                outcome => return outcome.map(|_| Removed::Now),
            }
        }
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Doubt>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remove_later(self: &Arc<Self>, name: &str, doubt: Doubt) {
        self.away.store(true, Ordering::Release);
        let first = {
            let mut waiting = self.waiting();
            waiting.insert(name.to_owned(), doubt);
            waiting.len() == 1
        };
        if first {
            let janitor = Arc::downgrade(self);
            tokio::spawn(async move {
                loop {
                    tokio::time::sleep(PAUSE).await;
                    // A daemon that ends leaves them to the next one's sweep.
                    let Some(janitor) = janitor.upgrade() else {
                        return;
                    };
                    if janitor.work_off().await {
                        return;
                    }
                }
            });
        }
    }

    /// True when nothing waits any more.
    async fn work_off(&self) -> bool {
        let all: Vec<(String, Doubt)> = {
            let waiting = self.waiting();
            waiting
                .iter()
                .map(|(name, doubt)| (name.clone(), *doubt))
                .collect()
        };
        for (name, doubt) in all {
            let removed = match self.try_remove(&name).await {
                Err(error) if error.engine_is_away() => {
                    self.away.store(true, Ordering::Release);
                    return false;
                }
                Err(error) => {
                    tracing::warn!(%error, name, "a box's container was not removed");
                    Removed::Now
                }
                Ok(removed) => removed,
            };
            self.away.store(false, Ordering::Release);
            let mut waiting = self.waiting();
            match still_in_doubt(doubt, removed, Instant::now()) {
                Some(doubt) => waiting.insert(name, doubt),
                None => waiting.remove(&name),
            };
        }
        self.waiting().is_empty()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Removed {
    Now,
    WasNotThere,
}

/// What is left of a doubt after an engine has answered.
fn still_in_doubt(doubt: Doubt, removed: Removed, now: Instant) -> Option<Doubt> {
    let Doubt::Unborn { missing_since } = doubt else {
        return None;
    };
    let since = missing_since.unwrap_or(now);
    let is_settled = removed == Removed::Now || now.duration_since(since) >= LATE;
    let missing_since = Some(since);
    (!is_settled).then_some(Doubt::Unborn { missing_since })
}

struct Found {
    id: String,
    name: String,
    state: State,
    labels: BTreeMap<String, String>,
}

/// Four JSON values on a line: an id, a name, whether it runs, and labels or null.
fn read_line(line: &str) -> Option<Found> {
    let mut values = serde_json::Deserializer::from_str(line).into_iter::<serde_json::Value>();
    let mut next = || values.next()?.ok();
    Some(Found {
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

/// Docker writes names with a slash in front. Labels alone do not make a box: an image that somebody
/// made of one has them too, and so has every container from it.
fn plain(name: &str) -> &str {
    name.trim_start_matches('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_engine_prints_is_read_whatever_is_in_a_label() {
        let line = r#""abc" "/n" true {"langbot.session_id":"a \"b\" } \n","x":""}"#;
        let found = read_line(line).expect("a line");
        assert_eq!((&*found.id, &*found.name), ("abc", "/n"));
        assert_eq!(found.labels["langbot.session_id"], "a \"b\" } \n");
        assert_eq!(found.state, State::Running);
        assert!(read_line("\"abc\" \"/n\" true null").is_none());
        assert!(read_line("").is_none());
    }

    #[test]
    fn a_container_from_an_image_of_a_box_is_no_box() {
        let is_ours = |name| plain(name).starts_with(NAME_PREFIX);
        assert!(is_ours("/langbot-box-demo-0badcafe"));
        assert!(is_ours("langbot-box-demo-0badcafe"));
        assert!(!is_ours("/postgres"));
    }

    #[test]
    fn a_container_that_may_yet_come_is_waited_for() {
        let now = Instant::now();
        let unborn = |missing_since| Doubt::Unborn { missing_since };
        let missing = Removed::WasNotThere;
        assert_eq!(still_in_doubt(Doubt::None, missing, now), None);
        assert_eq!(still_in_doubt(unborn(None), Removed::Now, now), None);
        let seen = still_in_doubt(unborn(None), missing, now).expect("it may come");
        assert_eq!(seen, unborn(Some(now)));
        assert_eq!(still_in_doubt(seen, missing, now + LATE / 2), Some(seen));
        assert_eq!(still_in_doubt(seen, missing, now + LATE), None);
    }
}
