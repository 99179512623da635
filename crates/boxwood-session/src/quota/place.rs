//! One directory of the host that boxes write to.
//!
//! Comes in: an open directory. Goes out: what it holds, measured by one at a time. Never here: what is too
//! much.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::restless::Restless;
use super::rule::{Account, Look, Measure};
use super::walk::{Usage, WalkError, walk};
use crate::activity::lock;
use crate::session::Session;

/// Nothing is that recent.
pub(super) const NEVER: i64 = i64::MAX;

pub(super) struct Place {
    directory: Arc<OwnedFd>,
    pub(super) device: u64,
    pub(super) inode: u64,
    pub(super) account: Mutex<Account>,
    measuring: tokio::sync::Mutex<()>,
    inspected: AtomicBool,
    /// The same while boxes stand still for it.
    inspected_closely: Arc<AtomicBool>,
    /// Boxes that do not stand still yet for the inspection that is under way.
    restless: Mutex<Vec<Restless>>,
}

/// What a directory holds, and what boxes hold of it that is in no directory any more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    pub(super) used: u64,
    /// Of that, what was written lately or has no name.
    pub(super) recent: u64,
}

impl Place {
    pub(super) fn new(directory: Arc<OwnedFd>, device: u64, inode: u64) -> Self {
        Self {
            directory,
            device,
            inode,
            account: Mutex::default(),
            measuring: tokio::sync::Mutex::default(),
            inspected: AtomicBool::new(false),
            inspected_closely: Arc::default(),
            restless: Mutex::default(),
        }
    }

    /// True for the one who is to inspect it; until [`Place::end_inspection`] nobody else is. One without
    /// any hurry, which may take long, is called off by a close one.
    pub(super) fn begin_inspection(&self, why: Look) -> bool {
        !self.inspection(why).swap(true, Ordering::AcqRel)
    }

    pub(super) fn end_inspection(&self, why: Look) {
        if why == Look::Close {
            lock(&self.restless).clear();
        }
        self.inspection(why).store(false, Ordering::Release);
    }

    /// From now on the looks of [`Place::writes_on`] count.
    pub(super) fn expect_stillness(&self, restless: Vec<Restless>) {
        *lock(&self.restless) = restless;
    }

    /// Nobody needs to look at these any more.
    pub(super) fn came_to_rest(&self, is_still: impl Fn(&Session) -> bool) {
        lock(&self.restless).retain(|restless| !is_still(&restless.session));
    }

    pub(super) fn is_restless(&self) -> bool {
        !lock(&self.restless).is_empty()
    }

    /// Those who have written too much since they were told to stand still. They are told once.
    pub(super) fn writing_on(&self, free: u64) -> Vec<Arc<Session>> {
        let mut restless = lock(&self.restless);
        let writing = restless.extract_if(.., |restless| restless.writes_on(self.device, free));
        writing.map(|restless| restless.session).collect()
    }

    fn inspection(&self, why: Look) -> &AtomicBool {
        match why {
            Look::Close => &self.inspected_closely,
            Look::Due | Look::Again(_) => &self.inspected,
        }
    }

    /// Looks through everything. `sessions` are those whose boxes write here.
    pub(super) async fn measure(
        &self,
        sessions: &[Arc<Session>],
        recent_since: i64,
    ) -> Result<Measured, WalkError> {
        self.measured(sessions, recent_since, Arc::default()).await
    }

    /// The same for nobody who waits: called off when boxes are to stand still for a measure.
    pub(super) async fn measure_at_leisure(
        &self,
        sessions: &[Arc<Session>],
    ) -> Result<Measured, WalkError> {
        let hurry = Arc::clone(&self.inspected_closely);
        self.measured(sessions, NEVER, hurry).await
    }

    async fn measured(
        &self,
        sessions: &[Arc<Session>],
        recent_since: i64,
        hurry: Arc<AtomicBool>,
    ) -> Result<Measured, WalkError> {
        let _alone = self.measuring.lock().await;
        let began = Instant::now();
        lock(&self.account).begin_measure();
        let walked = self.walk(recent_since, hurry).await;
        let usage = walked.inspect_err(|_| lock(&self.account).abandon_measure())?;
        let mut unlinked = 0_u64;
        for session in sessions {
            let bytes = session.sandbox.unlinked_bytes(self.device).await;
            unlinked = unlinked.saturating_add(bytes);
        }
        let used = usage.bytes().saturating_add(unlinked);
        lock(&self.account).end_measure(measure(used, usage.entries, began));
        Ok(Measured {
            used,
            recent: usage.recent.saturating_add(unlinked),
        })
    }

    /// What is there, if it is more than `limit` and can be looked through by then, by this thread. Without
    /// what no directory names: it is more with that.
    pub(super) fn exceeds(&self, limit: u64, by: Instant) -> Option<u64> {
        let _alone = self.measuring.try_lock().ok()?;
        let began = Instant::now();
        lock(&self.account).begin_measure();
        let walked = walk(self.directory.as_fd(), NEVER, || Instant::now() >= by);
        let (used, entries) = walked.map_or((0, 0), |usage| (usage.bytes(), usage.entries));
        let mut account = lock(&self.account);
        if used <= limit {
            account.abandon_measure();
            return None;
        }
        account.end_measure(measure(used, entries, began));
        Some(used)
    }

    async fn walk(&self, recent_since: i64, hurry: Arc<AtomicBool>) -> Result<Usage, WalkError> {
        let call_off = CallOff::default();
        let (directory, cancelled) = (Arc::clone(&self.directory), Arc::clone(&call_off.0));
        let walking = tokio::task::spawn_blocking(move || {
            let cancelled = || cancelled.load(Ordering::Relaxed) || hurry.load(Ordering::Relaxed);
            walk(directory.as_fd(), recent_since, cancelled)
        });
        let walked = walking.await;
        walked.unwrap_or_else(|error| Err(io::Error::other(error).into()))
    }
}

fn measure(used: u64, entries: u64, began: Instant) -> Measure {
    Measure {
        used,
        entries,
        at: Instant::now(),
        took: began.elapsed(),
    }
}

/// Whoever stops waiting for a walk stops the walk.
#[derive(Default)]
struct CallOff(Arc<AtomicBool>);

impl Drop for CallOff {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
