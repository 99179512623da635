//! Shows the beginning and the end of a stream, with a marker where bytes were dropped.

use boxwood_api::StreamCapture;

/// How much of a stream is shown from its beginning, and how much from its end.
pub(crate) fn halves(limit: usize) -> (usize, usize) {
    let head = limit.div_ceil(2);
    (head, limit - head)
}

/// The text of a stream of `total_bytes`, of which the first and the last ones are kept.
pub(crate) fn text_of(mut head: Vec<u8>, tail: &[u8], total_bytes: u64) -> (String, StreamCapture) {
    let kept = (head.len() + tail.len()) as u64;
    if kept >= total_bytes {
        head.extend_from_slice(tail);
        let capture = StreamCapture {
            total_bytes,
            dropped_bytes: 0,
        };
        return (into_text(head), capture);
    }
    // Incomplete characters at the cut are dropped, so that they do not become replacement characters.
    head.truncate(whole_characters(&head));
    let tail = &tail[broken_start(tail)..];
    let dropped_bytes = total_bytes - (head.len() + tail.len()) as u64;
    let mut text = into_text(head);
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(&marker(dropped_bytes));
    text.push_str(&String::from_utf8_lossy(tail));
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

/// The length of `bytes` without an unfinished character at its end. Bytes that are no UTF-8
/// anyway are left alone.
fn whole_characters(bytes: &[u8]) -> usize {
    let last = bytes
        .utf8_chunks()
        .last()
        .map_or(&[][..], |chunk| chunk.invalid());
    let is_unfinished = std::str::from_utf8(last).is_err_and(|error| error.error_len().is_none());
    if is_unfinished {
        bytes.len() - last.len()
    } else {
        bytes.len()
    }
}

/// How many bytes at the start of `bytes` belong to a character that began before it.
fn broken_start(bytes: &[u8]) -> usize {
    /// A character has at most this many bytes after its first.
    const MAX_CONTINUATIONS: usize = 3;
    let is_continuation = |byte: &&u8| **byte & 0b1100_0000 == 0b1000_0000;
    let start = bytes.iter().take(MAX_CONTINUATIONS + 1);
    let run = start.take_while(is_continuation).count();
    if run <= MAX_CONTINUATIONS { run } else { 0 }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The result of a stream with these bytes.
    pub(crate) fn captured(limit: usize, bytes: &[u8]) -> (String, StreamCapture) {
        let (head, tail) = halves(limit);
        let (head, rest) = bytes.split_at(head.min(bytes.len()));
        let tail = &rest[rest.len().saturating_sub(tail)..];
        text_of(head.to_vec(), tail, bytes.len() as u64)
    }

    #[test]
    fn output_within_the_limit_is_kept_unchanged() {
        let (text, capture) = captured(8, b"  abcd\n\n");
        assert_eq!(text, "  abcd\n\n");
        assert_eq!(capture.total_bytes, 8);
        assert_eq!(capture.dropped_bytes, 0);
    }

    #[test]
    fn beyond_the_limit_head_and_tail_stay_with_a_marker_between() {
        let (text, capture) = captured(8, b"abcdefghijklmnop");
        assert_eq!(text, "abcd\n... [8 bytes dropped] ...\nmnop");
        assert_eq!(capture.total_bytes, 16);
        assert_eq!(capture.dropped_bytes, 8);
    }

    #[test]
    fn a_character_between_head_and_tail_stays_whole() {
        // Nothing was dropped, so head and tail are one text again.
        let (text, capture) = captured(8, "abc\u{20ac}de".as_bytes());
        assert_eq!(text, "abc\u{20ac}de");
        assert_eq!(capture.dropped_bytes, 0);
    }

    #[test]
    fn a_cut_never_makes_a_replacement_character() {
        let euros = "\u{20ac}".repeat(20);
        let (text, capture) = captured(8, euros.as_bytes());
        assert_eq!(text, "\u{20ac}\n... [54 bytes dropped] ...\n\u{20ac}");
        assert_eq!(capture.dropped_bytes, 54);
    }

    #[test]
    fn a_stream_without_its_beginning_starts_with_the_marker() {
        let (text, capture) = text_of(Vec::new(), b"\x82\xacend", 15);
        assert_eq!(text, "... [12 bytes dropped] ...\nend");
        assert_eq!((capture.total_bytes, capture.dropped_bytes), (15, 12));
        let (text, capture) = text_of(Vec::new(), b"all", 3);
        assert_eq!((text.as_str(), capture.dropped_bytes), ("all", 0));
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced() {
        let (text, _) = captured(8, b"a\xffb");
        assert_eq!(text, "a\u{fffd}b");
    }

    proptest! {
        #[test]
        fn all_bytes_are_kept_or_counted_as_dropped(
            limit in 0_usize..64,
            all in prop::collection::vec(any::<u8>(), 0..480),
        ) {
            let (head, tail) = halves(limit);
            prop_assert_eq!(head + tail, limit);
            let (text, counts) = captured(limit, &all);
            prop_assert_eq!(counts.total_bytes, all.len() as u64);
            if all.len() <= limit {
                prop_assert_eq!(counts.dropped_bytes, 0);
                prop_assert_eq!(text, String::from_utf8_lossy(&all));
            } else {
                prop_assert!(counts.dropped_bytes >= (all.len() - limit) as u64);
                prop_assert!(text.contains(&marker(counts.dropped_bytes)));
            }
        }
    }
}
