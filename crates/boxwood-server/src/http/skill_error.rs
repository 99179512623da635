//! What the skill store says, as an answer of `/v1`.
//!
//! Comes in: a [`SkillError`]. Goes out: a status, a message and a next step. Never here: host paths;
//! the store names them, and only the log hears of them.

use std::path::Path;

use axum::http::StatusCode;
use boxwood_skills::SkillError;

use super::error::ApiError;

pub(crate) fn refusal(error: &SkillError) -> ApiError {
    match error {
        // The operation and the file are for the log.
        SkillError::Io { operation, .. } => ApiError::internal(
            &format!("the skill store could not {operation} a file"),
            error,
        ),
        SkillError::NameTaken { .. } => {
            exists(error.to_string()).hint("remove it first, or take another name")
        }
        SkillError::DirectoryExists { path } => exists(format!(
            "the store has a directory `{}` already",
            last(path)
        ))
        .hint("remove the skill that is in it, or use another filename or target_suffix"),
        SkillError::FileExists { .. } => exists(error.to_string()),
        SkillError::DuplicateTarget { path } => ApiError::validation(format!(
            "two of the selected skills would get the directory `{}`",
            last(path)
        )),
        SkillError::NoEntryFile { .. } => ApiError::validation("there is no SKILL.md in it"),
        SkillError::DirectoryMissing { .. } => ApiError::validation("the directory does not exist"),
        SkillError::SeveralSkillsBelow { .. } => {
            ApiError::validation("there are several skills in it")
        }
        SkillError::ImportNotAllowed { .. } => ApiError::new(
            error.code(),
            "the directory is outside the places skills may be imported from",
        ),
        SkillError::NotFound { .. } => {
            ApiError::new(error.code(), error.to_string()).hint("`GET /v1/skills` lists the skills")
        }
        SkillError::ChooseSourcePaths { .. } => ApiError::validation(error.to_string())
            .hint("repeat `source_path` for each; `preview=true` lists them"),
        SkillError::EntryFileNeeded { .. } => ApiError::validation(error.to_string())
            .hint("a skill is what has this file; delete the skill instead"),
        SkillError::TooLarge { .. } => ApiError::new(error.code(), error.to_string())
            .hint("the operator's bounds are in `[skills.limits]`"),
        _ => ApiError::new(error.code(), error.to_string()),
    }
}

/// There is no code for it; the status says it.
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
    fn nobody_learns_where_the_store_is() {
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
    fn codes_are_the_stores_own() {
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
