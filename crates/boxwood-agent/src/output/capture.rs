//! Captures one output stream of a command.
//!
//! The head and the tail are kept for the model. If they are not the whole stream, the stream is also spooled to a file, to be
//! saved in the box. Memory use is bounded.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt as _;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

use bytes::Bytes;
use tempfile::{SpooledData, SpooledTempFile};
use tokio::io::{AsyncRead, ReadBuf};

use crate::boxes::Content;
use crate::output::{Truncated, last, truncate_ends};

/// Limit of a stream that is saved.
pub(crate) const MAX_SAVED_BYTES: u64 = 8 * 1024 * 1024;

/// Limit of all streams of all calls that wait to be saved.
const MAX_BUFFERED_BYTES: u64 = 512 * 1024 * 1024;

/// The bytes that all calls of one agent hold.
#[derive(Clone, Default)]
pub(crate) struct CaptureBudget(Arc<AtomicU64>);

/// The bytes of one stream. Returned to the budget on drop.
pub(crate) struct Share {
    all: CaptureBudget,
    bytes: u64,
}

impl Share {
    fn grow(&mut self, bytes: u64) -> bool {
        let all = &self.all.0;
        if all.fetch_add(bytes, Ordering::Relaxed) + bytes > MAX_BUFFERED_BYTES {
            all.fetch_sub(bytes, Ordering::Relaxed);
            return false;
        }
        self.bytes += bytes;
        true
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.all.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Shorter streams are kept in memory.
const IN_MEMORY_BYTES: usize = 64 * 1024;

/// Bounds the time of one read.
const MOST_READ_AT_ONCE: usize = 64 * 1024;

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
    whole: Storage,
}

/// The bytes of the stream.
enum Storage {
    Kept {
        file: SpooledTempFile,
        share: Share,
    },
    /// They could not be kept.
    Lost {
        why: String,
    },
}

/// A stream that was longer than what is shown.
pub(crate) enum Kept {
    File {
        source: Source,
        /// Held until the content is in the box.
        share: Share,
        /// Whether it had more than is kept.
        cut: bool,
        bytes: u64,
    },
    Lost {
        why: String,
    },
}

/// Content that can be read several times.
pub(crate) enum Source {
    Memory(Bytes),
    Disk(Arc<File>),
}

impl Source {
    /// All of it, from the beginning.
    pub(crate) fn content(&self) -> Content {
        match self {
            Self::Memory(bytes) => Box::new(io::Cursor::new(bytes.clone())),
            Self::Disk(file) => Box::new(FileReader {
                file: Arc::clone(file),
                at: 0,
            }),
        }
    }
}

/// Reads a shared file at its own position. The data is normally in the page cache, so the read runs on the calling thread.
struct FileReader {
    file: Arc<File>,
    at: u64,
}

impl AsyncRead for FileReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let room = buffer.remaining().min(MOST_READ_AT_ONCE);
        // A positioned read: the descriptor's offset is shared by all readers.
        let unfilled = buffer.initialize_unfilled_to(room);
        let read = self.file.read_at(unfilled, self.at)?;
        buffer.advance(read);
        self.at += read as u64;
        Poll::Ready(Ok(()))
    }
}

