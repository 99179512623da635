//! Containers that nobody needs any more: those of daemons that died, and those that the engine could
//! not remove while it was away.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::OnceCell;

use crate::args;
use crate::cli::{Cli, CliError};
use crate::labels::Owner;

/// An engine that takes longer to remove a container is not well.
const REMOVAL: Duration = Duration::from_secs(30);
const LISTING: Duration = Duration::from_secs(20);
/// Between two attempts while the engine is away.
const PAUSE: Duration = Duration::from_secs(2);

pub(crate) struct Janitor {
    cli: Cli,
    owner: Owner,
    swept: OnceCell<()>,
    /// Names that the engine still has to remove.
    waiting: Mutex<BTreeSet<String>>,
}

impl Janitor {
    pub(crate) fn new(cli: Cli, owner: Owner) -> Arc<Self> {
        Arc::new(Self {
            cli,
            owner,
            swept: OnceCell::new(),
            waiting: Mutex::default(),
        })
    }

    /// Removes what dead daemons left, once in a life. An engine that is away is asked again at the
    /// next occasion.
    pub(crate) async fn sweep_once(&self) -> Result<(), CliError> {
        self.swept.get_or_try_init(|| self.sweep()).await.map(drop)
    }

    async fn sweep(&self) -> Result<(), CliError> {
        let ids = self.cli.run(args::list_ours(), LISTING).await?;
        let ids: Vec<&str> = ids.split_whitespace().collect();
        if ids.is_empty() {
            return Ok(());
        }
        // One that went meanwhile makes the call fail; the others are printed all the same.
        let told = match self.cli.run(args::labels_of(&ids), LISTING).await {
            Err(error) if error.no_such_container() => return Box::pin(self.sweep()).await,
            told => told?,
        };
        let orphans: Vec<String> = told
            .lines()
            .filter_map(read_line)
            .filter(|(_, labels)| self.owner.is_orphan(labels))
            .map(|(id, _)| id)
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

    /// Has the engine remove a container whose processes are dead. Where the engine is away it is done
    /// when that is back: nothing of the box runs, and only its record is left.
    pub(crate) async fn remove(self: &Arc<Self>, name: &str) -> Result<(), CliError> {
        match self.try_remove(name).await {
            Err(error) if error.engine_is_away() => {
                tracing::warn!(%error, name, "a box's container is removed when the engine is back");
                self.remove_later(name);
                Ok(())
            }
            outcome => outcome,
        }
    }

    async fn try_remove(&self, name: &str) -> Result<(), CliError> {
        let mut pause = Duration::from_millis(5);
        let until = tokio::time::Instant::now() + REMOVAL;
        loop {
            match self.cli.run(args::remove(&[name]), REMOVAL).await {
                Err(error) if error.no_such_container() => return Ok(()),
                // It goes by itself when its init has ended; ours to wait for.
                Err(error) if error.being_removed() && tokio::time::Instant::now() < until => {
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(Duration::from_millis(200));
                }
                outcome => return outcome.map(drop),
            }
        }
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn remove_later(self: &Arc<Self>, name: &str) {
        let first = {
            let mut waiting = self.waiting();
            waiting.insert(name.to_owned());
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
        let names: Vec<String> = self.waiting().iter().cloned().collect();
        for name in names {
            match self.try_remove(&name).await {
                Err(error) if error.engine_is_away() => return false,
                Err(error) => tracing::warn!(%error, name, "a box's container was not removed"),
                Ok(()) => {}
            }
            self.waiting().remove(&name);
        }
        self.waiting().is_empty()
    }
}

/// Two JSON values on a line: an id, and labels or null.
fn read_line(line: &str) -> Option<(String, BTreeMap<String, String>)> {
    let mut values = serde_json::Deserializer::from_str(line).into_iter::<serde_json::Value>();
    let id = values.next()?.ok()?.as_str()?.to_owned();
    let labels = serde_json::from_value(values.next()?.ok()?).ok()?;
    Some((id, labels))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_engine_prints_is_read_whatever_is_in_a_label() {
        let line = r#""abc" {"langbot.session_id":"a \"b\" } \n","x":""}"#;
        let (id, labels) = read_line(line).expect("a line");
        assert_eq!(id, "abc");
        assert_eq!(labels["langbot.session_id"], "a \"b\" } \n");
        assert!(read_line("\"abc\" null").is_none());
        assert!(read_line("").is_none());
    }
}
