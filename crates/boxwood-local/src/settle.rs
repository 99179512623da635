//! The end of adoption: what earlier daemons left, and nobody took over, goes.

use std::path::Path;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, pidfd_send_signal};

use crate::door;
use crate::host::{LocalHost, lock};
use crate::meeting::Meeting;
use crate::reunion::{is_first_process, listener};

/// For a killed box to be gone.
const DEAD_WITHIN: Timespec = Timespec {
    tv_sec: 5,
    tv_nsec: 0,
};

impl LocalHost {
    /// One backend will adopt nothing more. When that is true of all of them, what is left of boxes that
    /// nobody adopted is ended and removed. Idempotent.
    pub async fn settle(self: &Arc<Self>, backend: &str) {
        let all = {
            let mut settled = lock(&self.heritage.settled);
            settled.insert(backend.to_owned()) && settled.len() == self.members()
        };
        if !all {
            return;
        }
        let host = Arc::clone(self);
        let work = self.busy.enter();
        let settled = tokio::task::spawn_blocking(move || host.clear_the_left()).await;
        drop(work);
        if let Err(error) = settled {
            tracing::error!(%error, "what earlier daemons left was not cleared away");
        }
    }

    fn clear_the_left(&self) {
        let is_wanted = |name: &str| self.heritage.is_wanted(name);
        for socket in door::all(&self.doors) {
            if !door::name_of(&socket).is_some_and(is_wanted) {
                end(&socket);
                door::remove(&socket);
            }
        }
        self.cgroups.settle(is_wanted);
        self.ways_out.settle(is_wanted);
        Meeting::settle(self);
        self.mapping.forget_the_left();
    }
}

/// Ends whoever listens at a door that nobody wants. Mostly there is nobody.
fn end(socket: &Path) {
    let Ok(socket) = door::knock(socket) else {
        return;
    };
    let Ok((pid, pidfd)) = listener(&socket) else {
        return;
    };
    // Never anybody who is not a box.
    if !is_first_process(pid).unwrap_or(false) {
        return;
    }
    let _ = pidfd_send_signal(&pidfd, Signal::KILL);
    let mut look = [PollFd::new(&pidfd, PollFlags::IN)];
    if !matches!(poll(&mut look, Some(&DEAD_WITHIN)), Ok(1..)) {
        tracing::warn!(pid, "a box that nobody adopted does not end");
    }
}
