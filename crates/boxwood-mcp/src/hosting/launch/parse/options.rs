//! Parses the options before the program of a launcher.
//!
//! An unknown option is an error, because it is not known whether the next word is its value.

use crate::hosting::launch::LaunchError;

/// The known options of a launcher. Each list of options is separated by spaces.
pub(crate) struct OptionSet {
    pub(crate) launcher: &'static str,
    pub(crate) flags: &'static [&'static str],
    /// Options with a value.
    pub(crate) valued: &'static [&'static str],
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ParsedOptions<'a> {
    pub(crate) options: Vec<(String, Option<String>)>,
    /// From the first word that is not an option.
    pub(crate) rest: &'a [String],
}

impl OptionSet {
    pub(crate) fn read<'a>(&self, words: &'a [String]) -> Result<ParsedOptions<'a>, LaunchError> {
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
                if !self.is_valued(name) && !self.is_flag(name) {
                    return Err(self.unknown(name));
                }
                options.push((name.to_owned(), Some(value.to_owned())));
            } else if self.is_flag(word) {
                options.push((word.clone(), None));
            } else if self.is_valued(word) {
                let value = words.get(at).ok_or_else(|| LaunchError::MissingValue {
                    launcher: self.launcher.to_owned(),
                    option: word.clone(),
                })?;
                at += 1;
                options.push((word.clone(), Some(value.clone())));
            } else {
                return Err(self.unknown(word));
            }
        }
        Ok(ParsedOptions {
            options,
            rest: words.get(at..).unwrap_or_default(),
        })
    }

    fn is_flag(&self, name: &str) -> bool {
        contains(self.flags, name)
    }

    fn is_valued(&self, name: &str) -> bool {
        contains(self.valued, name)
    }

    fn unknown(&self, option: &str) -> LaunchError {
        LaunchError::UnknownOption {
            launcher: self.launcher.to_owned(),
            option: option.to_owned(),
        }
    }
}

/// Returns true if one of the lists has this option.
pub(crate) fn contains(lists: &[&str], option: &str) -> bool {
    let mut options = lists.iter().flat_map(|list| list.split_whitespace());
    options.any(|known| known == option)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: OptionSet = OptionSet {
        launcher: "tool",
        flags: &["-y -q", "--yes"],
        valued: &["-p --package"],
    };

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[track_caller]
    fn check(line: &str, options: &[(&str, Option<&str>)], rest: &str) {
        let line = words(line);
        let parsed = KNOWN.read(&line).expect("every option is known");
        let read: Vec<_> = parsed
            .options
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_deref()))
            .collect();
        assert_eq!(read, options);
        assert_eq!(parsed.rest, words(rest));
    }

    #[test]
    fn options_end_at_the_first_argument() {
        check("-y pkg -q --more", &[("-y", None)], "pkg -q --more");
        check(
            "--package=a --package b c",
            &[("--package", Some("a")), ("--package", Some("b"))],
            "c",
        );
        check("-p 3.12 pkg", &[("-p", Some("3.12"))], "pkg");
        check("--yes -- -strange", &[("--yes", None)], "-strange");
        check("- x", &[], "- x");
        check("", &[], "");
    }

    #[test]
    fn an_unknown_option_is_named() {
        for line in ["--what pkg", "--what=1 pkg", "-z pkg", "-yz pkg", "-yq pkg"] {
            let error = KNOWN.read(&words(line)).expect_err(line);
            assert!(
                matches!(error, LaunchError::UnknownOption { .. }),
                "{error}"
            );
        }
        let error = KNOWN.read(&words("-p")).expect_err("no value");
        assert_eq!(error.to_string(), "option `-p` of `tool` requires a value");
    }
}
