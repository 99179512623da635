//! Decodes UTF-8 from a stream of byte chunks.

/// Decodes chunks to text without splitting characters. Invalid bytes are replaced.
#[derive(Default)]
pub(crate) struct Utf8Decoder {
    /// An incomplete character at the end of the last chunk; at most three bytes.
    incomplete: Vec<u8>,
}

impl Utf8Decoder {
    /// Returns the text of this chunk, or `None` if it completes no character.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Option<String> {
        let mut all = std::mem::take(&mut self.incomplete);
        all.extend_from_slice(bytes);
        let whole = complete_len(&all);
        self.incomplete = all.split_off(whole);
        (!all.is_empty()).then(|| String::from_utf8_lossy(&all).into_owned())
    }

    /// Length of the incomplete character.
    pub(crate) fn incomplete_len(&self) -> usize {
        self.incomplete.len()
    }

    /// Returns the replacement for an incomplete character at the end of the stream.
    pub(crate) fn finish(&mut self) -> Option<String> {
        let rest = std::mem::take(&mut self.incomplete);
        (!rest.is_empty()).then(|| String::from_utf8_lossy(&rest).into_owned())
    }
}

/// Length without an incomplete character at the end.
fn complete_len(bytes: &[u8]) -> usize {
    let last = bytes.utf8_chunks().last();
    let invalid = last.map_or(&[][..], |chunk| chunk.invalid());
    match std::str::from_utf8(invalid) {
        Err(error) if error.error_len().is_none() => bytes.len() - invalid.len(),
        _ => bytes.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_can_be_split_anywhere() {
        let text = "a字\u{1F980}é\n";
        for size in 1..=text.len() {
            let mut decoder = Utf8Decoder::default();
            let mut decoded = String::new();
            for chunk in text.as_bytes().chunks(size) {
                decoded.extend(decoder.push(chunk));
            }
            decoded.extend(decoder.finish());
            assert_eq!(decoded, text, "cut every {size}");
        }
    }

    #[test]
    fn invalid_bytes_are_replaced_immediately() {
        let mut decoder = Utf8Decoder::default();
        assert_eq!(
            decoder.push(b"\xff\xfeok").as_deref(),
            Some("\u{fffd}\u{fffd}ok")
        );
        assert_eq!(decoder.push(b"\xe5\xad"), None);
        assert_eq!(decoder.finish().as_deref(), Some("\u{fffd}"));
        assert_eq!(decoder.finish(), None);
    }
}
