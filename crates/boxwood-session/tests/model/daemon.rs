//! One daemon on the host, in a runtime of its own. Dropping the runtime drops all tasks of the daemon.
//!
//! The clock is paused and advances only when a test advances it. Tokio advances a paused clock automatically when
//! all tasks are idle, but not while a blocking task runs, so one runs for the lifetime of the daemon. That task
//! is also the watchdog, because the paused clock cannot detect a hang.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use boxwood_ledger::Ledger;
use boxwood_session::{Backends, Sessions, Settings, ShutdownBoxes};
use boxwood_test_support::{FakeBackend, FakeHost, Fault};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use crate::plan::Cut;

/// An operation that takes longer hangs.
const HANG: Duration = Duration::from_secs(20);
/// Pause between two turns, so that other threads make progress.
const TURN: Duration = Duration::from_micros(30);
pub(crate) const TTL: Duration = Duration::from_mins(5);

/// Killed before it was ready.
#[derive(Debug)]
pub(crate) struct Killed;

pub(crate) struct Daemon {
    pub(crate) sessions: Sessions,
    pub(crate) ledger: Ledger,
    pub(crate) backend: Arc<FakeBackend>,
    host: Arc<FakeHost>,
    frame: Frame,
}

/// A runtime whose clock stands still.
struct Frame {
    runtime: Option<Runtime>,
    hang: oneshot::Receiver<()>,
    _until_dropped: SyncSender<()>,
}

impl Frame {
    fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .expect("a runtime");
        let (sender, dropped) = sync_channel(1);
        let (hang_sender, hang) = oneshot::channel();
        runtime.spawn_blocking(move || watch(&dropped, hang_sender));
        Self {
            runtime: Some(runtime),
            hang,
            _until_dropped: sender,
        }
    }

    fn run<T>(&mut self, what: &str, work: impl Future<Output = T>) -> T {
        let hang = &mut self.hang;
        let runtime = self.runtime.as_ref().expect("until it is dropped");
        runtime.block_on(async move {
            tokio::select! {
                outcome = work => outcome,
                _ = hang => panic!("it hangs: {what}"),
            }
        })
    }
}

fn watch(dropped: &Receiver<()>, hang_sender: oneshot::Sender<()>) {
    if dropped.recv_timeout(HANG) == Err(RecvTimeoutError::Timeout) {
        // The runtime may be gone.
        let _ = hang_sender.send(());
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // Blocking work of a killed daemon is none of ours to wait for.
            runtime.shutdown_background();
        }
    }
}

impl Daemon {
    pub(crate) fn warm_up() {
        drop(Frame::new());
    }

    /// Adopts all boxes on the host. `cut` kills the daemon during the start, if it gets that far.
    pub(crate) fn start(
        host: &Arc<FakeHost>,
        directory: &Path,
        cut: Option<Cut>,
    ) -> Result<Self, Killed> {
        let mut frame = Frame::new();
        let backend = host.backend();
        // Not cut: the thread that opens the ledger cannot be killed, and would move a damaged file away
        // while the next daemon already uses its successor.
        let ledger = frame.run("opening the ledger", open(&ledger_path(directory)));
        let starting = {
            let backend = Arc::clone(&backend);
            let ledger = ledger.clone();
            async move {
                let settings = Settings {
                    session_ttl: TTL,
                    ..Settings::default()
                };
                let backends = Backends::only(backend);
                let recovering = Sessions::recover(backends, settings, ledger);
                let (sessions, _) = recovering.await;
                sessions
            }
        };
        let started = match cut {
            None => Some(frame.run("starting", starting)),
            Some(cut) => frame.run("starting", cut_short(starting, cut, host, &backend)),
        };
        let Some(sessions) = started else {
            close_after(frame, &ledger);
            return Err(Killed);
        };
        Ok(Self {
            sessions,
            ledger,
            backend,
            host: Arc::clone(host),
            frame,
        })
    }

    pub(crate) fn run<T>(&mut self, what: &str, work: impl Future<Output = T>) -> T {
        self.frame.run(what, work)
    }

    /// Runs the work until the daemon is killed. Returns its outcome if it was reported before.
    pub(crate) fn kill<T: Send + 'static>(
        mut self,
        what: &str,
        work: impl Future<Output = T> + Send + 'static,
        cut: Cut,
    ) -> Option<T> {
        let killing = cut_short(work, cut, &self.host, &self.backend);
        let outcome = self.frame.run(what, killing);
        self.host.crash();
        self.host.mend();
        let Self { frame, ledger, .. } = self;
        close_after(frame, &ledger);
        outcome
    }

    /// Ends as on a signal.
    pub(crate) fn end(mut self, boxes: ShutdownBoxes) {
        let (sessions, ledger) = (self.sessions.clone(), self.ledger.clone());
        self.run("ending", async move {
            sessions.shutdown(boxes).await;
            ledger.close().await;
        });
    }
}

/// Kills the daemon at the cut. Until then the work runs as a task.
async fn cut_short<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
    cut: Cut,
    host: &FakeHost,
    backend: &FakeBackend,
) -> Option<T> {
    let mut work = tokio::spawn(work);
    match cut {
        Cut::Turns(turns) => {
            for _ in 0..turns {
                tokio::task::yield_now().await;
                std::thread::sleep(TURN);
                if work.is_finished() {
                    return work.await.ok();
                }
            }
            host.crash();
            None
        }
        Cut::At(point) => {
            host.fault(point, Fault::Crashes);
            tokio::select! {
                outcome = &mut work => outcome.ok(),
                () = backend.killed() => None,
            }
        }
    }
}

/// Ends all tasks of a killed daemon, and then waits for the thread of its ledger. With a killed process that
/// thread is gone at once.
fn close_after(frame: Frame, ledger: &Ledger) {
    drop(frame);
    Frame::new().run("closing the ledger of a killed daemon", ledger.close());
}

pub(crate) fn ledger_path(directory: &Path) -> PathBuf {
    directory.join("ledger.db")
}

async fn open(path: &Path) -> Ledger {
    match Ledger::open(path).await {
        Ok((ledger, _)) => ledger,
        Err(error) => panic!("the ledger does not open: {error}"),
    }
}
