//! Violations of the Agent Skills rules, reported as warnings.

use std::fmt;
use std::path::PathBuf;

/// A problem that other tools or readers may have with a package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    FrontMatterMissing,
    /// A byte order mark before `---` hides the front matter.
    ByteOrderMark,
    NameMissing,
    NameLength {
        length: usize,
    },
    NameCharacters {
        name: String,
    },
    NameIsNotDirectory {
        name: String,
        directory: String,
    },
    DescriptionMissing,
    DescriptionLength {
        length: usize,
    },
    CompatibilityLength {
        length: usize,
    },
    MetadataShape,
    AllowedToolsShape,
    UnknownField {
        key: String,
    },
    BodyLength {
        lines: usize,
    },
    /// `SKILL.md` is used, `skill.md` is ignored.
    TwoEntryFiles,
    /// Another package has the same name.
    NameShared {
        other: PathBuf,
    },
    /// A link or a special file that was not copied, or that boxes cannot use.
    NotTaken {
        path: String,
    },
}

impl Warning {
    /// A stable identifier for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::FrontMatterMissing => "front_matter_missing",
            Self::ByteOrderMark => "byte_order_mark",
            Self::NameMissing => "name_missing",
            Self::NameLength { .. } => "name_length",
            Self::NameCharacters { .. } => "name_characters",
            Self::NameIsNotDirectory { .. } => "name_is_not_directory",
            Self::DescriptionMissing => "description_missing",
            Self::DescriptionLength { .. } => "description_length",
            Self::CompatibilityLength { .. } => "compatibility_length",
            Self::MetadataShape => "metadata_shape",
            Self::AllowedToolsShape => "allowed_tools_shape",
            Self::UnknownField { .. } => "unknown_field",
            Self::BodyLength { .. } => "body_length",
            Self::TwoEntryFiles => "two_entry_files",
            Self::NameShared { .. } => "name_shared",
            Self::NotTaken { .. } => "not_taken",
        }
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::FrontMatterMissing => f.write_str("SKILL.md has no front matter"),
            Self::ByteOrderMark => f.write_str(
                "SKILL.md begins with a byte order mark, so its front matter is not read",
            ),
            Self::NameMissing => f.write_str("front matter has no `name`"),
            Self::NameLength { length } => {
                write!(f, "`name` has {length} characters; 1 to 64 are portable")
            }
            Self::NameCharacters { name } => write!(
                f,
                "name `{name}` is not portable: lower-case letters, digits and single hyphens inside"
            ),
            Self::NameIsNotDirectory { name, directory } => {
                write!(f, "name `{name}` differs from its directory `{directory}`")
            }
            Self::DescriptionMissing => f.write_str("front matter has no `description`"),
            Self::DescriptionLength { length } => {
                write!(
                    f,
                    "`description` has {length} characters; at most 1024 are portable"
                )
            }
            Self::CompatibilityLength { length } => {
                write!(
                    f,
                    "`compatibility` has {length} characters; 1 to 500 are portable"
                )
            }
            Self::MetadataShape => f.write_str("`metadata` should map strings to strings"),
            Self::AllowedToolsShape => {
                f.write_str("`allowed-tools` should be one string, separated by spaces")
            }
            Self::UnknownField { key } => write!(f, "front matter has an unknown field `{key}`"),
            Self::BodyLength { lines } => {
                write!(f, "the body has {lines} lines; below 500 is recommended")
            }
            Self::TwoEntryFiles => {
                f.write_str("both `SKILL.md` and `skill.md` exist; `SKILL.md` is read")
            }
            Self::NameShared { other } => {
                write!(f, "another skill has the same name: {}", other.display())
            }
            Self::NotTaken { path } => write!(
                f,
                "`{path}` is not a file, a directory or a link inside the package"
            ),
        }
    }
}
