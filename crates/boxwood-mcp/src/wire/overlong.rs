//! A line too long to keep: which call it answered, so that this call alone fails.

/// Enough for `jsonrpc` and `id` on either side of a result.
const KEPT: usize = 512;

#[derive(Clone, Debug, Default)]
pub(crate) struct Overlong {
    head: Vec<u8>,
    tail: Vec<u8>,
    bytes: usize,
    has_ended: bool,
}

impl Overlong {
    pub(crate) fn add(&mut self, part: &[u8]) {
        self.bytes += part.len();
        let room = KEPT - self.head.len();
        self.head.extend_from_slice(&part[..part.len().min(room)]);
        let last = &part[part.len().saturating_sub(KEPT)..];
        self.tail.extend_from_slice(last);
        self.tail.drain(..self.tail.len().saturating_sub(KEPT));
    }

    pub(crate) fn end(&mut self) {
        self.has_ended = true;
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn head(&self) -> &[u8] {
        &self.head
    }

    /// The id it seems to answer. A server that lies here only fails a call of its own.
    pub(crate) fn answers(&self) -> Option<u64> {
        if !self.head.starts_with(b"{") {
            return None;
        }
        // Before the result, or after it: servers write either.
        let before = memchr::memmem::find(&self.head, b"\"result\"").unwrap_or(0);
        let near_end = || {
            let at = memchr::memmem::rfind(&self.tail, b"\"id\"")?;
            let rest = self.tail[at..].trim_ascii_end();
            rest.ends_with(b"}").then(|| id_at(rest))?
        };
        let at_start = memchr::memmem::find(&self.head[..before], b"\"id\"");
        match at_start {
            Some(at) => id_at(&self.head[at..before]),
            None if self.has_ended => near_end(),
            None => None,
        }
    }
}

/// Reads the number in `"id": 17`.
fn id_at(text: &[u8]) -> Option<u64> {
    let value = text.strip_prefix(b"\"id\"")?.trim_ascii_start();
    let value = value.strip_prefix(b":")?.trim_ascii_start();
    let value = value.strip_prefix(b"\"").unwrap_or(value);
    let digits = value
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    std::str::from_utf8(&value[..digits]).ok()?.parse().ok()
}
