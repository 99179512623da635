//! Converts errors of the skill store. Host paths are only logged.

use std::path::Path;

use axum::http::StatusCode;
use boxwood_skills::SkillError;

use crate::http::error::ApiError;

pub(crate) fn refusal(error: &SkillError) -> ApiError {
    match error {
        // The path is only logged.
        SkillError::Io { operation, .. } => ApiError::internal(
            &format!("the skill store failed to {operation} a file or directory"),
            error,
        ),
        SkillError::NameTaken { .. } => {
            exists(error.to_string()).hint("delete it first, or use another name")
        }
        SkillError::DirectoryExists { path } => exists(format!(
            "the store already has a directory `{}`",
            last(path)
        ))
        .hint("delete the skill in it, or use another filename or target_suffix"),
        SkillError::FileExists { .. } => exists(error.to_string()),
        SkillError::DuplicateTarget { path } => ApiError::validation(format!(
            "two of the selected skills have the same directory `{}`",
            last(path)
        )),
        SkillError::NoEntryFile { .. } => {
            ApiError::validation("the directory contains no SKILL.md")
        }
        SkillError::DirectoryMissing { .. } => ApiError::validation("the directory does not exist"),
        SkillError::SeveralSkillsBelow { .. } => {
            ApiError::validation("the directory contains several skills")
        }
        SkillError::ImportNotAllowed { .. } => ApiError::new(
            error.code(),
            "the directory is outside of the allowed import roots",
        ),
        SkillError::NotFound { .. } => {
            ApiError::new(error.code(), error.to_string()).hint("`GET /v1/skills` lists the skills")
        }
        SkillError::ChooseSourcePaths { .. } => ApiError::validation(error.to_string())
            .hint("repeat `source_path` for each; `preview=true` lists them"),
        SkillError::EntryFileNeeded { .. } => ApiError::validation(error.to_string())
            .hint("a directory is a skill because of this file; delete the skill instead"),
        SkillError::TooLarge { .. } => ApiError::new(error.code(), error.to_string())
            .hint("the limits are configured in `[skills.limits]`"),
        _ => ApiError::new(error.code(), error.to_string()),
    }
}

/// Has no error code of its own, only a status.
fn exists(message: String) -> ApiError {
    ApiError::validation(message).status(StatusCode::CONFLICT)
}

fn last(path: &Path) -> String {
    path.file_name()
        .unwrap_or(path.as_os_str())
        .to_string_lossy()
        .into_owned()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use boxwood_api::ErrorCode;

    use super::*;

    #[test]
    fn errors_do_not_contain_host_paths() {
        let path = || PathBuf::from("/srv/secret/skills/pdf");
        let errors = [
            SkillError::DirectoryExists { path: path() },
            SkillError::DirectoryMissing { path: path() },
            SkillError::NoEntryFile { path: path() },
            SkillError::ImportNotAllowed { path: path() },
            SkillError::DuplicateTarget { path: path() },
            SkillError::SeveralSkillsBelow {
                path: path(),
                candidates: vec![path()],
            },
            SkillError::Io {
                operation: "read",
                path: path().display().to_string(),
                source: std::io::Error::other("disk on fire"),
            },
        ];
        for error in errors {
            let detail = refusal(&error).detail();
            assert!(!detail.message.contains("/srv"), "{}", detail.message);
        }
    }

    #[test]
    fn error_codes_are_those_of_the_store() {
        let check = |error: SkillError, code: ErrorCode| {
            assert_eq!(refusal(&error).detail().code, code, "{error}");
        };
        let name = || "pdf".to_owned();
        check(SkillError::NotFound { name: name() }, ErrorCode::NotFound);
        check(
            SkillError::NameTaken { name: name() },
            ErrorCode::ValidationError,
        );
        check(SkillError::PathEscapes, ErrorCode::ValidationError);
        check(SkillError::NotManaged, ErrorCode::Forbidden);
    }
}
