//! Words for a POSIX shell.
//!
//! Comes in: any text without NUL. Goes out: one word that every shell reads back as that text. Never
//! here: a script.

/// `word` between single quotes, in which nothing is special but the quote itself.
pub(super) fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Every word quoted, with a space between.
pub(super) fn quote_all<Word: AsRef<str>>(words: impl IntoIterator<Item = Word>) -> String {
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

    /// What the shell of this machine makes of the words.
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
    fn what_shells_treat_specially_comes_back_as_it_was() {
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
        fn every_text_comes_back_as_it_was(
            words in proptest::collection::vec("[^\\x00]{0,24}", 1..6),
        ) {
            prop_assert_eq!(read_back(&quote_all(&words)), words);
        }
    }
}
