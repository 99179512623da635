//! The lifetime of a daemon on a fake host, and faults that a test injects.

use std::future::pending;
use std::io;
use std::sync::Mutex;

use tokio::sync::watch;

use super::boxes::FakeBox;
use super::lock;

/// Begins with a backend and ends with [`super::FakeHost::crash`]. A killed process does nothing any more, so after
/// that all operations of this daemon wait forever, and dropping its objects has no effect.
pub(super) struct Life {
    killed: watch::Sender<bool>,
}

impl Life {
    pub(super) fn begin() -> Self {
        Self {
            killed: watch::Sender::new(false),
        }
    }

    pub(super) fn end(&self) {
        self.killed.send_replace(true);
    }

    pub(super) fn is_killed(&self) -> bool {
        *self.killed.borrow()
    }

    /// Resolves when the daemon is killed.
    pub(super) async fn ended(&self) {
        // The sender is part of `self`, so the channel cannot close meanwhile.
        let _ = self.killed.subscribe().wait_for(|killed| *killed).await;
    }

    /// Runs the work until the daemon is killed. Then it never resolves.
    pub(super) async fn live<T>(&self, work: impl Future<Output = T>) -> T {
        tokio::select! {
            biased;
            () = self.ended() => pending().await,
            outcome = work => if self.is_killed() { pending().await } else { outcome },
        }
    }
}

/// Where a fault can be injected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Point {
    /// A box is about to be created, and not yet recorded.
    BeforeRecord,
    /// The box is recorded, and not yet created.
    AfterRecord,
    /// The box is created, and the caller has no response yet.
    Made,
    BeforeRemember,
    AfterRemember,
    BeforeSpawn,
    /// The program runs, and the caller has no response yet.
    Spawned,
    BeforeSignal,
    BeforeThaw,
    BeforeStop,
    /// The box is removed, and the caller has no response yet.
    Stopped,
    BeforeAdopt,
    /// A new daemon is connected to the box.
    Adopted,
    BeforeSettle,
}

/// What happens at a point, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    Fails,
    /// Waits for [`super::FakeHost::mend`].
    Hangs,
    /// The box dies.
    Dies,
    /// The daemon is killed.
    Crashes,
}

pub(super) struct Faults {
    pending: Mutex<Vec<(Point, Fault)>>,
    cleared: watch::Sender<u64>,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            pending: Mutex::default(),
            cleared: watch::Sender::new(0),
        }
    }
}

impl Faults {
    pub(super) fn inject(&self, point: Point, fault: Fault) {
        lock(&self.pending).push((point, fault));
    }

    pub(super) fn clear(&self) {
        lock(&self.pending).clear();
        self.cleared.send_modify(|times| *times += 1);
    }

    fn take(&self, point: Point) -> Option<Fault> {
        let mut pending = lock(&self.pending);
        let found = pending
            .iter()
            .position(|(set_point, _)| *set_point == point)?;
        Some(pending.remove(found).1)
    }

    /// Applies the fault that is set for this point.
    pub(super) async fn reach(
        &self,
        point: Point,
        life: &Life,
        subject: Option<&FakeBox>,
    ) -> io::Result<()> {
        let mut cleared = self.cleared.subscribe();
        match self.take(point) {
            None => {}
            Some(Fault::Fails) => {
                return Err(io::Error::other(format!(
                    "the test asked for it: {point:?}"
                )));
            }
            // The sender is part of `self`.
            Some(Fault::Hangs) => drop(cleared.changed().await),
            Some(Fault::Dies) => {
                if let Some(subject) = subject {
                    subject.die();
                }
            }
            Some(Fault::Crashes) => {
                life.end();
                pending::<()>().await;
            }
        }
        Ok(())
    }
}
