//! Checks a `SKILL.md` against the Agent Skills rules.
//!
//! Violations are only warnings, because LangBot Box accepts skills that break the rules.

use std::ops::RangeInclusive;

use boxwood_api::SkillWarning;
use unicode_normalization::UnicodeNormalization as _;

use crate::front_matter::{Document, Value};

const KNOWN: [&str; 7] = [
    "name",
    "description",
    "license",
    "compatibility",
    "metadata",
    "allowed-tools",
    // An extension of LangBot.
    "display_name",
];
const BODY_LINES: usize = 500;

pub(crate) fn warning(code: &str, message: impl Into<String>) -> SkillWarning {
    SkillWarning {
        code: code.to_owned(),
        message: message.into(),
    }
}

/// For a link or a special file that is not copied, or that boxes cannot use.
pub(crate) fn not_taken(path: &str) -> SkillWarning {
    let message = format!("`{path}` is not a file, a directory or a link inside the package");
    warning("not_taken", message)
}

pub(crate) fn check(document: &Document, directory: &str) -> Vec<SkillWarning> {
    let mut warnings = Vec::new();
    let mut warn = |code: &str, message: String| warnings.push(warning(code, message));
    if document.byte_order_mark {
        let message = "SKILL.md begins with a byte order mark, so its front matter is not read";
        warn("byte_order_mark", message.to_owned());
    } else if !document.has_front_matter() {
        warn(
            "front_matter_missing",
            "SKILL.md has no front matter".to_owned(),
        );
    }
    match document.text("name").ok().flatten() {
        None => warn("name_missing", "front matter has no `name`".to_owned()),
        Some(name) => check_name(&name, directory, &mut warn),
    }
    match document.text("description").ok().flatten() {
        None => warn(
            "description_missing",
            "front matter has no `description`".to_owned(),
        ),
        Some(text) => check_length("description", &text, 0..=1024, "at most 1024", &mut warn),
    }
    if let Some(text) = document.get("compatibility").and_then(Value::as_text) {
        check_length("compatibility", text, 1..=500, "1 to 500", &mut warn);
    }
    if !document.is_string_map("metadata") {
        warn(
            "metadata_shape",
            "`metadata` should map strings to strings".to_owned(),
        );
    }
    if document
        .get("allowed-tools")
        .is_some_and(|tools| !tools.is_string())
    {
        let message = "`allowed-tools` should be one string, separated by spaces";
        warn("allowed_tools_shape", message.to_owned());
    }
    for key in document.keys().filter(|key| !KNOWN.contains(key)) {
        warn(
            "unknown_field",
            format!("front matter has an unknown field `{key}`"),
        );
    }
    let lines = document.body.lines().count();
    if lines > BODY_LINES {
        warn(
            "body_length",
            format!("the body has {lines} lines; at most {BODY_LINES} are recommended"),
        );
    }
    warnings
}

fn check_length(
    field: &str,
    text: &str,
    portable: RangeInclusive<usize>,
    range: &str,
    warn: &mut impl FnMut(&str, String),
) {
    let length = text.chars().count();
    if !portable.contains(&length) {
        let message = format!("`{field}` has {length} characters; {range} are portable");
        warn(&format!("{field}_length"), message);
    }
}

fn check_name(name: &str, directory: &str, warn: &mut impl FnMut(&str, String)) {
    check_length("name", name, 0..=64, "1 to 64", warn);
    let normal: String = name.nfkc().collect();
    if !is_portable(&normal) {
        let rule = "use lower-case letters and digits, separated by single hyphens";
        warn(
            "name_characters",
            format!("name `{name}` is not portable: {rule}"),
        );
    }
    if normal != directory.nfkc().collect::<String>() {
        let message = format!("name `{name}` differs from its directory `{directory}`");
        warn("name_is_not_directory", message);
    }
}

fn is_portable(name: &str) -> bool {
    !name.starts_with('-')
        && !name.ends_with('-')
        && !name.contains("--")
        && name.to_lowercase() == name
        && name.chars().all(|c| c == '-' || c.is_alphanumeric())
}
