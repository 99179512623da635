//! Reads one output stream of a program, and knows when to stop after the program has ended.
//!
//! A background child may hold the pipes open long after the program itself is gone. What the
//! program wrote is already in the pipe by then, so a short silence means there is no more of it.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use boxwood_backend::{Copied, Output, Process};
use tokio::io::AsyncReadExt as _;
use tokio::time::Instant;

use crate::captured::{Captured, Streams};
use crate::journal::Journal;
use crate::pace::{Pace, Paced};

pub(crate) type Reader = Box<dyn Output>;

/// What one read takes at most. Large enough that a flood is not a flood of system calls.
const READ_BYTES: usize = 64 * 1024;
/// What one read of a stream takes that nobody wants.
const NOWHERE_BYTES: usize = 4 * 1024;

fn discard(reader: Option<Reader>, mut pace: Paced) {
    let Some(mut reader) = reader else {
        return;
    };
    tokio::spawn(async move {
        let mut nowhere = vec![0; NOWHERE_BYTES];
        while let Ok(count @ 1..) = reader.read(&mut nowhere).await {
            pace.read(count);
            pace.turn().await;
        }
    });
}

/// One stream on its way into a journal, so that it outlives the daemon.
pub(crate) struct Intake {
    reader: Option<Reader>,
    journal: Arc<Journal>,
    pace: Paced,
}

impl Intake {
    pub(crate) fn new(reader: Option<Reader>, journal: Arc<Journal>, pace: &Pace) -> Self {
        Self {
            reader,
            journal,
            pace: pace.stream(),
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.reader.is_some()
    }

    pub(crate) fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Moves the next bytes in, at most `most` of them, and says how many came; none at the end of
    /// the stream, which is then closed. Cancel-safe: a move is one step.
    pub(crate) async fn fill(&mut self, most: usize) -> usize {
        let Some(reader) = &mut self.reader else {
            // Callers ask `is_open` first; a closed stream never brings anything again.
            return std::future::pending().await;
        };
        // A flood is always ready; others have to get their turn.
        tokio::task::coop::consume_budget().await;
        self.pace.turn().await;
        let (journal, before) = (&self.journal, self.journal.end());
        let most = most.clamp(1, READ_BYTES);
        let moved =
            poll_fn(|context| Pin::new(&mut **reader).poll_move(context, journal.writer(), most))
                .await;
        journal.took_in(&moved);
        // A terminal whose last user is gone reports an error instead of an end.
        if !matches!(moved, Ok(1..)) {
            self.reader = None;
        }
        let came = usize::try_from(journal.end().saturating_sub(before)).unwrap_or(usize::MAX);
        self.pace.read(came);
        came
    }

    /// Lets go of the stream without breaking it: somebody in the box may still write to it, and
    /// must not die of a closed pipe for that. What it writes goes nowhere.
    pub(crate) fn discard_rest(self) {
        discard(self.reader, self.pace);
    }
}

/// Which stream brought something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    Stdout,
    Stderr,
}

/// Takes the output streams out of a process; the rest of it stays with the caller.
pub(crate) fn outputs(process: &mut Process) -> (Reader, Option<Reader>) {
    let nothing: Reader = Box::new(Copied(tokio::io::empty()));
    let stdout = std::mem::replace(&mut process.stdout, nothing);
    (stdout, process.stderr.take())
}

/// Both output streams of a process.
pub(crate) struct Intakes {
    pub(crate) stdout: Intake,
    pub(crate) stderr: Intake,
}

impl Intakes {
    /// Those of a captured command.
    pub(crate) fn of(process: &mut Process, streams: &Streams, pace: &Pace) -> Self {
        let (stdout, stderr) = outputs(process);
        let into = |captured: &Captured| Arc::clone(captured.journal());
        Self {
            stdout: Intake::new(Some(stdout), into(&streams.stdout), pace),
            stderr: Intake::new(stderr, into(&streams.stderr), pace),
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.stdout.is_open() || self.stderr.is_open()
    }

    /// Moves the next bytes of either stream in, however many are waiting already. Cancel-safe.
    pub(crate) async fn fill(&mut self) -> usize {
        tokio::select! {
            moved = self.stdout.fill(usize::MAX), if self.stdout.is_open() => moved,
            moved = self.stderr.fill(usize::MAX), if self.stderr.is_open() => moved,
            else => std::future::pending().await,
        }
    }

    pub(crate) fn discard_rest(self) {
        self.stdout.discard_rest();
        self.stderr.discard_rest();
    }
}

/// Silence that means the program's own output has all been read.
const QUIET: Duration = Duration::from_millis(50);
/// The most time spent reading after the end, however talkative the background is.
const LONGEST: Duration = Duration::from_millis(500);
/// The most bytes read after the end: no pipe holds more, so the rest is the background's.
const MOST_BYTES: usize = 1024 * 1024;

/// How long to go on reading after a program has ended.
pub(crate) struct LastWords {
    until: Instant,
    quiet_at: Instant,
    bytes: usize,
}

impl LastWords {
    pub(crate) fn begin() -> Self {
        let now = Instant::now();
        Self {
            until: now + LONGEST,
            quiet_at: now + QUIET,
            bytes: 0,
        }
    }

    pub(crate) fn heard(&mut self, bytes: usize) {
        self.bytes += bytes;
        self.quiet_at = Instant::now() + QUIET;
    }

    /// The reader was held up (by a full channel, a full buffer) for this long; that was not
    /// silence of the program.
    pub(crate) fn held_up(&mut self, since: Instant) {
        let now = Instant::now();
        self.until += now.duration_since(since);
        self.quiet_at = now + QUIET;
    }

    /// Whether to stop even though there is more. To be asked before every read, and what can be read
    /// comes before [`LastWords::over`]: a daemon that had no time to look must not take that for
    /// silence.
    pub(crate) fn had_enough(&self) -> bool {
        self.bytes >= MOST_BYTES
    }

    /// Resolves when enough has been waited.
    pub(crate) async fn over(&self) {
        if !self.had_enough() {
            tokio::time::sleep_until(self.until.min(self.quiet_at)).await;
        }
    }
}
