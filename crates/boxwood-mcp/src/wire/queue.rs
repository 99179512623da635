//! Lines on their way to the server: bounded in number and in bytes.
//!
//! Whoever has a call waits here for room. Whatever the reader wants to say is dropped when there is none:
//! a reader that waited for the server to read would never again read what the server writes.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::burden::Burden;

/// Lines; small ones are cheap.
const MOST_LINES: usize = 1024;

/// What the reader says is seldom longer. Such lines need no room beside their place among the lines: a
/// large request that waits for room would keep them all out.
const SMALL: usize = 4 * 1024;

/// Room is counted in so many bytes.
const UNIT: usize = 1024;

pub(crate) struct Outgoing {
    pub(crate) line: Bytes,
    pub(crate) what: Box<str>,
    pub(crate) id: Option<Box<str>>,
    /// The call it begins. It is not written when nobody waits for that any more.
    pub(crate) call: Option<u64>,
}

pub(crate) struct Queued {
    pub(crate) outgoing: Outgoing,
    /// Given back once the line is written.
    _room: Option<OwnedSemaphorePermit>,
    /// The same.
    _burden: Option<Burden>,
}

pub(crate) struct Queue {
    lines: mpsc::Sender<Queued>,
    room: Arc<Semaphore>,
    units: u32,
}

/// The server is gone.
#[derive(Debug)]
pub(crate) struct Closed;

impl Queue {
    /// Holds `bytes` or one line, whichever is more.
    pub(crate) fn new(bytes: usize) -> (Self, mpsc::Receiver<Queued>) {
        let (lines, taken) = mpsc::channel(MOST_LINES);
        let units = u32::try_from(bytes / UNIT).unwrap_or(u32::MAX / 2).max(1);
        let units = units.min(u32::MAX / 2);
        let room = Arc::new(Semaphore::new(units as usize));
        (Self { lines, room, units }, taken)
    }

    /// What the line takes is counted by `burden`.
    pub(crate) async fn put(
        &self,
        outgoing: Outgoing,
        burden: Option<Burden>,
    ) -> Result<(), Closed> {
        let units = self.units_of(&outgoing);
        let room = Arc::clone(&self.room).acquire_many_owned(units).await;
        let queued = Queued {
            outgoing,
            _room: Some(room.map_err(|_| Closed)?),
            _burden: burden,
        };
        self.lines.send(queued).await.map_err(|_| Closed)
    }

    /// Whether there was room.
    pub(crate) fn try_put(&self, outgoing: Outgoing) -> bool {
        let mut room = None;
        if outgoing.line.len() > SMALL {
            let units = self.units_of(&outgoing);
            let Ok(taken) = Arc::clone(&self.room).try_acquire_many_owned(units) else {
                return false;
            };
            room = Some(taken);
        }
        let queued = Queued {
            outgoing,
            _room: room,
            _burden: None,
        };
        self.lines.try_send(queued).is_ok()
    }

    pub(crate) fn close(&self) {
        self.room.close();
    }

    fn units_of(&self, outgoing: &Outgoing) -> u32 {
        let units = outgoing.line.len().div_ceil(UNIT);
        u32::try_from(units)
            .unwrap_or(u32::MAX)
            .clamp(1, self.units)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn line(bytes: usize) -> Outgoing {
        Outgoing {
            line: vec![b' '; bytes].into(),
            what: "a line".into(),
            id: None,
            call: None,
        }
    }

    #[tokio::test]
    async fn small_words_pass_a_large_request_that_waits_for_room() {
        let (queue, mut taken) = Queue::new(16 * UNIT);
        assert!(queue.put(line(10 * UNIT), None).await.is_ok());
        let mut large = Box::pin(queue.put(line(16 * UNIT), None));
        assert!((&mut large).now_or_never().is_none(), "it waits");
        assert!(queue.try_put(line(SMALL)));
        assert!(!queue.try_put(line(SMALL + 1)));
        taken.recv().await.expect("the first");
        taken.recv().await.expect("the small one");
        assert!(large.await.is_ok());
        let small = (0..2 * MOST_LINES).filter(|_| queue.try_put(line(1)));
        assert_eq!(small.count(), MOST_LINES - 1);
    }
}
