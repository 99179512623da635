//! Captures one output stream of a command.
//!
//! The head and the tail are kept for the model. The first bytes of the stream are kept too, to be saved in the box if the stream
//! is truncated. Memory use is bounded.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::output::{Truncated, last, truncate_ends};

/// Limit of a stream that is saved.
pub(crate) const MAX_SAVED_BYTES: usize = 8 * 1024 * 1024;

/// Limit of all streams of all calls together.
const MAX_BUFFERED_BYTES: usize = 128 * 1024 * 1024;

/// A permit for each byte that the calls of one agent hold.
#[derive(Clone)]
pub(crate) struct CaptureBudget(Arc<Semaphore>);

impl Default for CaptureBudget {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX_BUFFERED_BYTES)))
    }
}

/// The tail is cut when it has more than this number of bytes for each character of the limit.
const SLACK: usize = 8;

pub(crate) struct OutputCapture {
    limit: usize,
    decoder: Decoder,
    /// The first `limit` characters.
    head: String,
    /// The last `limit` characters, and perhaps some before them.
    tail: String,
    chars: usize,
    bytes: u64,
    /// The first bytes of the stream. `None` if the budget was exhausted.
    content: Option<(Vec<u8>, OwnedSemaphorePermit)>,
}

/// A stream that was longer than what is shown.
pub(crate) struct Kept {
    pub(crate) content: Bytes,
    /// Whether the stream had more than `content`.
    pub(crate) cut: bool,
    /// Held until the content is in the box.
    pub(crate) permits: OwnedSemaphorePermit,
}

/// The buffers of all calls together are at [`MAX_BUFFERED_BYTES`].
pub(crate) struct NotKept;

