//! Keeps the beginning and the end of a stream, with a marker where bytes were dropped.

use std::collections::VecDeque;

use boxwood_api::StreamCapture;

pub(crate) struct Capture {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    head_limit: usize,
    tail_limit: usize,
    total: u64,
}

impl Capture {
    /// `limit` bytes in all, half of them for the head.
    pub(crate) fn new(limit: usize) -> Self {
        let (head_limit, tail_limit) = Self::halves(limit);
        Self {
            head: Vec::new(),
            tail: VecDeque::new(),
            head_limit,
            tail_limit,
            total: 0,
        }
    }

    /// Returns the limits of head and tail.
    pub(crate) fn halves(limit: usize) -> (usize, usize) {
        let head = limit.div_ceil(2);
        (head, limit - head)
    }

    /// Counts bytes that are not available. The head must be full.
    pub(crate) fn skip(&mut self, bytes: u64) {
        if bytes > 0 {
            self.total += bytes;
            self.tail.clear();
        }
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let room = self.head_limit - self.head.len();
        let (head, rest) = bytes.split_at(room.min(bytes.len()));
        self.head.extend_from_slice(head);
        // Only the end of a chunk longer than the tail is kept.
        let rest = &rest[rest.len().saturating_sub(self.tail_limit)..];
        let too_many = (self.tail.len() + rest.len()).saturating_sub(self.tail_limit);
        self.tail.drain(..too_many);
        self.tail.extend(rest);
    }

    pub(crate) fn finish(mut self) -> (String, StreamCapture) {
        let kept = (self.head.len() + self.tail.len()) as u64;
        let tail = self.tail.make_contiguous();
        if kept == self.total {
            self.head.extend_from_slice(tail);
            let capture = StreamCapture {
                total_bytes: self.total,
                dropped_bytes: 0,
            };
            return (into_text(self.head), capture);
        }
        // Incomplete characters at the cut are dropped, so that they do not become replacement characters.
        self.head.truncate(whole_characters(&self.head));
        let tail = &tail[broken_start(tail)..];
        let dropped = self.total - (self.head.len() + tail.len()) as u64;
        let mut text = into_text(self.head);
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&marker(dropped));
        text.push_str(&String::from_utf8_lossy(tail));
        let capture = StreamCapture {
            total_bytes: self.total,
            dropped_bytes: dropped,
        };
        (text, capture)
    }
}

/// Formats the end of a stream whose first `dropped` bytes are not kept.
pub(crate) fn last_part(bytes: Vec<u8>, dropped: u64) -> (String, StreamCapture) {
    let total_bytes = dropped + bytes.len() as u64;
    if dropped == 0 {
        let capture = StreamCapture {
            total_bytes,
            dropped_bytes: 0,
        };
        return (into_text(bytes), capture);
    }
    let whole = broken_start(&bytes);
    let dropped_bytes = dropped + whole as u64;
    let text = marker(dropped_bytes) + &String::from_utf8_lossy(&bytes[whole..]);
    let capture = StreamCapture {
        total_bytes,
        dropped_bytes,
    };
    (text, capture)
}

fn marker(dropped: u64) -> String {
    format!("... [{dropped} bytes dropped] ...\n")
}

fn into_text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

const CONTINUATION_MASK: u8 = 0b1100_0000;
const CONTINUATION: u8 = 0b1000_0000;
/// A character has at most this many bytes after its first.
const MAX_CONTINUATIONS: usize = 3;

fn is_continuation(byte: u8) -> bool {
    byte & CONTINUATION_MASK == CONTINUATION
}

/// The length of `bytes` without an unfinished character at its end. Bytes that are no UTF-8
/// anyway are left alone.
fn whole_characters(bytes: &[u8]) -> usize {
    let back = bytes
        .iter()
        .rev()
        .take(MAX_CONTINUATIONS)
        .take_while(|byte| is_continuation(**byte))
        .count();
    let Some(first_at) = bytes.len().checked_sub(back + 1) else {
        return bytes.len();
    };
    let expected = match bytes[first_at] {
        0b1100_0000..=0b1101_1111 => 1,
        0b1110_0000..=0b1110_1111 => 2,
        0b1111_0000..=0b1111_0111 => 3,
        _ => 0,
    };
    if back < expected {
        first_at
    } else {
        bytes.len()
    }
}

