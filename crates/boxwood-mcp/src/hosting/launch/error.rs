//! Why a server's command cannot be started in a box.

use std::io;
use std::path::PathBuf;

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

    /// Whether trying again cannot mend it.
    pub(crate) fn is_final(&self) -> bool {
        !matches!(
            self,
            Self::Manifest { .. } | Self::NoRoom { .. } | Self::Copy { .. } | Self::Entry { .. }
        )
    }
}
