//! Streams that a client may come back to, for all sessions together.
//!
//! A stream stays while its calls go on, and a little longer: whoever lost the connection just then asks
//! again within seconds. All that is kept of finished streams is bounded; the oldest goes first.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::outbox::Outbox;

const KEPT_FOR: Duration = Duration::from_mins(1);
const MOST_FINISHED: usize = 1024;
const MOST_BYTES: usize = 64 * 1024 * 1024;

#[derive(Default)]
pub(crate) struct Shelf {
    streams: Mutex<VecDeque<Kept>>,
}

struct Kept {
    session: Arc<str>,
    stream: u64,
    outbox: Outbox,
}

impl Shelf {
    fn streams(&self) -> MutexGuard<'_, VecDeque<Kept>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn put(&self, session: &Arc<str>, stream: u64, outbox: &Outbox) {
        let mut streams = self.streams();
        tidy(&mut streams);
        streams.push_back(Kept {
            session: Arc::clone(session),
            stream,
            outbox: outbox.clone(),
        });
    }

    pub(crate) fn find(&self, session: &str, stream: u64) -> Option<Outbox> {
        let mut streams = self.streams();
        tidy(&mut streams);
        let found = streams
            .iter()
            .find(|kept| kept.stream == stream && *kept.session == *session);
        found.map(|kept| kept.outbox.clone())
    }

    pub(crate) fn forget(&self, session: &str) {
        self.streams().retain(|kept| *kept.session != *session);
    }

    pub(crate) fn tidy(&self) {
        tidy(&mut self.streams());
    }
}

fn tidy(streams: &mut VecDeque<Kept>) {
    let is_late = |kept: &Kept| kept.outbox.closed_for().is_some_and(|it| it > KEPT_FOR);
    streams.retain(|kept| !is_late(kept));
    let finished = |kept: &&Kept| kept.outbox.closed_for().is_some();
    let mut count = streams.iter().filter(finished).count();
    let mut bytes: usize = streams
        .iter()
        .filter(finished)
        .map(|kept| kept.outbox.bytes())
        .sum();
    streams.retain(|kept| {
        let is_too_much = count > MOST_FINISHED || bytes > MOST_BYTES;
        if !is_too_much || kept.outbox.closed_for().is_none() {
            return true;
        }
        count -= 1;
        bytes = bytes.saturating_sub(kept.outbox.bytes());
        false
    });
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::outbox::Matter;
    use super::*;

    fn finished(bytes: usize) -> Outbox {
        let outbox = Outbox::default();
        outbox.push(Matter::Answer, Bytes::from(vec![b'x'; bytes]));
        outbox.close();
        outbox
    }

    #[tokio::test(start_paused = true)]
    async fn a_finished_stream_waits_a_little_and_an_open_one_as_long_as_it_takes() {
        let shelf = Shelf::default();
        let session: Arc<str> = "one".into();
        shelf.put(&session, 1, &finished(10));
        shelf.put(&session, 2, &Outbox::default());
        tokio::time::advance(KEPT_FOR / 2).await;
        assert!(shelf.find("one", 1).is_some());
        assert!(shelf.find("two", 1).is_none(), "another session's");
        tokio::time::advance(KEPT_FOR).await;
        assert!(shelf.find("one", 1).is_none());
        assert!(shelf.find("one", 2).is_some());
        shelf.forget("one");
        assert!(shelf.find("one", 2).is_none());
    }

    #[tokio::test]
    async fn what_is_kept_is_bounded_and_the_oldest_goes() {
        let shelf = Shelf::default();
        let session: Arc<str> = "one".into();
        for stream in 0..5 {
            shelf.put(&session, stream, &finished(MOST_BYTES / 3));
        }
        shelf.tidy();
        assert_eq!(shelf.streams().len(), 3);
        assert!(shelf.find("one", 0).is_none());
        for stream in 5..10 + MOST_FINISHED as u64 {
            shelf.put(&session, stream, &finished(1));
        }
        shelf.tidy();
        assert!(shelf.streams().len() <= MOST_FINISHED);
    }
}
