//! A program in a box: started, fed, read, and followed until it ends.
//!
//! Captured execs, streamed execs and managed processes all use [`follow()`]. Their output is moved into
//! [`Journal`]s, which init keeps as well, so that the next daemon can continue. Clients read streamed execs
//! and managed processes through an [`OutputQueue`].

mod detach;
mod facts;
mod files;
mod follow;
mod input;
mod journal;
mod kill;
mod notes;
mod output_queue;
mod pipes;
mod read_rate;
mod reason;
mod replay;
mod spawn;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use boxwood_backend::{Process, ProcessControl};

pub(crate) use detach::DetachSignal;
pub(crate) use facts::{EndFact, Fact, Facts, exec_exit};
pub(crate) use files::Files;
pub(crate) use follow::{Ended, Stop, follow};
pub(crate) use input::{Feeder, Stdin, feed};
pub(crate) use journal::{Journal, invalid_data};
pub(crate) use kill::{KillOnDrop, Killed, SIGKILL, SIGTERM, kill_later, kill_tree, scope_of};
pub(crate) use notes::{BootTime, ExecNote, KindNote, Note, StdioNote, Streaming, shown};
pub(crate) use output_queue::OutputQueue;
pub(crate) use pipes::{Pipes, Stream};
pub(crate) use read_rate::ReadRate;
pub(crate) use reason::{EndCause, reason};
pub use replay::{ReplayLimits, Since};
pub(crate) use spawn::spawn;

/// A streamed exec or a managed process. Clients read its output and write its input while it runs.
pub(crate) struct Program {
    pub(crate) control: Arc<dyn ProcessControl>,
    pub(crate) stdin: Arc<Stdin>,
    pub(crate) stdout: Arc<OutputQueue>,
    pub(crate) stderr: Arc<OutputQueue>,
    /// What the next daemon has to know of its end.
    pub(crate) facts: Facts,
    /// A caller has sent a signal or asked for the end.
    stop_requested: AtomicBool,
}

impl Program {
    /// The files may have content of an earlier daemon.
    pub(crate) fn new(
        mut process: Process,
        files: Files,
        replay_bytes: u64,
        rate: &ReadRate,
    ) -> (Self, Pipes, Feeder) {
        let (stdin, feeder) = input::begin(process.stdin.take(), files.stdin);
        let (stdout, stderr) = (Arc::new(files.stdout), Arc::new(files.stderr));
        let pipes = Pipes::take(&mut process, [&stdout, &stderr], rate);
        let program = Self {
            control: process.control,
            stdin: Arc::new(stdin),
            stdout: Arc::new(OutputQueue::new(stdout, replay_bytes)),
            stderr: Arc::new(OutputQueue::new(stderr, replay_bytes)),
            facts: files.facts,
            stop_requested: AtomicBool::new(false),
        };
        (program, pipes, feeder)
    }

    /// To be called before the signal is sent, because the end may be observed first.
    pub(crate) fn request_stop(&self) {
        if !self.stop_requested.swap(true, Ordering::AcqRel) {
            self.facts.add(&Fact::StopRequested);
        }
    }

    /// Repeats what an earlier daemon recorded.
    pub(crate) fn restore_stop_request(&self, facts: &[Fact]) {
        self.stop_requested
            .store(facts.contains(&Fact::StopRequested), Ordering::Release);
    }

    pub(crate) fn is_stop_requested(&self) -> bool {
        self.stop_requested.load(Ordering::Acquire)
    }
}
