//! Moves the output pipes of a program into its journals.
//!
//! A background child may hold the pipes open long after the program itself has exited. What the
//! program wrote is already in the pipe by then, so a short silence means that there is no more of it.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use boxwood_backend::{Copied, Output, Process};
use tokio::io::AsyncReadExt as _;
use tokio::time::Instant;

use super::journal::Journal;
use super::output_queue::OutputQueue;
use super::read_rate::{LimitedReader, ReadRate};

/// Maximum of one read. Large enough that fast output does not cost a system call per line.
const READ_BYTES: usize = 64 * 1024;
/// Maximum of one read of output that is discarded.
const DISCARD_BYTES: usize = 4 * 1024;

/// After the exit: silence that means the program's own output has been read.
const DRAIN_SILENCE: Duration = Duration::from_millis(50);
/// After the exit: maximum time spent reading, even if background children keep writing.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(500);
/// After the exit: maximum number of bytes. No pipe holds more, so the rest is written by background
/// children.
const DRAIN_BYTES: usize = 1024 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

struct OutputPipe {
    /// `None` after end of file.
    reader: Option<Box<dyn Output>>,
    journal: Arc<Journal>,
    /// Reading waits for clients of this queue. `None` reads without waiting.
    queue: Option<Arc<OutputQueue>>,
    rate: LimitedReader,
}

impl OutputPipe {
    fn is_open(&self) -> bool {
        self.reader.is_some()
    }

    /// Moves the next bytes into the journal and returns their number. Zero means end of file.
    /// Cancel-safe: a move is one step.
    async fn fill(&mut self) -> usize {
        let Some(reader) = &mut self.reader else {
            return std::future::pending().await;
        };
        // Fast output is always ready; other tasks must be able to run.
        tokio::task::coop::consume_budget().await;
        self.rate.ready().await;
        let room = match &self.queue {
            Some(queue) => queue.room().await,
            None => usize::MAX,
        };
        let (journal, before) = (&self.journal, self.journal.end());
        let max_bytes = room.clamp(1, READ_BYTES);
        let moved = poll_fn(|context| {
            Pin::new(&mut **reader).poll_move(context, journal.writer(), max_bytes)
        })
        .await;
        journal.update_end(&moved);
        // A terminal that no program has open reports an error instead of end of file.
        if !matches!(moved, Ok(1..)) {
            self.reader = None;
        }
        let count = usize::try_from(journal.end().saturating_sub(before)).unwrap_or(usize::MAX);
        self.rate.count(count);
        if let Some(queue) = &self.queue {
            queue.grown();
        }
        count
    }

    /// Keeps reading in a task: a background child that still writes must not be killed by `SIGPIPE`.
    fn discard_rest(self) {
        let (Some(mut reader), mut rate) = (self.reader, self.rate) else {
            return;
        };
        tokio::spawn(async move {
            let mut discarded = vec![0; DISCARD_BYTES];
            while let Ok(count @ 1..) = reader.read(&mut discarded).await {
                rate.count(count);
                rate.ready().await;
            }
        });
    }
}

/// Both output pipes of a program.
pub(crate) struct Pipes {
    stdout: OutputPipe,
    stderr: OutputPipe,
}

impl Pipes {
    /// Takes the output pipes out of `process`.
    pub(crate) fn take(
        process: &mut Process,
        journals: [&Arc<Journal>; 2],
        rate: &ReadRate,
    ) -> Self {
        let empty: Box<dyn Output> = Box::new(Copied(tokio::io::empty()));
        let stdout = std::mem::replace(&mut process.stdout, empty);
        let pipe = |reader, journal: &Arc<Journal>| OutputPipe {
            reader,
            journal: Arc::clone(journal),
            queue: None,
            rate: rate.reader(),
        };
        Self {
            stdout: pipe(Some(stdout), journals[0]),
            stderr: pipe(process.stderr.take(), journals[1]),
        }
    }

    /// Makes the program wait when clients do not read its stdout.
    pub(crate) fn limit_stdout(&mut self, queue: &Arc<OutputQueue>) {
        self.stdout.queue = Some(Arc::clone(queue));
    }

    pub(crate) fn limit_stderr(&mut self, queue: &Arc<OutputQueue>) {
        self.stderr.queue = Some(Arc::clone(queue));
    }

    pub(crate) fn is_open(&self) -> bool {
        self.stdout.is_open() || self.stderr.is_open()
    }

    /// Moves the next bytes of either stream. Cancel-safe.
    pub(crate) async fn fill(&mut self) -> (Stream, usize) {
        tokio::select! {
            count = self.stdout.fill(), if self.stdout.is_open() => (Stream::Stdout, count),
            count = self.stderr.fill(), if self.stderr.is_open() => (Stream::Stderr, count),
            else => std::future::pending().await,
        }
    }

    /// Reads what the program wrote before it exited, without waiting for clients.
    pub(crate) async fn drain(&mut self, mut on_output: impl FnMut(Stream, usize)) {
        self.stdout.queue = None;
        self.stderr.queue = None;
        let deadline = Instant::now() + DRAIN_TIMEOUT;
        let mut bytes = 0;
        while self.is_open() && bytes < DRAIN_BYTES {
            let silence = Instant::now() + DRAIN_SILENCE;
            tokio::select! {
                // `biased`: if this task was delayed, there may be output although the time is over.
                biased;
                (stream, count) = self.fill() => {
                    bytes += count;
                    on_output(stream, count);
                }
                () = tokio::time::sleep_until(deadline.min(silence)) => break,
            }
        }
    }

    /// Keeps reading in tasks without keeping the output.
    pub(crate) fn discard_rest(self) {
        self.stdout.discard_rest();
        self.stderr.discard_rest();
    }
}
