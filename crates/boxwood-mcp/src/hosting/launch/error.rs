//! Errors of launch planning.

use std::io;
use std::path::{Path, PathBuf};

use crate::hosting::Secrets;

/// Words of the command are cut to this length in errors.
const MAX_SHOWN_CHARS: usize = 80;

/// Contains unredacted words of the command until [`LaunchError::redacted`].
#[derive(Debug, thiserror::Error)]
pub(crate) enum LaunchError {
    #[error("`{launcher}` cannot run in a box: {why}")]
    Unsupported {
        launcher: String,
        why: &'static str,
        instead: &'static str,
    },
    #[error("option `{option}` of `{launcher}` is not supported")]
    UnknownOption { launcher: String, option: String },
    #[error("option `{option}` of `{launcher}` requires a value")]
    MissingValue { launcher: String, option: String },
    #[error("`{launcher}` has no package or program to run")]
    NothingToRun { launcher: String },
    #[error("`{word}` is not a package that {installer} can install: {why}")]
    BadPackage {
        installer: &'static str,
        word: String,
        why: &'static str,
    },
    #[error("`with` cannot be used with `{command}`, which is started without an install")]
    WithNothing { command: String },
    #[error("MCP host_path does not exist or is not a directory: {}", path.display())]
    NoHostPath { path: PathBuf },
    #[error("the command refers to {}, which is too broad to mount into a box", path.display())]
    TooBroad { path: PathBuf },
    #[error("{} cannot be read", path.display())]
    Manifest { path: PathBuf, source: io::Error },
    #[error("{} cannot be parsed: {message}", path.display())]
    BadManifest { path: PathBuf, message: String },
    #[error("`--locked` and `--frozen` require a lock file, and {} has no uv.lock", path.display())]
    NoLock { path: PathBuf },
    #[error("the packages of the virtual environment {} are not listed anywhere", path.display())]
    NoManifest { path: PathBuf },
    #[error("{} has more than {limit}", path.display())]
    TooMuch { path: PathBuf, limit: &'static str },
    #[error("{} cannot be inspected", path.display())]
    Inspect { path: PathBuf, source: io::Error },
    #[error("the install has no program to start: {why}")]
    Entry { why: String },
}

impl LaunchError {
    pub(crate) fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Unsupported { instead, .. } => (*instead).to_owned(),
            Self::UnknownOption { option, .. } => format!(
                "start the server without `{option}`, or write short options separately; installers read settings from variables too, such as UV_OFFLINE or NPM_CONFIG_USERCONFIG"
            ),
            Self::MissingValue { option, .. } => format!("give `{option}` a value, or remove it"),
            Self::NothingToRun { launcher } => {
                format!("add the package to the arguments of `{launcher}`")
            }
            Self::BadPackage { .. } => {
                "write packages as in their index, such as `mcp-server-time==2026.10.19` or `@scope/name@1.2`".to_owned()
            }
            Self::WithNothing { .. } => {
                "`with` works for uvx, uv run, npx and python".to_owned()
            }
            Self::NoHostPath { .. } => {
                "set box.host_path to a directory of this host, or leave it out".to_owned()
            }
            Self::TooBroad { .. } => {
                "set box.host_path to the directory of the server, or set box.host_path_mode to `none`".to_owned()
            }
            Self::NoLock { .. } => {
                "run `uv lock` there, or start the server without these options".to_owned()
            }
            Self::NoManifest { .. } => {
                "list them in a requirements.txt beside it (`pip freeze`) or in `with`; start a server without packages with `python3`".to_owned()
            }
            Self::TooMuch { .. } => "install from a smaller directory, or from a wheel".to_owned(),
            Self::Entry { .. } => "reinstall it with `boxwood mcp restart --reinstall NAME`".to_owned(),
            Self::Manifest { .. } | Self::BadManifest { .. } | Self::Inspect { .. } => return None,
        };
        Some(hint)
    }

    /// Redacts secrets in words of the command, then shortens the words.
    pub(crate) fn redacted(mut self, secrets: &Secrets) -> Self {
        match &mut self {
            Self::Unsupported { launcher: word, .. }
            | Self::UnknownOption { option: word, .. }
            | Self::MissingValue { option: word, .. }
            | Self::NothingToRun { launcher: word }
            | Self::BadPackage { word, .. }
            | Self::WithNothing { command: word } => {
                let hidden = secrets.hide(std::mem::take(word));
                *word = hidden.chars().take(MAX_SHOWN_CHARS).collect();
            }
            _ => {}
        }
        self
    }

    /// The host directory that the error describes. It may be shown only to callers who may mount that directory.
    pub(crate) fn concerned_directory(&self) -> Option<&Path> {
        match self {
            Self::Manifest { path, .. } | Self::BadManifest { path, .. } => path.parent(),
            Self::NoHostPath { path }
            | Self::NoLock { path, .. }
            | Self::NoManifest { path }
            | Self::TooMuch { path, .. }
            | Self::Inspect { path, .. } => Some(path),
            _ => None,
        }
    }

    /// Returns true if a retry cannot help.
    pub(crate) fn is_permanent(&self) -> bool {
        !matches!(
            self,
            Self::Manifest { .. } | Self::Inspect { .. } | Self::Entry { .. }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hosting::launch::parse::command::ParsedCommand;

    #[test]
    fn secrets_are_redacted_before_words_are_cut() {
        let secret = "s3cr3t-".repeat(30);
        let secrets = Secrets::of(&[("input:token".to_owned(), secret.clone())].into());
        let control = format!("{secret}\u{7}");
        let path = format!("https://{secret}/x");
        for words in [
            vec!["uvx", &path],
            vec!["uvx", &control],
            vec!["uvx", &format!("-z{secret}"), "a"],
            vec!["uv", &secret],
            vec!["npx", &control],
            vec!["npx", &format!("-c{secret}")],
            vec!["npx", "-p", "a", &path],
            vec!["npm", &secret],
            vec!["env", "A=b", &format!("{secret}/docker")],
        ] {
            let args: Vec<_> = words[1..].iter().map(|&word| word.to_owned()).collect();
            let error = ParsedCommand::read(words[0], &args).expect_err(words[0]);
            let error = error.redacted(&secrets);
            let shown = format!("{error} {:?}", error.hint());
            assert!(shown.contains("[input:token]"), "{shown}");
            assert!(!shown.contains("s3cr3t"), "{shown}");
        }
    }

    #[test]
    fn a_long_word_is_cut() {
        let error = LaunchError::WithNothing {
            command: "a".repeat(1000),
        };
        let shown = error.redacted(&Secrets::default()).to_string();
        assert!(shown.len() < 200, "{shown}");
    }

    #[test]
    fn errors_name_the_directory_they_describe() {
        let directory = Path::new("/srv/project");
        let denied = || io::Error::from(io::ErrorKind::PermissionDenied);
        let path = directory.to_owned();
        let of_directory = [
            LaunchError::NoHostPath { path: path.clone() },
            LaunchError::TooMuch {
                path: path.clone(),
                limit: "200,000 files",
            },
            LaunchError::Inspect {
                path: path.clone(),
                source: denied(),
            },
            LaunchError::Manifest {
                path: path.join("pyproject.toml"),
                source: denied(),
            },
        ];
        for error in of_directory {
            assert_eq!(error.concerned_directory(), Some(directory), "{error}");
        }
        let of_none = LaunchError::NothingToRun {
            launcher: "uvx".to_owned(),
        };
        assert_eq!(of_none.concerned_directory(), None);
    }
}
