//! Generations of a workspace's placement: only the newest may act.
//!
//! When LangBot moves a workspace from one of its servers to another it increments the generation. The
//! old server must then not touch the new server's sessions.

use std::collections::HashMap;
use std::sync::Mutex;

use boxwood_api::SessionId;
use boxwood_session::{SessionError, Sessions};
use tokio::sync::watch;

use super::placement::{Placement, Workspace};
use crate::ActionError;
use crate::error::permission;
use crate::langbot::lock;

const SUPERSEDED: &str = "superseded by a newer placement of its workspace";

/// The newest generation of each workspace. Kept until the daemon exits, because forgetting one would
/// let an old server in again.
#[derive(Debug, Default)]
pub(crate) struct Generations {
    newest: Mutex<HashMap<Workspace, watch::Sender<u64>>>,
}

impl Generations {
    /// Admits a placement unless a newer one is known. The first request of a newer generation removes
    /// the sessions of older ones before this returns.
    pub(crate) async fn enter(
        &self,
        placement: Placement,
        sessions: &Sessions,
        max_records: usize,
    ) -> Result<CurrentPlacement, ActionError> {
        let (current, is_new) = self.observe(placement, max_records)?;
        if is_new {
            remove_older(sessions, placement.workspace, placement.generation).await;
            current.check()?;
        }
        Ok(current)
    }

    /// Like [`Generations::enter`], for callers that remove the sessions themselves. Also returns whether the
    /// generation is newer than any known one.
    pub(crate) fn observe(
        &self,
        placement: Placement,
        max_records: usize,
    ) -> Result<(CurrentPlacement, bool), ActionError> {
        let mut newest = lock(&self.newest);
        let workspace = placement.workspace;
        if newest.len() >= max_records && !newest.contains_key(&workspace) {
            return Err(permission(
                "Box generation fence capacity reached; \
                 refusing an unbounded Workspace allocation",
            ));
        }
        // Generations begin with 1.
        let known = newest
            .entry(workspace)
            .or_insert_with(|| watch::Sender::new(0));
        let (generation, known_generation) = (placement.generation, *known.borrow());
        if generation < known_generation {
            return Err(stale());
        }
        let is_new = generation > known_generation;
        if is_new {
            known.send_replace(generation);
        }
        let current = CurrentPlacement {
            placement,
            newest_generation: known.subscribe(),
        };
        Ok((current, is_new))
    }

    /// Admits a placement only if it is the newest already.
    pub(crate) fn current(&self, placement: Placement) -> Result<CurrentPlacement, ActionError> {
        let newest = lock(&self.newest);
        let known = newest.get(&placement.workspace).ok_or_else(stale)?;
        if *known.borrow() != placement.generation {
            return Err(stale());
        }
        Ok(CurrentPlacement {
            placement,
            newest_generation: known.subscribe(),
        })
    }
}

/// A placement that was the newest when it was admitted.
#[derive(Clone, Debug)]
pub struct CurrentPlacement {
    placement: Placement,
    newest_generation: watch::Receiver<u64>,
}

impl CurrentPlacement {
    pub(crate) fn check(&self) -> Result<(), ActionError> {
        if *self.newest_generation.borrow() == self.placement.generation {
            Ok(())
        } else {
            Err(stale())
        }
    }

    /// Resolves when a newer generation is known.
    pub async fn superseded(&self) {
        let mut newest = self.newest_generation.clone();
        let generation = self.placement.generation;
        if newest
            .wait_for(|newest| *newest != generation)
            .await
            .is_err()
        {
            // The daemon is exiting, so no newer generation can come.
            std::future::pending::<()>().await;
        }
    }

    /// Runs `work` and cancels it when a newer generation comes. Sessions that cancelled work was
    /// starting are removed before this returns.
    pub(crate) async fn guard<T>(
        &self,
        sessions: &Sessions,
        work: impl Future<Output = Result<T, ActionError>>,
    ) -> Result<T, ActionError> {
        let outcome = tokio::select! {
            biased;
            () = self.superseded() => Err(stale()),
            outcome = work => outcome,
        };
        if let Err(stale) = self.check() {
            let first_kept = self.placement.generation.saturating_add(1);
            remove_older(sessions, self.placement.workspace, first_kept).await;
            return Err(stale);
        }
        outcome
    }
}

pub(crate) fn stale() -> ActionError {
    permission("Stale Box placement generation")
}

/// Removes the sessions of a workspace whose generation is below `first_kept`. Runs in a task of its own,
/// so that a caller that disconnects does not leave a session of an old generation behind.
async fn remove_older(sessions: &Sessions, workspace: Workspace, first_kept: u64) {
    let sessions = sessions.clone();
    let removing = tokio::spawn(async move {
        let prefix = workspace.prefix();
        let is_old = |id: &SessionId| generation_of(id, &prefix).is_some_and(|it| it < first_kept);
        for id in sessions.ids().into_iter().filter(is_old) {
            match sessions.delete(&id, SUPERSEDED).await {
                Ok(()) | Err(SessionError::NotFound { .. }) => {}
                Err(error) => {
                    tracing::warn!(session = %id, %error, "failed to delete a session of an older placement");
                }
            }
        }
    });
    if let Err(error) = removing.await {
        tracing::error!(%error, "deleting the sessions of older placements panicked");
    }
}

fn generation_of(id: &SessionId, workspace_prefix: &str) -> Option<u64> {
    let rest = id.as_str().strip_prefix(workspace_prefix)?;
    rest.strip_prefix('g')?.split_once('-')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placement(workspace: &str, generation: u64) -> Placement {
        Placement::new(Workspace::new("platform", workspace), generation)
    }

    #[test]
    fn an_older_generation_is_rejected() {
        let generations = Generations::default();
        generations.observe(placement("a", 3), 10).expect("first");
        generations.observe(placement("a", 3), 10).expect("again");
        generations
            .observe(placement("b", 1), 10)
            .expect("another workspace");
        let error = generations
            .observe(placement("a", 2), 10)
            .expect_err("older");
        assert_eq!(
            error.to_string(),
            "PermissionError: Stale Box placement generation"
        );
        generations.observe(placement("a", 4), 10).expect("newer");
        assert!(generations.current(placement("a", 3)).is_err());
        assert!(generations.current(placement("a", 4)).is_ok());
        assert!(generations.current(placement("c", 1)).is_err());
    }

    #[test]
    fn the_number_of_workspaces_is_bounded() {
        let generations = Generations::default();
        generations.observe(placement("a", 1), 1).expect("fits");
        let error = generations.observe(placement("b", 1), 1).expect_err("full");
        assert_eq!(error.class(), "PermissionError");
        generations
            .observe(placement("a", 2), 1)
            .expect("a known one is fine");
    }

    #[tokio::test]
    async fn a_newer_generation_supersedes_the_current_one() {
        let generations = Generations::default();
        generations.observe(placement("a", 1), 10).expect("first");
        let current = generations.current(placement("a", 1)).expect("current");
        let waiting = tokio::spawn({
            let current = current.clone();
            async move { current.superseded().await }
        });
        generations
            .observe(placement("b", 9), 10)
            .expect("another workspace");
        assert!(current.check().is_ok());
        generations.observe(placement("a", 5), 10).expect("newer");
        assert!(current.check().is_err());
        tokio::time::timeout(std::time::Duration::from_secs(5), waiting)
            .await
            .expect("superseded in time")
            .expect("no panic");
    }
}
