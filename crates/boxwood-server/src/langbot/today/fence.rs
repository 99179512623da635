//! Generations of a workspace's placement: only the newest one may do anything.
//!
//! Comes in: placements as they are named in requests. Goes out: leave to go on while a placement is
//! the newest, and the news that it no longer is. Never here: what the request is about. When a
//! platform hands a workspace from one of its servers to another it counts the generation up, and the
//! old server must not be able to touch what the new one made.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use boxwood_api::SessionId;
use boxwood_session::{SessionError, Sessions};
use tokio::sync::watch;

use super::tenancy::{Placement, Workspace};
use crate::langbot::Fault;

const SUPERSEDED: &str = "its workspace was placed anew";

/// The newest generation of each workspace, for as long as the daemon lives: a fence that forgets
/// would let an old server back in.
#[derive(Debug, Default)]
pub(crate) struct Fence {
    newest: Mutex<HashMap<Workspace, watch::Sender<u64>>>,
}

/// What a placement found when it came.
#[derive(Debug)]
enum Arrival {
    Known(Standing),
    /// Older generations have just ended.
    Advanced(Standing),
}

impl Fence {
    /// Lets a placement in, if it is not older than one we have seen. The first request of a newer
    /// one removes what older ones left, and returns when that is gone.
    pub(crate) async fn enter(
        &self,
        placement: Placement,
        sessions: &Sessions,
        max_records: usize,
    ) -> Result<Standing, Fault> {
        match self.arrive(placement, max_records)? {
            Arrival::Known(standing) => Ok(standing),
            Arrival::Advanced(standing) => {
                retire(sessions, placement.workspace(), placement.generation()).await;
                standing.check()?;
                Ok(standing)
            }
        }
    }

    /// Like [`Fence::enter`], for callers that remove the sessions themselves.
    pub(crate) fn observe(&self, placement: Placement, max_records: usize) -> Result<(), Fault> {
        self.arrive(placement, max_records).map(|_| ())
    }

    fn arrive(&self, placement: Placement, max_records: usize) -> Result<Arrival, Fault> {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        let asked = placement.generation();
        let Some(known) = newest.get(&placement.workspace()) else {
            if newest.len() >= max_records {
                return Err(Fault::new(
                    "PermissionError",
                    "Box generation fence capacity reached; \
                     refusing an unbounded Workspace allocation",
                ));
            }
            let (sender, news) = watch::channel(asked);
            newest.insert(placement.workspace(), sender);
            return Ok(Arrival::Advanced(Standing { placement, news }));
        };
        let current = *known.borrow();
        if asked < current {
            return Err(stale());
        }
        if asked > current {
            known.send_replace(asked);
        }
        let standing = Standing {
            placement,
            news: known.subscribe(),
        };
        Ok(if asked > current {
            Arrival::Advanced(standing)
        } else {
            Arrival::Known(standing)
        })
    }

    /// Leave for a placement that must be the newest already.
    pub(crate) fn current(&self, placement: Placement) -> Result<Standing, Fault> {
        let newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        let known = newest.get(&placement.workspace()).ok_or_else(stale)?;
        if *known.borrow() != placement.generation() {
            return Err(stale());
        }
        Ok(Standing {
            placement,
            news: known.subscribe(),
        })
    }
}

/// A placement that was the newest when it was let in.
#[derive(Clone, Debug)]
pub(crate) struct Standing {
    placement: Placement,
    news: watch::Receiver<u64>,
}

impl Standing {
    pub(crate) fn check(&self) -> Result<(), Fault> {
        if *self.news.borrow() == self.placement.generation() {
            Ok(())
        } else {
            Err(stale())
        }
    }

    /// Resolves when a newer generation has come.
    pub(crate) async fn superseded(&self) {
        let mut news = self.news.clone();
        let generation = self.placement.generation();
        if news.wait_for(|newest| *newest != generation).await.is_err() {
            // The fence is gone, and with it everybody who could supersede us.
            std::future::pending::<()>().await;
        }
    }

    /// Does some work, and breaks it off when a newer generation comes. What broken off work was
    /// making (a session that was starting) is removed before this returns.
    pub(crate) async fn guard<T>(
        &self,
        sessions: &Sessions,
        work: impl Future<Output = Result<T, Fault>>,
    ) -> Result<T, Fault> {
        let outcome = tokio::select! {
            biased;
            () = self.superseded() => Err(stale()),
            outcome = work => outcome,
        };
        if let Err(stale) = self.check() {
            let too_old = self.placement.generation().saturating_add(1);
            retire(sessions, self.placement.workspace(), too_old).await;
            return Err(stale);
        }
        outcome
    }
}

pub(crate) fn stale() -> Fault {
    Fault::new("PermissionError", "Stale Box placement generation")
}

/// Removes every session of the workspace whose generation is below `oldest`. In a task of its own: a
/// caller that vanishes must not leave an old generation's box behind.
async fn retire(sessions: &Sessions, workspace: Workspace, oldest: u64) {
    let sessions = sessions.clone();
    let retiring = tokio::spawn(async move {
        let prefix = workspace.prefix();
        let is_old = |id: &SessionId| generation_of(id, &prefix).is_some_and(|it| it < oldest);
        for id in sessions.ids().into_iter().filter(is_old) {
            match sessions.delete(&id, SUPERSEDED).await {
                Ok(()) | Err(SessionError::NotFound { .. }) => {}
                Err(error) => {
                    tracing::warn!(session = %id, %error, "a session of an older placement stays");
                }
            }
        }
    });
    if let Err(error) = retiring.await {
        tracing::error!(%error, "removing the sessions of older placements failed");
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
    fn a_generation_never_goes_back() {
        let fence = Fence::default();
        fence.observe(placement("a", 3), 10).expect("first");
        fence.observe(placement("a", 3), 10).expect("again");
        fence
            .observe(placement("b", 1), 10)
            .expect("another workspace");
        let fault = fence.observe(placement("a", 2), 10).expect_err("older");
        assert_eq!(
            fault.to_string(),
            "PermissionError: Stale Box placement generation"
        );
        fence.observe(placement("a", 4), 10).expect("newer");
        assert!(fence.current(placement("a", 3)).is_err());
        assert!(fence.current(placement("a", 4)).is_ok());
        assert!(fence.current(placement("c", 1)).is_err());
    }

    #[test]
    fn the_number_of_workspaces_is_bounded() {
        let fence = Fence::default();
        fence.observe(placement("a", 1), 1).expect("fits");
        let fault = fence.observe(placement("b", 1), 1).expect_err("full");
        assert_eq!(fault.class(), "PermissionError");
        fence
            .observe(placement("a", 2), 1)
            .expect("a known one is fine");
    }

    #[tokio::test]
    async fn those_who_stand_hear_of_a_newer_generation() {
        let fence = Fence::default();
        fence.observe(placement("a", 1), 10).expect("first");
        let standing = fence.current(placement("a", 1)).expect("current");
        let waiting = tokio::spawn({
            let standing = standing.clone();
            async move { standing.superseded().await }
        });
        fence.observe(placement("b", 9), 10).expect("somebody else");
        assert!(standing.check().is_ok());
        fence.observe(placement("a", 5), 10).expect("newer");
        assert!(standing.check().is_err());
        tokio::time::timeout(std::time::Duration::from_secs(5), waiting)
            .await
            .expect("told in time")
            .expect("no panic");
    }
}
