//! Why a server's command cannot be started in a box.

use std::io;
use std::path::{Path, PathBuf};

use crate::hosting::Secrets;

/// Of a word of the command.
const SHOWN_CHARS: usize = 80;

/// Words of the command are whole in it, until [`LaunchError::redacted`].
#[derive(Debug, thiserror::Error)]
pub(crate) enum LaunchError {
    #[error("`{launcher}` cannot run in a box: {why}")]
    Unsupported {
        launcher: String,
        why: &'static str,
        instead: &'static str,
    },
    #[error("`{launcher}` is given `{option}`, which Boxwood does not know")]
    UnknownOption { launcher: String, option: String },
    #[error("`{option}` of `{launcher}` needs a value")]
    MissingValue { launcher: String, option: String },
    #[error("`{launcher}` is not told what to run")]
    NothingToRun { launcher: String },
    #[error("`{word}` is nothing that {installer} could install: {why}")]
    BadPackage {
        installer: &'static str,
        word: String,
        why: &'static str,
    },
    #[error("`with` has {count} entries; at most {limit} fit")]
    TooManyPackages { count: usize, limit: usize },
    #[error("`with` has nothing to go with: `{command}` is started as it is")]
    WithNothing { command: String },
    #[error("MCP host_path does not exist or is not a directory: {}", path.display())]
    NoHostPath { path: PathBuf },
    #[error("the command names {}, and that is more than a server should see", path.display())]
    TooBroad { path: PathBuf },
    #[error(
        "the command names {count} directories that are not in one, and only one can be used as it is"
    )]
    SeveralDirect { count: usize },
    #[error("{} cannot be read", path.display())]
    Manifest { path: PathBuf, source: io::Error },
    #[error("{} does not parse: {message}", path.display())]
    BadManifest { path: PathBuf, message: String },
    #[error("`{option}` goes by a lock, and {} has no uv.lock", path.display())]
    NoLock { option: String, path: PathBuf },
    #[error("{} has package.json and no node_modules, and is used as it is", path.display())]
    NoModules { path: PathBuf },
    #[error("{} holds more than {limit}", path.display())]
    TooMuch { path: PathBuf, limit: &'static str },
    #[error("there is too little room on the disk for a copy of {}", path.display())]
    NoRoom { path: PathBuf },
    #[error("cannot {operation} {}", path.display())]
    Copy {
        operation: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    #[error("the install left nothing to start: {why}")]
    Entry { why: String },
}

impl LaunchError {
    /// What to do about it.
    pub(crate) fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Unsupported { instead, .. } => (*instead).to_owned(),
            Self::UnknownOption { option, .. } => format!("start the server without `{option}`"),
            Self::MissingValue { option, .. } => format!("give `{option}` a value, or leave it out"),
            Self::NothingToRun { launcher } => {
                format!("add the package to the arguments of `{launcher}`")
            }
            Self::BadPackage { .. } => {
                "write packages as their index knows them, such as `mcp-server-time==2026.10.19` or `@scope/name@1.2`".to_owned()
            }
            Self::TooManyPackages { .. } => "put what is needed into one package".to_owned(),
            Self::WithNothing { .. } => {
                "`with` works for uvx, uv run, pipx run, npx, npm exec and python".to_owned()
            }
            Self::NoHostPath { .. } => {
                "set box.host_path to a directory of this host, or leave it out".to_owned()
            }
            Self::TooBroad { .. } => {
                "name the one directory the server works on in box.host_path, or set box.host_path_mode to `none`".to_owned()
            }
            Self::SeveralDirect { .. } => {
                "name one directory in box.host_path, or set box.host_path_mode to `ro`: then each is copied".to_owned()
            }
            Self::NoLock { option, .. } => {
                format!("run `uv lock` there, or start the server without `{option}`")
            }
            Self::NoModules { .. } => {
                "run `npm install` there, or set box.host_path_mode to `ro`: then Boxwood installs for a copy".to_owned()
            }
            Self::TooMuch { .. } => {
                "point box.host_path at a smaller directory, or set box.host_path_mode to `rw`: then nothing is copied".to_owned()
            }
            Self::NoRoom { .. } => {
                "make room where the daemon keeps its state (`load.min_free_mb` stays free), or set box.host_path_mode to `rw`: then nothing is copied".to_owned()
            }
            Self::Entry { .. } => "install it anew: `boxwood mcp restart --reinstall NAME`".to_owned(),
            Self::Manifest { .. } | Self::BadManifest { .. } | Self::Copy { .. } => return None,
        };
        Some(hint)
    }

    /// Hides secrets in words of the command before it cuts them: half a value would not be found any more.
    pub(crate) fn redacted(mut self, secrets: &Secrets) -> Self {
        match &mut self {
            Self::Unsupported { launcher: word, .. }
            | Self::UnknownOption { option: word, .. }
            | Self::MissingValue { option: word, .. }
            | Self::NothingToRun { launcher: word }
            | Self::BadPackage { word, .. }
            | Self::WithNothing { command: word } => {
                let hidden = secrets.hide(std::mem::take(word));
                *word = hidden.chars().take(SHOWN_CHARS).collect();
            }
            _ => {}
        }
        self
    }

    /// The directory of the host that it tells of, for those alone who might have mounted it.
    pub(crate) fn tells_of(&self) -> Option<&Path> {
        match self {
            Self::Manifest { path, .. } | Self::BadManifest { path, .. } => path.parent(),
            Self::NoHostPath { path }
            | Self::NoLock { path, .. }
            | Self::NoModules { path }
            | Self::TooMuch { path, .. }
            | Self::Copy { path, .. } => Some(path),
            _ => None,
        }
    }

    /// Whether trying again cannot mend it.
    pub(crate) fn is_final(&self) -> bool {
        !matches!(
            self,
            Self::Manifest { .. } | Self::NoRoom { .. } | Self::Copy { .. } | Self::Entry { .. }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::asked::Asked;
    use super::*;

    #[test]
    fn nothing_of_a_long_secret_is_left_where_a_word_is_cut() {
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
            vec!["npx", "-c", &secret],
            vec!["npx", "-p", "a", &path],
            vec!["npm", &secret],
            vec!["env", "A=b", &format!("{secret}/docker")],
        ] {
            let args: Vec<_> = words[1..].iter().map(|&word| word.to_owned()).collect();
            let error = Asked::read(words[0], &args).expect_err(words[0]);
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
    fn what_is_found_in_a_directory_is_told_of_that_directory() {
        let directory = Path::new("/srv/project");
        let gone = || io::Error::from(io::ErrorKind::PermissionDenied);
        let path = directory.to_owned();
        let of_directory = [
            LaunchError::NoHostPath { path: path.clone() },
            LaunchError::NoModules { path: path.clone() },
            LaunchError::TooMuch {
                path: path.clone(),
                limit: "200,000 files",
            },
            LaunchError::Copy {
                operation: "look into",
                path: path.clone(),
                source: gone(),
            },
            LaunchError::Manifest {
                path: path.join("pyproject.toml"),
                source: gone(),
            },
        ];
        for error in of_directory {
            assert_eq!(error.tells_of(), Some(directory), "{error}");
        }
        let of_none = LaunchError::NothingToRun {
            launcher: "uvx".to_owned(),
        };
        assert_eq!(of_none.tells_of(), None);
    }
}