impl OutputCapture {
    pub(crate) fn new(limit: usize, budget: &CaptureBudget) -> Self {
        let no_permits = Arc::clone(&budget.0).try_acquire_many_owned(0);
        Self {
            limit,
            decoder: Decoder::default(),
            head: String::new(),
            tail: String::new(),
            chars: 0,
            bytes: 0,
            content: no_permits.ok().map(|permits| (Vec::new(), permits)),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Adds output, and returns it as text.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> String {
        self.bytes += bytes.len() as u64;
        self.keep(bytes);
        let text = self.decoder.text(bytes);
        self.show(&text);
        text
    }

    /// Ends the stream. Returns the text to show, and the whole stream if it was cut.
    pub(crate) fn finish(mut self) -> (Truncated, Option<Result<Kept, NotKept>>) {
        let rest = self.decoder.rest();
        self.show(&rest);
        let shown = truncate_ends(&self.head, &self.tail, self.chars, self.limit);
        if !shown.truncated {
            return (shown, None);
        }
        let kept = self.content.map(|(content, permits)| Kept {
            cut: (content.len() as u64) < self.bytes,
            content: content.into(),
            permits,
        });
        (shown, Some(kept.ok_or(NotKept)))
    }

    fn show(&mut self, text: &str) {
        let count = text.chars().count();
        if self.chars < self.limit {
            self.head.extend(text.chars().take(self.limit - self.chars));
        }
        self.chars += count;
        if count >= self.limit {
            self.tail.clear();
            self.tail.push_str(last(text, self.limit));
            return;
        }
        self.tail.push_str(text);
        if self.tail.len() > SLACK * self.limit {
            self.tail = last(&self.tail, self.limit).to_owned();
        }
    }

    fn keep(&mut self, bytes: &[u8]) {
        let Some((content, permits)) = &mut self.content else {
            return;
        };
        let bytes = &bytes[..bytes.len().min(MAX_SAVED_BYTES - content.len())];
        // At most `MAX_SAVED_BYTES`, so the number fits.
        let count = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        match Arc::clone(permits.semaphore()).try_acquire_many_owned(count) {
            Ok(more) => {
                permits.merge(more);
                content.extend_from_slice(bytes);
            }
            Err(_) => self.content = None,
        }
    }
}

/// Decodes UTF-8 in pieces; a character may be split between two pieces.
#[derive(Default)]
struct Decoder {
    /// The beginning of a character that is not complete yet: at most three bytes.
    incomplete: Vec<u8>,
}

impl Decoder {
    fn text(&mut self, bytes: &[u8]) -> String {
        let mut pending = std::mem::take(&mut self.incomplete);
        pending.extend_from_slice(bytes);
        let is_incomplete = |tail: &[u8]| {
            std::str::from_utf8(tail)
                .is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
        };
        let earliest = pending.len().saturating_sub(3);
        let start = (earliest..pending.len()).find(|&from| is_incomplete(&pending[from..]));
        self.incomplete = pending.split_off(start.unwrap_or(pending.len()));
        String::from_utf8_lossy(&pending).into_owned()
    }

    /// The rest, at the end of the stream.
    fn rest(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.incomplete)).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::output::truncate;

    fn collected(pieces: &[Vec<u8>], limit: usize) -> (String, Truncated, Option<Kept>) {
        let mut stream = OutputCapture::new(limit, &CaptureBudget::default());
        let progress = pieces.iter().map(|piece| stream.take(piece)).collect();
        let (shown, kept) = stream.finish();
        (progress, shown, kept.and_then(Result::ok))
    }

    fn content(kept: Option<Kept>) -> (Vec<u8>, bool) {
        let kept = kept.expect("it was kept");
        (kept.content.to_vec(), kept.cut)
    }

    #[test]
    fn all_streams_share_one_limit() {
        let budget = CaptureBudget::default();
        let mut first = OutputCapture::new(10, &budget);
        first.take(&[b'x'; 1000]);
        let rest = u32::try_from(MAX_BUFFERED_BYTES - 1500).expect("a small number");
        let _rest = Arc::clone(&budget.0).try_acquire_many_owned(rest);
        let mut second = OutputCapture::new(10, &budget);
        second.take(&[b'y'; 1000]);
        assert!(matches!(second.finish().1, Some(Err(NotKept))));
        drop(first);
        assert_eq!(budget.0.available_permits(), 1500);
    }

    proptest! {
        #[test]
        fn a_stream_in_pieces_is_shown_like_the_whole(
            bytes in proptest::collection::vec(any::<u8>(), 0..600),
            text in "[a-zäß€🦀\\n]{0,300}",
            size in 1_usize..40,
            limit in 0_usize..120,
        ) {
            for whole in [bytes, text.into_bytes()] {
                let pieces: Vec<Vec<u8>> = whole.chunks(size).map(<[u8]>::to_vec).collect();
                let (_, shown, kept) = collected(&pieces, limit);
                let expected = truncate(&String::from_utf8_lossy(&whole), limit);
                prop_assert_eq!(&shown, &expected);
                prop_assert_eq!(kept.is_some(), expected.truncated);
            }
        }
    }

    #[test]
    fn progress_contains_only_whole_characters() {
        let crab = "🦀".as_bytes();
        let pieces = [crab[..1].to_vec(), crab[1..3].to_vec(), crab[3..].to_vec()];
        let (progress, shown, _) = collected(&pieces, 10);
        assert_eq!((progress.as_str(), shown.text.as_str()), ("🦀", "🦀"));
    }

    #[test]
    fn the_whole_stream_is_kept() {
        let whole: Vec<u8> = (0..200_000_u32).map(|at| at.to_le_bytes()[0]).collect();
        let pieces: Vec<Vec<u8>> = whole.chunks(8_192).map(<[u8]>::to_vec).collect();
        let (_, shown, kept) = collected(&pieces, 100);
        assert!(shown.truncated);
        assert_eq!(content(kept), (whole, false));
    }

    #[test]
    fn a_stream_is_kept_up_to_a_limit() {
        let piece = vec![b'x'; 1 << 20];
        let pieces = vec![piece; 17];
        let (_, shown, kept) = collected(&pieces, 100);
        assert_eq!(shown.text.chars().count(), 100);
        let (read, cut) = content(kept);
        assert_eq!((read.len(), cut), (MAX_SAVED_BYTES, true));
    }
}
