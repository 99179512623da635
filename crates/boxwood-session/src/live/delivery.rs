//! The way of a live command's output to the one who follows it.

use std::io;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use tokio::sync::{Notify, mpsc};

use super::LiveEvent;
use crate::activity::lock;
use crate::drain::Which;
use crate::journal::Journal;
use crate::replay::{ReplayLimits, Window};

/// Pieces of output under way between the journals and their reader. Few: what is under way is lost
/// with the reader, and has to be within what can be had again.
const PIECES: usize = 4;
const PIECE_BYTES: usize = 64 * 1024;
/// Written and not yet handed out, per stream; beyond it the command waits.
const WAITING_BYTES: u64 = 1024 * 1024;

/// What a reader has said it has. Nothing is forgotten that it does not have, once it says so.
#[derive(Default)]
pub(super) struct Acks {
    safe: Mutex<Option<[u64; 2]>>,
    pub(super) news: Notify,
}

impl Acks {
    pub(super) fn say(&self, stdout: u64, stderr: u64) {
        let mut safe = lock(&self.safe);
        let before = safe.unwrap_or_default();
        *safe = Some([before[0].max(stdout), before[1].max(stderr)]);
        drop(safe);
        self.news.notify_one();
    }

    fn of(&self, which: Which) -> Option<u64> {
        lock(&self.safe).map(|safe| safe[place(which)])
    }
}

fn place(which: Which) -> usize {
    match which {
        Which::Stdout => 0,
        Which::Stderr => 1,
    }
}

/// One who follows a command.
pub(super) struct Reader {
    pub(super) sender: mpsc::Sender<LiveEvent>,
    pub(super) acks: Arc<Acks>,
    at: [u64; 2],
}

impl Reader {
    pub(super) fn new(stdout: u64, stderr: u64) -> (Self, mpsc::Receiver<LiveEvent>) {
        let (sender, events) = mpsc::channel(PIECES);
        let reader = Self {
            sender,
            acks: Arc::default(),
            at: [stdout, stderr],
        };
        (reader, events)
    }
}

/// One output stream of a command.
pub(super) struct Strand {
    which: Which,
    journal: Arc<Journal>,
    window: Window,
    /// The command has ended: what there is stays as it is, whoever reads it.
    over: bool,
}

impl Strand {
    pub(super) fn new(which: Which, journal: Arc<Journal>, limits: ReplayLimits) -> Self {
        Self {
            which,
            journal,
            window: Window::new(limits),
            over: false,
        }
    }

    /// How much more may be read from the command.
    pub(super) fn room(&self) -> usize {
        let room = WAITING_BYTES.saturating_sub(self.journal.undelivered());
        usize::try_from(room).unwrap_or(usize::MAX)
    }

    /// How much of it the reader may be given next.
    fn next_bytes(&self, reader: &Reader) -> usize {
        let at = reader.at[place(self.which)];
        let there = self.journal.end().saturating_sub(at);
        let room = match reader.acks.of(self.which) {
            Some(safe) => self.window.bytes().saturating_sub(at.saturating_sub(safe)),
            None => u64::MAX,
        };
        let next = there.min(room).min(PIECE_BYTES as u64);
        usize::try_from(next).unwrap_or(PIECE_BYTES)
    }

    pub(super) fn has_more(&self, reader: &Reader) -> bool {
        self.next_bytes(reader) > 0
    }

    /// All of it has been handed to the reader.
    fn is_done(&self, reader: &Reader) -> bool {
        reader.at[place(self.which)] >= self.journal.end()
    }

    fn piece(&self, reader: &Reader) -> io::Result<Bytes> {
        let at = reader.at[place(self.which)];
        let bytes = self.journal.read(at, self.next_bytes(reader))?;
        Ok(Bytes::from(bytes))
    }

    /// The reader was given this piece.
    fn handed_out(&mut self, reader: &mut Reader, piece: &[u8]) {
        let at = reader.at[place(self.which)];
        let next = at + piece.len() as u64;
        reader.at[place(self.which)] = next;
        let before = self.journal.delivered();
        if next > before {
            let known = usize::try_from(before.saturating_sub(at)).unwrap_or(usize::MAX);
            self.window
                .passed(before, piece.get(known..).unwrap_or_default());
            if let Err(error) = self.journal.set_delivered(next) {
                tracing::warn!(%error, "how far a command was followed is not written down");
            }
        }
        self.forget(reader);
    }

    pub(super) fn forget(&self, reader: &Reader) {
        if self.over {
            return;
        }
        let start = self.window.start(self.journal.delivered());
        let wanted = reader
            .acks
            .of(self.which)
            .unwrap_or(reader.at[place(self.which)]);
        self.journal.forget_before(start.min(wanted));
    }
}

/// Both output streams of a command.
pub(super) struct Strands {
    pub(super) stdout: Strand,
    pub(super) stderr: Strand,
}

impl Strands {
    pub(super) fn has_more(&self, reader: &Reader) -> bool {
        self.stdout.has_more(reader) || self.stderr.has_more(reader)
    }

    fn next(&mut self, reader: &Reader) -> &mut Strand {
        if self.stdout.has_more(reader) {
            &mut self.stdout
        } else {
            &mut self.stderr
        }
    }

    /// Hands on the next piece once there is room for it. False when the reader is gone, or cannot be
    /// served: it asked for what has been forgotten meanwhile. Cancel-safe.
    pub(super) async fn deliver(&mut self, reader: &mut Reader) -> bool {
        let Ok(permit) = reader.sender.reserve().await else {
            return false;
        };
        let strand = self.next(reader);
        let piece = match strand.piece(reader) {
            Ok(piece) => piece,
            Err(error) => {
                tracing::debug!(%error, "a reader cannot be served");
                return false;
            }
        };
        permit.send(match strand.which {
            Which::Stdout => LiveEvent::Stdout(piece.clone()),
            Which::Stderr => LiveEvent::Stderr(piece.clone()),
        });
        strand.handed_out(reader, &piece);
        true
    }

    /// Hands on everything that is left, and then how it ended.
    pub(super) async fn deliver_rest(mut self, mut reader: Reader, exited: LiveEvent) {
        self.stdout.over = true;
        self.stderr.over = true;
        while !(self.stdout.is_done(&reader) && self.stderr.is_done(&reader)) {
            if self.has_more(&reader) {
                if !self.deliver(&mut reader).await {
                    return;
                }
                continue;
            }
            tokio::select! {
                () = reader.acks.news.notified() => {}
                () = reader.sender.closed() => return,
            }
        }
        // A reader that left has no use for it.
        let _ = reader.sender.send(exited).await;
    }
}
