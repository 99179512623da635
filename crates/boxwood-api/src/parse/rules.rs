//! Errors of single fields, and validation rules that several requests share.
//!
//! These rules apply to every caller. Profiles and policy are checked later.

use std::collections::BTreeMap;
use std::fmt;

use super::shown;

/// Maximum path length (`PATH_MAX` without the final NUL).
pub(crate) const MAX_PATH_BYTES: usize = 4095;

/// Maximum length of one argument or environment entry (`MAX_ARG_STRLEN` without the final NUL).
pub(crate) const MAX_STRING_BYTES: usize = 128 * 1024 - 1;

/// An invalid field of a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct FieldError {
    field: String,
    message: String,
}

impl FieldError {
    /// `rule` continues the sentence that starts with the field name.
    pub fn new(field: impl Into<String>, rule: impl fmt::Display) -> Self {
        let field = field.into();
        let message = format!("{field} {rule}");
        Self { field, message }
    }

    pub(crate) fn unknown(field: &str, known: &[&str]) -> Self {
        let known = known.join(", ");
        Self {
            field: field.to_owned(),
            message: format!("unknown field `{field}`, expected one of {known}"),
        }
    }

    /// Prefixes the error with the list that contains the element.
    #[must_use]
    pub(crate) fn within(self, list: &str, index: usize) -> Self {
        Self {
            field: format!("{list}[{index}].{}", self.field),
            message: format!("{list}[{index}]: {}", self.message),
        }
    }

    pub fn field(&self) -> &str {
        &self.field
    }
}

pub(crate) fn at_most_bytes(field: &str, text: &str, max: usize) -> Result<(), FieldError> {
    if text.len() > max {
        return Err(FieldError::new(
            field,
            format!("must be at most {max} bytes"),
        ));
    }
    Ok(())
}

/// The kernel would truncate the string at a NUL.
pub(crate) fn without_nul(field: &str, text: &str) -> Result<(), FieldError> {
    if text.contains('\0') {
        return Err(FieldError::new(field, "must not contain NUL bytes"));
    }
    Ok(())
}

/// A path inside the box. Surrounding white space is not part of it.
pub(crate) fn box_path(field: &str, path: &str) -> Result<(), FieldError> {
    check_box_path(field, path.trim())
}

/// A path on the host. Windows paths count as absolute here and fail later, when they are opened.
pub(crate) fn host_path(field: &str, path: &str) -> Result<(), FieldError> {
    let path = path.trim();
    without_nul(field, path)?;
    if !path.starts_with('/') && !is_windows_absolute(path) {
        return Err(FieldError::new(field, "must be an absolute host path"));
    }
    at_most_bytes(field, path, MAX_PATH_BYTES)
}

fn is_windows_absolute(path: &str) -> bool {
    let bytes = path.as_bytes();
    let drive = bytes.len() >= 3
        && bytes[0].is_ascii_alphabetic()
        && bytes[1] == b':'
        && matches!(bytes[2], b'\\' | b'/');
    drive || path.starts_with(r"\\")
}

/// Names and values must be valid for a process environment. Errors never contain values, which may
/// be secrets.
pub(crate) fn environment(env: &BTreeMap<String, String>) -> Result<(), FieldError> {
    for (name, value) in env {
        let rule = if name.is_empty() {
            "must not contain an empty name".to_owned()
        } else if name.contains(['\0', '=']) {
            format!("name {:?} must not contain `=` or NUL bytes", shown(name))
        } else if value.contains('\0') {
            format!("value of {:?} must not contain NUL bytes", shown(name))
        } else if name.len() + 1 + value.len() > MAX_STRING_BYTES {
            let shown = shown(name);
            format!("entry {shown:?} must be at most {MAX_STRING_BYTES} bytes with its name")
        } else {
            continue;
        };
        return Err(FieldError::new("env", rule));
    }
    Ok(())
}

/// Program arguments that the kernel accepts.
pub fn check_arguments(field: &str, arguments: &[String]) -> Result<(), FieldError> {
    for (index, argument) in arguments.iter().enumerate() {
        let field = format!("{field}[{index}]");
        without_nul(&field, argument)?;
        at_most_bytes(&field, argument, MAX_STRING_BYTES)?;
    }
    Ok(())
}

/// A path of a file route: absolute and acceptable to the kernel. Not trimmed, because file names
/// may start or end with white space.
pub fn check_box_path(field: &str, path: &str) -> Result<(), FieldError> {
    without_nul(field, path)?;
    if !path.starts_with('/') {
        return Err(FieldError::new(
            field,
            "must be an absolute path inside the sandbox",
        ));
    }
    at_most_bytes(field, path, MAX_PATH_BYTES)
}