/// How many bytes at the start of `bytes` belong to a character that began before it.
fn broken_start(bytes: &[u8]) -> usize {
    let run = bytes
        .iter()
        .take(MAX_CONTINUATIONS + 1)
        .take_while(|byte| is_continuation(**byte))
        .count();
    if run <= MAX_CONTINUATIONS { run } else { 0 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn captured(limit: usize, pieces: &[&[u8]]) -> (String, StreamCapture) {
        let mut capture = Capture::new(limit);
        for piece in pieces {
            capture.push(piece);
        }
        capture.finish()
    }

    #[test]
    fn output_within_the_limit_is_kept_as_it_is() {
        let (text, capture) = captured(8, &[b"  ab", b"cd\n\n"]);
        assert_eq!(text, "  abcd\n\n");
        assert_eq!(capture.total_bytes, 8);
        assert_eq!(capture.dropped_bytes, 0);
    }

    #[test]
    fn beyond_the_limit_head_and_tail_stay_with_a_marker_between() {
        let (text, capture) = captured(8, &[b"abcdefghij", b"klmnop"]);
        assert_eq!(text, "abcd\n... [8 bytes dropped] ...\nmnop");
        assert_eq!(capture.total_bytes, 16);
        assert_eq!(capture.dropped_bytes, 8);
    }

    #[test]
    fn a_character_over_the_seam_of_head_and_tail_stays_whole() {
        // Nothing was dropped, so head and tail are one text again.
        let (text, capture) = captured(8, &["abc\u{20ac}de".as_bytes()]);
        assert_eq!(text, "abc\u{20ac}de");
        assert_eq!(capture.dropped_bytes, 0);
    }

    #[test]
    fn a_cut_never_makes_a_replacement_character() {
        let euros = "\u{20ac}".repeat(20);
        let (text, capture) = captured(8, &[euros.as_bytes()]);
        assert_eq!(text, "\u{20ac}\n... [54 bytes dropped] ...\n\u{20ac}");
        assert_eq!(capture.dropped_bytes, 54);
    }

    #[test]
    fn a_stream_whose_beginning_is_gone_says_so() {
        let (text, capture) = last_part(b"\x82\xacend".to_vec(), 10);
        assert_eq!(text, "... [12 bytes dropped] ...\nend");
        assert_eq!((capture.total_bytes, capture.dropped_bytes), (15, 12));
        let (text, capture) = last_part(b"all".to_vec(), 0);
        assert_eq!((text.as_str(), capture.dropped_bytes), ("all", 0));
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced() {
        let (text, _) = captured(8, &[b"a\xffb"]);
        assert_eq!(text, "a\u{fffd}b");
    }

    proptest! {
        #[test]
        fn what_is_kept_and_what_is_dropped_is_everything(
            limit in 0_usize..64,
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..12),
        ) {
            let all = pieces.concat();
            let mut capture = Capture::new(limit);
            for piece in &pieces {
                capture.push(piece);
            }
            prop_assert!(capture.head.len() + capture.tail.len() <= limit);
            prop_assert!(all.starts_with(&capture.head));
            let tail: Vec<u8> = capture.tail.iter().copied().collect();
            prop_assert!(all.ends_with(&tail));
            let (text, counts) = capture.finish();
            prop_assert_eq!(counts.total_bytes, all.len() as u64);
            if all.len() <= limit {
                prop_assert_eq!(counts.dropped_bytes, 0);
                prop_assert_eq!(text, String::from_utf8_lossy(&all));
            } else {
                prop_assert!(counts.dropped_bytes >= (all.len() - limit) as u64);
                prop_assert!(text.contains(&marker(counts.dropped_bytes)));
            }
        }

        #[test]
        fn pieces_make_no_difference(
            limit in 0_usize..64,
            bytes in prop::collection::vec(any::<u8>(), 0..200),
            cut in 1_usize..30,
        ) {
            let mut capture = Capture::new(limit);
            for piece in bytes.chunks(cut) {
                capture.push(piece);
            }
            prop_assert_eq!(capture.finish(), captured(limit, &[&bytes]));
        }
    }
}
