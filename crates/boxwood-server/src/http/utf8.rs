//! Text out of bytes that were cut anywhere.

/// Turns pieces of a byte stream into text without tearing a character in two.
#[derive(Default)]
pub(super) struct Utf8Pieces {
    /// The beginning of a character whose end has not come yet; at most three bytes.
    begun: Vec<u8>,
}

impl Utf8Pieces {
    /// The text of this piece; `None` when there is none yet.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Option<String> {
        let mut all = std::mem::take(&mut self.begun);
        all.extend_from_slice(bytes);
        let whole = complete_len(&all);
        self.begun = all.split_off(whole);
        (!all.is_empty()).then(|| String::from_utf8_lossy(&all).into_owned())
    }

    /// How many bytes of an unfinished character have come.
    pub(super) fn begun(&self) -> usize {
        self.begun.len()
    }

    /// What was begun and never finished, when the stream ends.
    pub(super) fn finish(&mut self) -> Option<String> {
        let rest = std::mem::take(&mut self.begun);
        (!rest.is_empty()).then(|| String::from_utf8_lossy(&rest).into_owned())
    }
}

/// How many bytes there are before an unfinished character at the end, if there is one.
fn complete_len(bytes: &[u8]) -> usize {
    let mut start = 0;
    loop {
        match std::str::from_utf8(&bytes[start..]) {
            Ok(_) => return bytes.len(),
            Err(error) => match error.error_len() {
                Some(bad) => start += error.valid_up_to() + bad,
                None => return start + error.valid_up_to(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_survive_any_cut() {
        let text = "a字\u{1F980}é\n";
        for size in 1..=text.len() {
            let mut pieces = Utf8Pieces::default();
            let mut got = String::new();
            for piece in text.as_bytes().chunks(size) {
                got.extend(pieces.push(piece));
            }
            got.extend(pieces.finish());
            assert_eq!(got, text, "cut every {size}");
        }
    }

    #[test]
    fn what_is_not_text_is_replaced_and_never_kept_back() {
        let mut pieces = Utf8Pieces::default();
        assert_eq!(
            pieces.push(b"\xff\xfeok").as_deref(),
            Some("\u{fffd}\u{fffd}ok")
        );
        assert_eq!(pieces.push(b"\xe5\xad"), None);
        assert_eq!(pieces.finish().as_deref(), Some("\u{fffd}"));
        assert_eq!(pieces.finish(), None);
    }
}
