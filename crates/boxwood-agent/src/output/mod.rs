//! Cuts the middle out of long output, with a notice in its place. The result is never longer than the limit.

pub(crate) mod capture;
pub(crate) mod saved;

/// A text as a model gets it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Truncated {
    pub text: String,
    pub truncated: bool,
    /// How many characters of the original are not in `text`.
    pub omitted: usize,
}

/// Attempts to size the notice: its length depends on the number in it, which depends on its length.
const ROUNDS: usize = 4;

/// Keeps at most `limit` characters: three fifths of the room for the head, the rest for the tail.
pub fn truncate(text: &str, limit: usize) -> Truncated {
    // A text has at least as many bytes as characters.
    let length = if text.len() <= limit {
        text.len()
    } else {
        text.chars().count()
    };
    truncate_ends(text, text, length, limit)
}

/// Like [`truncate`], for a text of `length` characters of which only the ends are known: at least `limit`
/// characters each, or the whole text if it is shorter.
pub(crate) fn truncate_ends(begin: &str, end: &str, length: usize, limit: usize) -> Truncated {
    if length <= limit {
        return Truncated {
            text: begin.to_owned(),
            truncated: false,
            omitted: 0,
        };
    }
    let (mut head, mut tail) = (0, 0);
    let mut notice = String::new();
    for _ in 0..ROUNDS {
        notice = notice_of(length - head - tail);
        let room = limit.saturating_sub(notice.len());
        if room == 0 {
            return Truncated {
                text: notice.chars().take(limit).collect(),
                truncated: true,
                omitted: length,
            };
        }
        let sizes = (room * 3 / 5, room - room * 3 / 5);
        if sizes == (head, tail) {
            break;
        }
        (head, tail) = sizes;
    }
    let mut cut = String::with_capacity(begin.len().min(4 * limit));
    cut.push_str(first(begin, head));
    cut.push_str(&notice);
    cut.push_str(last(end, tail));
    // If the last attempt still changed the sizes, the notice may be one digit too long.
    if let Some((end, _)) = cut.char_indices().nth(limit) {
        cut.truncate(end);
    }
    Truncated {
        text: cut,
        truncated: true,
        omitted: length - head - tail,
    }
}

/// ASCII only, so that its bytes are its characters.
fn notice_of(omitted: usize) -> String {
    format!("\n\n... [{omitted} characters truncated] ...\n\n")
}

fn first(text: &str, count: usize) -> &str {
    let end = text
        .char_indices()
        .nth(count)
        .map_or(text.len(), |(index, _)| index);
    &text[..end]
}

pub(crate) fn last(text: &str, count: usize) -> &str {
    let begin = match count {
        0 => text.len(),
        count => text
            .char_indices()
            .rev()
            .nth(count - 1)
            .map_or(0, |(index, _)| index),
    };
    &text[begin..]
}
