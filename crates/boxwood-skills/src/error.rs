//! Errors of the store.
//!
//! Texts that LangBot users already see are kept unchanged, including capitals. The others follow the style of
//! this project.

use std::io;
use std::path::PathBuf;

use boxwood_api::ErrorCode;

#[derive(Debug, thiserror::Error)]
pub enum SkillError {
    #[error("Skill name is required")]
    NameRequired,
    #[error("Skill name can only contain letters, numbers, hyphens and underscores")]
    NameCharacters,
    #[error("Skill name cannot exceed 64 characters")]
    NameTooLong,
    #[error("Skill with name \"{name}\" already exists")]
    NameTaken { name: String },
    #[error("Skill directory already exists: {}", path.display())]
    DirectoryExists { path: PathBuf },
    #[error("Directory does not exist: {}", path.display())]
    DirectoryMissing { path: PathBuf },
    #[error("No SKILL.md found in {}", path.display())]
    NoEntryFile { path: PathBuf },
    #[error("No SKILL.md found in {0} or its subdirectories (max depth: 2)")]
    NoSkillBelow(String),
    #[error(
        "Multiple skill directories found in {}. Please choose a more specific path: {}",
        path.display(),
        joined(candidates)
    )]
    SeveralSkillsBelow {
        path: PathBuf,
        candidates: Vec<PathBuf>,
    },
    #[error("Directory is outside the allowed import roots: {}", path.display())]
    ImportNotAllowed { path: PathBuf },
    #[error("Failed to create skill \"{0}\"")]
    CreateFailed(String),
    #[error("Skill \"{name}\" not found")]
    NotFound { name: String },
    #[error("Skill \"{0}\" not found after update")]
    LostByUpdate(String),
    #[error("Renaming skills is not supported")]
    RenameNotSupported,
    #[error(
        "Updating package_root is not supported; recreate the skill to import a different package"
    )]
    MoveNotSupported,
    #[error("Only managed skills under the Box skills root can be deleted")]
    NotManaged,

    #[error("path must be relative to the skill package root")]
    PathNotRelative,
    #[error("path must stay within the skill package root")]
    PathEscapes,
    #[error("Skill directory not found: {0}")]
    SubdirectoryNotFound(String),
    #[error("Skill file not found: {0}")]
    FileNotFound(String),
    #[error("Skill file is not valid UTF-8 text: {0}")]
    FileNotText(String),
    #[error("Skill file is not a regular file: {0}")]
    FileNotRegular(String),
    #[error("Skill file already exists: {0}")]
    FileExists(String),
    #[error("Skill entry file cannot be deleted, moved or replaced by a move: {0}")]
    EntryFileNeeded(String),
    /// With the reason.
    #[error("path is not usable: {0}")]
    PathNotUsable(String),

    #[error("{what} exceeds the limit of {limit}")]
    TooLarge { what: Oversize, limit: u64 },
    #[error("SKILL.md cannot be read: {0}")]
    FrontMatter(String),
    #[error("the front matter of SKILL.md cannot be edited in place; replace the whole file")]
    FrontMatterLayout,

    #[error("Uploaded file is empty")]
    UploadEmpty,
    #[error("Uploaded file must be a valid .zip archive")]
    UploadNotZip,
    #[error("Archive contains an unsafe path: {0}")]
    UnsafeMember(String),
    #[error("Archive contains the same path twice: {0}")]
    DuplicateMember(String),
    #[error("Archive contains an encrypted entry: {0}")]
    EncryptedMember(String),
    #[error("Archive contains an entry with an unsupported compression method: {0}")]
    UnsupportedMember(String),
    #[error("Archive contains overlapping entries")]
    OverlappingMembers,
    #[error("source_subdir must stay within the uploaded archive")]
    SubdirEscapes,
    #[error("source_subdir does not exist in the uploaded archive: {0}")]
    SubdirMissing(String),
    #[error("target_suffix can only contain letters, numbers, hyphens and underscores")]
    TargetSuffix,
    #[error("Multiple skills found. Please choose one or more source_paths: {candidates}")]
    ChooseSourcePaths { candidates: String },
    #[error("Invalid source_path \"{path}\". Available: {available}")]
    InvalidSourcePath { path: String, available: String },
    #[error("Duplicate target directory selected: {}", path.display())]
    DuplicateTarget { path: PathBuf },

    #[error("skill store could not {operation} `{path}`")]
    Io {
        operation: &'static str,
        path: String,
        source: io::Error,
    },
}

/// Which limit was exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Oversize {
    ZipBytes,
    UnpackedBytes,
    Entries,
    Ratio,
    FileBytes,
    PathDepth,
    PathBytes,
    NameBytes,
    SkillMdBytes,
}

impl Oversize {
    /// Fails if the value exceeds the limit.
    pub(crate) fn check(
        self,
        value: impl TryInto<u64>,
        limit: impl TryInto<u64>,
    ) -> Result<(), SkillError> {
        let limit = limit.try_into().unwrap_or(u64::MAX);
        if value.try_into().unwrap_or(u64::MAX) > limit {
            return Err(SkillError::TooLarge { what: self, limit });
        }
        Ok(())
    }
}

impl std::fmt::Display for Oversize {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::ZipBytes => "Archive size in bytes",
            Self::UnpackedBytes => "Unpacked size in bytes",
            Self::Entries => "Number of files and directories",
            Self::Ratio => "Compression ratio",
            Self::FileBytes => "File size in bytes",
            Self::PathDepth => "Depth of a path",
            Self::PathBytes => "Length of a path in bytes",
            Self::NameBytes => "Length of a file name in bytes",
            Self::SkillMdBytes => "Size of SKILL.md in bytes",
        })
    }
}

impl SkillError {
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::NotFound { .. }
            | Self::SubdirectoryNotFound { .. }
            | Self::FileNotFound { .. } => ErrorCode::NotFound,
            Self::ImportNotAllowed { .. } | Self::NotManaged => ErrorCode::Forbidden,
            Self::TooLarge { .. } => ErrorCode::PayloadTooLarge,
            Self::Io { .. } => ErrorCode::InternalError,
            _ => ErrorCode::ValidationError,
        }
    }

    pub(crate) fn io(
        operation: &'static str,
        path: impl AsRef<std::path::Path>,
        source: impl Into<io::Error>,
    ) -> Self {
        Self::Io {
            operation,
            path: path.as_ref().display().to_string(),
            source: source.into(),
        }
    }

    pub(crate) fn too_large(what: Oversize, limit: impl TryInto<u64>) -> Self {
        Self::TooLarge {
            what,
            limit: limit.try_into().unwrap_or(u64::MAX),
        }
    }
}

fn joined(paths: &[PathBuf]) -> String {
    let texts: Vec<String> = paths
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    texts.join(", ")
}
