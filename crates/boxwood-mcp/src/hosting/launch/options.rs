//! Reads the options in front of what a launcher is to run.
//!
//! Comes in: a launcher's arguments, and which of its options take a value. Goes out: the options, and
//! where the rest begins. Never here: what an option means. An option nobody knows is an error: whether
//! the next word is its value cannot be guessed.

use super::LaunchError;

pub(super) struct Known {
    pub(super) launcher: &'static str,
    pub(super) flags: &'static [&'static str],
    pub(super) valued: &'static [&'static str],
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found<'a> {
    pub(super) options: Vec<(String, Option<String>)>,
    /// From the first word that is no option.
    pub(super) rest: &'a [String],
}

impl Known {
    pub(super) fn read<'a>(&self, words: &'a [String]) -> Result<Found<'a>, LaunchError> {
        let mut options = Vec::new();
        let mut at = 0;
        while let Some(word) = words.get(at) {
            if word == "--" {
                at += 1;
                break;
            }
            if !word.starts_with('-') || word == "-" {
                break;
            }
            at += 1;
            if let Some((name, value)) = word.split_once('=').filter(|_| word.starts_with("--")) {
                let known = self.valued.contains(&name) || self.flags.contains(&name);
                if !known {
                    return Err(self.unknown(name));
                }
                options.push((name.to_owned(), Some(value.to_owned())));
            } else if self.flags.contains(&word.as_str()) {
                options.push((word.clone(), None));
            } else if self.valued.contains(&word.as_str()) {
                let value = words.get(at).ok_or_else(|| LaunchError::MissingValue {
                    launcher: self.launcher.to_owned(),
                    option: word.clone(),
                })?;
                at += 1;
                options.push((word.clone(), Some(value.clone())));
            } else {
                options.extend(self.short(word).ok_or_else(|| self.unknown(word))?);
            }
        }
        Ok(Found {
            options,
            rest: words.get(at..).unwrap_or_default(),
        })
    }

    /// `-yq` and `-p3.12`.
    fn short(&self, word: &str) -> Option<Vec<(String, Option<String>)>> {
        let letters = word
            .strip_prefix('-')
            .filter(|rest| !rest.starts_with('-'))?;
        let first = letters.chars().next()?;
        let name = format!("-{first}");
        if self.valued.contains(&name.as_str()) {
            let value = letters.get(first.len_utf8()..)?;
            return Some(vec![(name, Some(value.to_owned()))]);
        }
        letters
            .chars()
            .map(|letter| {
                let name = format!("-{letter}");
                self.flags.contains(&name.as_str()).then_some((name, None))
            })
            .collect()
    }

    fn unknown(&self, option: &str) -> LaunchError {
        LaunchError::UnknownOption {
            launcher: self.launcher.to_owned(),
            option: option.to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: Known = Known {
        launcher: "tool",
        flags: &["-y", "-q", "--yes"],
        valued: &["-p", "--package"],
    };

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[track_caller]
    fn check(line: &str, options: &[(&str, Option<&str>)], rest: &str) {
        let line = words(line);
        let found = KNOWN.read(&line).expect("every option is known");
        let read: Vec<_> = found
            .options
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_deref()))
            .collect();
        assert_eq!(read, options);
        assert_eq!(found.rest, words(rest));
    }

    #[test]
    fn options_end_at_the_first_other_word() {
        check("-y pkg -q --more", &[("-y", None)], "pkg -q --more");
        check(
            "--package=a --package b c",
            &[("--package", Some("a")), ("--package", Some("b"))],
            "c",
        );
        check("-yq pkg", &[("-y", None), ("-q", None)], "pkg");
        check("-p3.12 pkg", &[("-p", Some("3.12"))], "pkg");
        check("--yes -- -strange", &[("--yes", None)], "-strange");
        check("- x", &[], "- x");
        check("", &[], "");
    }

    #[test]
    fn an_option_nobody_knows_is_named() {
        for line in ["--what pkg", "--what=1 pkg", "-z pkg", "-yz pkg"] {
            let error = KNOWN.read(&words(line)).expect_err(line);
            assert!(
                matches!(error, LaunchError::UnknownOption { .. }),
                "{error}"
            );
        }
        let error = KNOWN.read(&words("-p")).expect_err("no value");
        assert_eq!(error.to_string(), "`-p` of `tool` needs a value");
    }
}
