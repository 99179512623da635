//! Finds the end of a JSON object incrementally, byte by byte.
//!
//! Only the structure is checked, not the spelling of numbers, words and escapes; a complete object is parsed
//! once. Parsing again with every frame would take quadratic time.

/// The limit of `serde_json`.
const MAX_DEPTH: usize = 127;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// The object is not complete.
    Incomplete,
    /// A complete object, which ends at this offset of the last frame.
    Complete(usize),
    /// No continuation makes this an object.
    Invalid,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Expects {
    #[default]
    Start,
    FirstKeyOrEnd,
    Key,
    Colon,
    Value,
    FirstValueOrEnd,
    CommaOrEnd,
    /// Inside a string, which may be a key.
    Text {
        key: bool,
    },
    /// The character after a backslash.
    Escape {
        key: bool,
    },
    /// The rest of a number or a word, such as `1.5e3`, `true` or `NaN`.
    Scalar,
}

#[derive(Debug, Default)]
pub(crate) struct Scanner {
    /// The closing brackets of the open objects and arrays.
    open: Vec<u8>,
    expects: Expects,
}

impl Scanner {
    pub(crate) fn push(&mut self, chunk: &str) -> Progress {
        for (index, byte) in chunk.bytes().enumerate() {
            match self.step(byte) {
                Some(false) => {}
                Some(true) => return Progress::Complete(index + 1),
                None => return Progress::Invalid,
            }
        }
        Progress::Incomplete
    }

    /// Returns true if the object is complete; `None` if it is invalid.
    fn step(&mut self, byte: u8) -> Option<bool> {
        use Expects as E;
        self.expects = match (self.expects, byte) {
            (E::Text { key: true }, b'"') => E::Colon,
            (E::Text { key: false }, b'"') => E::CommaOrEnd,
            (E::Text { key }, b'\\') => E::Escape { key },
            (E::Text { key }, 0x20..) | (E::Escape { key }, _) => E::Text { key },
            (E::Scalar, _) if is_scalar(byte) => E::Scalar,
            // A scalar ends with the byte after it.
            (E::Scalar, _) => {
                self.expects = E::CommaOrEnd;
                return self.step(byte);
            }
            (E::Text { .. }, _) => return None,
            (_, b' ' | b'\t' | b'\n' | b'\r') => self.expects,
            (E::Start | E::Value | E::FirstValueOrEnd, b'{') => return self.begin(b'}'),
            (E::Value | E::FirstValueOrEnd, b'[') => return self.begin(b']'),
            (E::Value | E::FirstValueOrEnd, b'"') => E::Text { key: false },
            (E::Value | E::FirstValueOrEnd, _) if is_scalar(byte) => E::Scalar,
            (E::FirstKeyOrEnd | E::Key, b'"') => E::Text { key: true },
            (E::CommaOrEnd, b',') if self.open.last() == Some(&b'}') => E::Key,
            (E::Colon, b':') | (E::CommaOrEnd, b',') => E::Value,
            (E::FirstKeyOrEnd | E::FirstValueOrEnd | E::CommaOrEnd, b'}' | b']') => {
                let is_open = self.open.pop() == Some(byte);
                self.expects = E::CommaOrEnd;
                return is_open.then_some(self.open.is_empty());
            }
            _ => return None,
        };
        Some(false)
    }

    /// Begins an object or an array that ends with this bracket.
    fn begin(&mut self, end: u8) -> Option<bool> {
        if self.open.len() >= MAX_DEPTH {
            return None;
        }
        self.open.push(end);
        self.expects = match end {
            b'}' => Expects::FirstKeyOrEnd,
            _ => Expects::FirstValueOrEnd,
        };
        Some(false)
    }
}

fn is_scalar(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'+' | b'.')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scan(text: &str) -> Progress {
        Scanner::default().push(text)
    }

    #[test]
    fn the_end_of_an_object_is_found() {
        for text in [
            "{}",
            " {\"a\": [1, -0.5e+3, true, false, null, \"x\\u00e9\\n\", {}, []]}",
            "{\"a\":{\"b\":{}},\"c\":0}",
            "{\"a\":NaN,\"b\":-Infinity,\"c\":Infinity}",
        ] {
            assert_eq!(scan(text), Progress::Complete(text.len()), "{text}");
            assert_eq!(scan(&format!("{text}xyz")), Progress::Complete(text.len()));
        }
    }

    #[test]
    fn every_prefix_of_a_message_is_incomplete() {
        let text = "{\"seq_id\": 12, \"a\\\"b\": [\"\\u0041\", 1.5e3, {\"x\": null}], \"é\": true}";
        for at in (0..text.len()).filter(|at| text.is_char_boundary(*at)) {
            let mut scanner = Scanner::default();
            assert_eq!(scanner.push(&text[..at]), Progress::Incomplete, "{at}");
            assert_eq!(
                scanner.push(&text[at..]),
                Progress::Complete(text.len() - at)
            );
        }
    }

    #[test]
    fn invalid_prefixes_are_detected() {
        for text in [
            "x",
            "[",
            "\"",
            "{]",
            "{,",
            "{1:",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "{\"a\":\"\n",
            "{\"a\":[1}",
            "{\"a\":1]",
            "{\"a\":1 2",
            "{\"a\":tru {",
        ] {
            assert_eq!(scan(text), Progress::Invalid, "{text}");
        }
        let deep = format!("{{\"a\":{}", "[".repeat(MAX_DEPTH + 1));
        assert_eq!(scan(&deep), Progress::Invalid);
    }

    /// The scanner accepts every object that the parser accepts.
    #[test]
    fn the_scanner_agrees_with_the_parser_on_mutated_objects() {
        let seed = "{\"seq_id\": 12, \"d\": [\"\\u0041\", -1.5e3, {\"x\": null, \"y\": false}], \"z\": \"q\"}";
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = move |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            usize::try_from(state % below as u64).unwrap_or(0)
        };
        let alphabet = b"{}[]\",:\\ue+-.0123456789 tfn\nrulasxA";
        for _ in 0..20_000 {
            let mut bytes = seed.as_bytes().to_vec();
            for _ in 0..=random(3) {
                let at = random(bytes.len());
                match random(3) {
                    0 => bytes[at] = alphabet[random(alphabet.len())],
                    1 => drop(bytes.remove(at)),
                    _ => bytes.insert(at, alphabet[random(alphabet.len())]),
                }
            }
            let text = String::from_utf8(bytes).expect("all ASCII");
            let parsed = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(&text);
            match scan(&text) {
                // The parser rejects invalid numbers, words and escapes.
                Progress::Complete(end) if text[end..].trim().is_empty() => {}
                Progress::Incomplete | Progress::Invalid | Progress::Complete(_) => {
                    assert!(parsed.is_err(), "{text}");
                }
            }
        }
    }
}