impl OutputCapture {
    pub(crate) fn new(limit: usize, budget: &CaptureBudget) -> Self {
        Self {
            limit,
            decoder: Decoder::default(),
            head: String::new(),
            tail: String::new(),
            chars: 0,
            bytes: 0,
            whole: Storage::Kept {
                file: SpooledTempFile::new(IN_MEMORY_BYTES),
                share: Share {
                    all: budget.clone(),
                    bytes: 0,
                },
            },
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
    pub(crate) fn finish(mut self) -> (Truncated, Option<Kept>) {
        let rest = self.decoder.rest();
        self.show(&rest);
        let shown = truncate_ends(&self.head, &self.tail, self.chars, self.limit);
        let kept = shown.truncated.then(|| kept(self.whole, self.bytes));
        (shown, kept)
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

    /// Small writes to memory or to the page cache, so they run on the calling thread.
    fn keep(&mut self, bytes: &[u8]) {
        let Storage::Kept { file, share } = &mut self.whole else {
            return;
        };
        let room = usize::try_from(MAX_SAVED_BYTES - share.bytes).unwrap_or(usize::MAX);
        let bytes = &bytes[..bytes.len().min(room)];
        if !share.grow(bytes.len() as u64) {
            let why = "the commands of all calls have too much output at the moment".to_owned();
            self.whole = Storage::Lost { why };
        } else if let Err(error) = file.write_all(bytes) {
            let why = error.to_string();
            self.whole = Storage::Lost { why };
        }
    }
}

fn kept(whole: Storage, total: u64) -> Kept {
    let (file, share) = match whole {
        Storage::Kept { file, share } => (file, share),
        Storage::Lost { why } => return Kept::Lost { why },
    };
    let source = match file.into_inner() {
        SpooledData::InMemory(memory) => Source::Memory(memory.into_inner().into()),
        SpooledData::OnDisk(file) => Source::Disk(file.into()),
    };
    Kept::File {
        source,
        cut: share.bytes < total,
        bytes: share.bytes,
        share,
    }
}

/// Decodes UTF-8 in pieces; a character may be split between two pieces.
#[derive(Default)]
struct Decoder {
    /// The beginning of a character whose end has not come yet: three bytes at most.
    begun: Vec<u8>,
}

impl Decoder {
    fn text(&mut self, bytes: &[u8]) -> String {
        let mut joined = std::mem::take(&mut self.begun);
        joined.extend_from_slice(bytes);
        let is_begun = |tail: &[u8]| {
            std::str::from_utf8(tail)
                .is_err_and(|error| error.valid_up_to() == 0 && error.error_len().is_none())
        };
        let most = joined.len().saturating_sub(3);
        let begun = (most..joined.len()).find(|&from| is_begun(&joined[from..]));
        self.begun = joined.split_off(begun.unwrap_or(joined.len()));
        String::from_utf8_lossy(&joined).into_owned()
    }

    /// A character that never ended.
    fn rest(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.begun)).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use tokio::io::AsyncReadExt as _;

    use super::*;
    use crate::output::truncate;

    fn collected(pieces: &[Vec<u8>], limit: usize) -> (String, Truncated, Option<Kept>) {
        let mut stream = OutputCapture::new(limit, &CaptureBudget::default());
        let told = pieces.iter().map(|piece| stream.take(piece)).collect();
        let (shown, kept) = stream.finish();
        (told, shown, kept)
    }

    async fn content(kept: Option<Kept>) -> (Vec<u8>, bool) {
        let Some(Kept::File {
            source, cut, bytes, ..
        }) = kept
        else {
            panic!("nothing was kept");
        };
        // A cancelled read does not affect the next one.
        let mut begun = source.content();
        begun.read_u8().await.expect("readable");
        let mut read = Vec::new();
        let mut content = source.content();
        content.read_to_end(&mut read).await.expect("readable");
        assert_eq!(read.len() as u64, bytes);
        (read, cut)
    }

    #[test]
    fn all_streams_together_hold_no_more_than_is_allowed() {
        let budget = CaptureBudget::default();
        let mut first = OutputCapture::new(10, &budget);
        first.take(&[b'x'; 1000]);
        budget
            .0
            .fetch_add(MAX_BUFFERED_BYTES - 1500, Ordering::Relaxed);
        let mut second = OutputCapture::new(10, &budget);
        second.take(&[b'y'; 1000]);
        assert!(matches!(second.finish().1, Some(Kept::Lost { .. })));
        drop(first);
        assert_eq!(budget.0.load(Ordering::Relaxed), MAX_BUFFERED_BYTES - 1500);
    }

    proptest! {
        #[test]
        fn pieces_show_what_the_whole_would(
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
    fn what_is_told_on_the_way_is_whole_characters() {
        let crab = "🦀".as_bytes();
        let pieces = [crab[..1].to_vec(), crab[1..3].to_vec(), crab[3..].to_vec()];
        let (told, shown, _) = collected(&pieces, 10);
        assert_eq!((told.as_str(), shown.text.as_str()), ("🦀", "🦀"));
    }

    #[tokio::test]
    async fn the_whole_is_kept_byte_by_byte() {
        let whole: Vec<u8> = (0..200_000_u32).map(|at| at.to_le_bytes()[0]).collect();
        let pieces: Vec<Vec<u8>> = whole.chunks(8_192).map(<[u8]>::to_vec).collect();
        let (_, shown, kept) = collected(&pieces, 100);
        assert!(shown.truncated);
        assert_eq!(content(kept).await, (whole, false));
    }

    #[tokio::test]
    async fn two_readers_of_one_file_do_not_affect_each_other() {
        let whole: Vec<u8> = (0..200_000_u32).map(|at| at.to_le_bytes()[0]).collect();
        let (_, _, kept) = collected(std::slice::from_ref(&whole), 100);
        let Some(Kept::File { source, .. }) = kept else {
            panic!("nothing was kept");
        };
        assert!(matches!(source, Source::Disk(_)));
        let mut readers = [source.content(), source.content()];
        let mut read = [Vec::new(), Vec::new()];
        let mut buffer = [0; 1000];
        while read[1].len() < whole.len() {
            for (reader, read) in readers.iter_mut().zip(&mut read) {
                let count = reader.read(&mut buffer).await.expect("readable");
                read.extend_from_slice(&buffer[..count]);
            }
        }
        assert!(read[0] == whole && read[1] == whole);
    }

    #[tokio::test]
    async fn what_is_kept_has_an_end() {
        let piece = vec![b'x'; 1 << 20];
        let pieces = vec![piece; 17];
        let (_, shown, kept) = collected(&pieces, 100);
        assert_eq!(shown.text.chars().count(), 100);
        let (read, cut) = content(kept).await;
        assert_eq!((read.len() as u64, cut), (MAX_SAVED_BYTES, true));
    }
}
