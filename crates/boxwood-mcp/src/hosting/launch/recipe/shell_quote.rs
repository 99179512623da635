//! Quotes words for a POSIX shell.

pub(crate) fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Quotes and joins all words.
pub(crate) fn quote_all<Word: AsRef<str>>(words: impl IntoIterator<Item = Word>) -> String {
    words
        .into_iter()
        .map(|word| quote(word.as_ref()))
        .collect::<Vec<_>>()
        .join(" ")
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use proptest::prelude::*;

    use super::*;

    /// Splits the line with the host's shell.
    fn read_back(line: &str) -> Vec<String> {
        let script = format!(r#"for word in {line}; do printf '%s\0' "$word"; done"#);
        let output = Command::new("/bin/sh")
            .args(["-c", &script])
            .output()
            .expect("there is a shell");
        assert!(output.status.success(), "{script}");
        let mut words: Vec<_> = String::from_utf8(output.stdout)
            .expect("what went in was text")
            .split('\0')
            .map(str::to_owned)
            .collect();
        words.pop();
        words
    }

    #[test]
    fn special_characters_are_quoted() {
        let words = [
            "",
            "'",
            "''",
            "$(touch /nowhere/x)",
            "`id`",
            "a b",
            "\\",
            "\n",
            "*",
            "~",
            "-n",
            "mcp<2",
            "#",
            "!",
            "it's \"quoted\"; exit 1 &",
        ];
        assert_eq!(read_back(&quote_all(words)), words);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn every_text_round_trips(
            words in proptest::collection::vec("[^\\x00]{0,24}", 1..6),
        ) {
            prop_assert_eq!(read_back(&quote_all(&words)), words);
        }
    }
}
