//! One directory of the host that boxes write to.
//!
//! Comes in: an open directory. Goes out: what it holds, measured by one at a time. Never here: what is too
//! much.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use super::rule::Account;
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
        }
    }

    /// True for the one who is to inspect it; until [`Place::end_inspection`] nobody else is.
    pub(super) fn begin_inspection(&self) -> bool {
        !self.inspected.swap(true, Ordering::AcqRel)
    }

    pub(super) fn end_inspection(&self) {
        self.inspected.store(false, Ordering::Release);
    }

    /// Looks through everything. `sessions` are those whose boxes write here.
    pub(super) async fn measure(
        &self,
        sessions: &[Arc<Session>],
        recent_since: i64,
    ) -> Result<Measured, WalkError> {
        let _alone = self.measuring.lock().await;
        let began = Instant::now();
        lock(&self.account).begin_measure();
        let walked = self.walk(recent_since).await;
        let usage = walked.inspect_err(|_| lock(&self.account).abandon_measure())?;
        let mut unlinked = 0_u64;
        for session in sessions {
            let bytes = session.sandbox.unlinked_bytes(self.device).await;
            unlinked = unlinked.saturating_add(bytes);
        }
        let used = usage.bytes().saturating_add(unlinked);
        lock(&self.account).end_measure(used, Instant::now(), began.elapsed());
        Ok(Measured {
            used,
            recent: usage.recent.saturating_add(unlinked),
        })
    }

    async fn walk(&self, recent_since: i64) -> Result<Usage, WalkError> {
        let call_off = CallOff::default();
        let (directory, cancelled) = (Arc::clone(&self.directory), Arc::clone(&call_off.0));
        let walking =
            tokio::task::spawn_blocking(move || walk(directory.as_fd(), recent_since, &cancelled));
        let walked = walking.await;
        walked.unwrap_or_else(|error| Err(io::Error::other(error).into()))
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
