//! Queue of lines for the server, bounded in number and bytes.
//!
//! Calls wait for space. Messages of the reader task, such as responses to the server's pings, are dropped if
//! there is none: a reader that waits could deadlock with a server that does not read.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::wire::message::BodyPermit;

const MAX_LINES: usize = 1024;

/// Messages of the reader task up to this size do not count towards the bytes of the queue. Otherwise a large
/// request that waits for space would block them. They are rarely longer.
const SMALL_BYTES: usize = 4 * 1024;

/// Bytes per permit.
const PERMIT_BYTES: usize = 1024;

pub(crate) struct Outgoing {
    pub(crate) line: Bytes,
    /// Method or kind of the message, for the protocol log.
    pub(crate) what: Box<str>,
    pub(crate) id: Option<Box<str>>,
    /// The call that the line starts. It is skipped if the call was cancelled.
    pub(crate) call: Option<u64>,
}

pub(crate) struct Queued {
    pub(crate) outgoing: Outgoing,
    /// Both are released when the line is written.
    _room: Option<OwnedSemaphorePermit>,
    _body: Option<BodyPermit>,
}

pub(crate) struct WriteQueue {
    lines: mpsc::Sender<Queued>,
    room: Arc<Semaphore>,
    units: u32,
}

/// The connection is closed.
#[derive(Debug)]
pub(crate) struct Closed;

impl WriteQueue {
    /// Holds `bytes` or a single line, whichever is larger.
    pub(crate) fn new(bytes: usize) -> (Self, mpsc::Receiver<Queued>) {
        let (lines, receiver) = mpsc::channel(MAX_LINES);
        let units = u32::try_from(bytes / PERMIT_BYTES)
            .unwrap_or(u32::MAX / 2)
            .max(1);
        let units = units.min(u32::MAX / 2);
        let room = Arc::new(Semaphore::new(units as usize));
        (Self { lines, room, units }, receiver)
    }

    /// The permit is released when the line is written.
    pub(crate) async fn put(
        &self,
        outgoing: Outgoing,
        permit: Option<BodyPermit>,
    ) -> Result<(), Closed> {
        let units = self.units_of(&outgoing);
        let room = Arc::clone(&self.room).acquire_many_owned(units).await;
        let queued = Queued {
            outgoing,
            _room: Some(room.map_err(|_| Closed)?),
            _body: permit,
        };
        self.lines.send(queued).await.map_err(|_| Closed)
    }

    /// Returns false if the queue is full.
    pub(crate) fn try_put(&self, outgoing: Outgoing) -> bool {
        let mut room = None;
        if outgoing.line.len() > SMALL_BYTES {
            let units = self.units_of(&outgoing);
            let Ok(permit) = Arc::clone(&self.room).try_acquire_many_owned(units) else {
                return false;
            };
            room = Some(permit);
        }
        let queued = Queued {
            outgoing,
            _room: room,
            _body: None,
        };
        self.lines.try_send(queued).is_ok()
    }

    pub(crate) fn close(&self) {
        self.room.close();
    }

    fn units_of(&self, outgoing: &Outgoing) -> u32 {
        let units = outgoing.line.len().div_ceil(PERMIT_BYTES);
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
    async fn small_messages_overtake_a_large_request_that_waits_for_room() {
        let (queue, mut receiver) = WriteQueue::new(16 * PERMIT_BYTES);
        assert!(queue.put(line(10 * PERMIT_BYTES), None).await.is_ok());
        let mut large = Box::pin(queue.put(line(16 * PERMIT_BYTES), None));
        assert!((&mut large).now_or_never().is_none(), "it waits");
        assert!(queue.try_put(line(SMALL_BYTES)));
        assert!(!queue.try_put(line(SMALL_BYTES + 1)));
        receiver.recv().await.expect("the first");
        receiver.recv().await.expect("the small one");
        assert!(large.await.is_ok());
        let small = (0..2 * MAX_LINES).filter(|_| queue.try_put(line(1)));
        assert_eq!(small.count(), MAX_LINES - 1);
    }
}
