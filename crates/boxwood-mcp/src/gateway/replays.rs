//! What clients have read and may come back for, over all streams.
//!
//! Comes in: what was just handed to a reader. Goes out: to streams, what they keep no longer. All of it
//! together is bounded, and the oldest goes first: a client that lost its connection comes back for what was
//! sent last. Never here: what nobody has read, which is counted elsewhere.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

const MOST_BYTES: usize = 64 * 1024 * 1024;
/// What one takes beside its text.
const BESIDE: usize = 256;
/// Of those that are gone, so many may be known still.
const MOST_GONE: usize = 1024;

/// A stream that keeps what was read.
pub(crate) trait Forgets: Send + Sync {
    fn forget(&self, number: u64);
}

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct Replays {
    inner: Arc<Inner>,
}

struct Inner {
    most: usize,
    bytes: AtomicUsize,
    line: Mutex<Line>,
}

/// In the order in which they were read.
#[derive(Default)]
struct Line {
    kept: VecDeque<One>,
    /// Gone ones are looked for when there are more than this.
    tidy_at: usize,
}

struct One {
    stream: Weak<dyn Forgets>,
    number: u64,
    counted: Weak<Counted>,
}

/// Counts until it is dropped, with what it stands for.
pub(crate) struct Counted {
    inner: Arc<Inner>,
    bytes: usize,
}

impl Default for Replays {
    fn default() -> Self {
        Self::new(MOST_BYTES)
    }
}

impl Replays {
    fn new(most: usize) -> Self {
        Self {
            inner: Arc::new(Inner {
                most,
                bytes: AtomicUsize::new(0),
                line: Mutex::default(),
            }),
        }
    }

    /// Takes no lock: a stream counts while it holds its own.
    pub(crate) fn count(&self, bytes: usize) -> Arc<Counted> {
        let bytes = bytes + BESIDE;
        self.inner.bytes.fetch_add(bytes, Ordering::Relaxed);
        Arc::new(Counted {
            inner: Arc::clone(&self.inner),
            bytes,
        })
    }

    /// Any stream may be told to forget something, so the caller holds the lock of none.
    pub(crate) fn keep(&self, stream: Weak<dyn Forgets>, number: u64, counted: Weak<Counted>) {
        let mut line = self.line();
        line.kept.push_back(One {
            stream,
            number,
            counted,
        });
        let gone = line.surplus(self.bytes().saturating_sub(self.inner.most));
        line.tidy();
        drop(line);
        for one in gone {
            if let Some(stream) = one.stream.upgrade() {
                stream.forget(one.number);
            }
        }
    }

    fn bytes(&self) -> usize {
        self.inner.bytes.load(Ordering::Relaxed)
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        let line = self.inner.line.lock();
        line.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    /// The oldest, of so many bytes.
    fn surplus(&mut self, bytes: usize) -> Vec<One> {
        let mut gone = Vec::new();
        let mut left = bytes;
        while left > 0 {
            let Some(one) = self.kept.pop_front() else {
                break;
            };
            if let Some(counted) = one.counted.upgrade() {
                left = left.saturating_sub(counted.bytes);
                gone.push(one);
            }
        }
        gone
    }

    /// Streams forget by themselves, too.
    fn tidy(&mut self) {
        if self.kept.len() <= self.tidy_at.max(MOST_GONE) {
            return;
        }
        self.kept.retain(|one| one.counted.strong_count() > 0);
        self.tidy_at = 2 * self.kept.len();
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.inner.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Counted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// A stream that keeps nothing but the count.
    #[derive(Default)]
    struct Stream(Mutex<BTreeMap<u64, Arc<Counted>>>);

    impl Forgets for Stream {
        fn forget(&self, number: u64) {
            self.0.lock().expect("lock").remove(&number);
        }
    }

    impl Stream {
        fn read(self: &Arc<Self>, replays: &Replays, number: u64, bytes: usize) {
            let counted = replays.count(bytes - BESIDE);
            let weak = Arc::downgrade(&counted);
            self.0.lock().expect("lock").insert(number, counted);
            let stream: Arc<dyn Forgets> = Arc::<Self>::clone(self);
            replays.keep(Arc::downgrade(&stream), number, weak);
        }

        fn numbers(&self) -> Vec<u64> {
            self.0.lock().expect("lock").keys().copied().collect()
        }
    }

    #[test]
    fn the_oldest_of_all_streams_goes_first() {
        let replays = Replays::new(3000);
        let (one, two) = (Arc::new(Stream::default()), Arc::new(Stream::default()));
        one.read(&replays, 1, 1000);
        two.read(&replays, 1, 1000);
        one.read(&replays, 2, 1000);
        assert_eq!((one.numbers(), two.numbers()), (vec![1, 2], vec![1]));
        one.read(&replays, 3, 1500);
        assert_eq!((one.numbers(), two.numbers()), (vec![2, 3], vec![]));
        drop(one);
        assert_eq!(replays.bytes(), 0);
        two.read(&replays, 2, 3000);
        assert_eq!(two.numbers(), [2]);
    }

    #[test]
    fn what_streams_forgot_by_themselves_is_not_remembered_for_long() {
        let replays = Replays::new(usize::MAX);
        let stream = Arc::new(Stream::default());
        for number in 0..10 * MOST_GONE as u64 {
            stream.read(&replays, number, 1000);
            stream.forget(number);
        }
        assert!(replays.line().kept.len() <= 2 * MOST_GONE);
        assert_eq!(replays.bytes(), 0);
    }
}
