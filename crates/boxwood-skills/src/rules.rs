//! Checks a `SKILL.md` against the Agent Skills rules.
//!
//! Violations are only warnings, because LangBot Box accepts skills that break the rules.

use unicode_normalization::UnicodeNormalization as _;

use crate::Warning;
use crate::front_matter::{Document, Value};

const KNOWN: [&str; 7] = [
    "name",
    "description",
    "license",
    "compatibility",
    "metadata",
    "allowed-tools",
    // Extensions of LangBot.
    "display_name",
];
const BODY_LINES: usize = 500;

pub(crate) fn check(document: &Document, directory: &str) -> Vec<Warning> {
    let mut warnings = Vec::new();
    if document.byte_order_mark {
        warnings.push(Warning::ByteOrderMark);
    } else if !document.has_front_matter() {
        warnings.push(Warning::FrontMatterMissing);
    }
    check_name(document, directory, &mut warnings);
    match document.text("description").ok().flatten() {
        None => warnings.push(Warning::DescriptionMissing),
        Some(description) => {
            let length = description.chars().count();
            if length > 1024 {
                warnings.push(Warning::DescriptionLength { length });
            }
        }
    }
    if let Some(text) = document.get("compatibility").and_then(Value::as_text) {
        let length = text.chars().count();
        if !(1..=500).contains(&length) {
            warnings.push(Warning::CompatibilityLength { length });
        }
    }
    if !document.is_string_map("metadata") {
        warnings.push(Warning::MetadataShape);
    }
    if document
        .get("allowed-tools")
        .is_some_and(|tools| !tools.is_string())
    {
        warnings.push(Warning::AllowedToolsShape);
    }
    for key in document.keys() {
        if !KNOWN.contains(&key) {
            let key = key.to_owned();
            warnings.push(Warning::UnknownField { key });
        }
    }
    let lines = document.body.lines().count();
    if lines > BODY_LINES {
        warnings.push(Warning::BodyLength { lines });
    }
    warnings
}

fn check_name(document: &Document, directory: &str, warnings: &mut Vec<Warning>) {
    let Some(name) = document.text("name").ok().flatten() else {
        warnings.push(Warning::NameMissing);
        return;
    };
    let length = name.chars().count();
    if length > 64 {
        warnings.push(Warning::NameLength { length });
    }
    let normal: String = name.nfkc().collect();
    if !is_portable(&normal) {
        warnings.push(Warning::NameCharacters { name: name.clone() });
    }
    if normal != directory.nfkc().collect::<String>() {
        warnings.push(Warning::NameIsNotDirectory {
            name,
            directory: directory.to_owned(),
        });
    }
}

fn is_portable(name: &str) -> bool {
    !name.starts_with('-')
        && !name.ends_with('-')
        && !name.contains("--")
        && name.to_lowercase() == name
        && name.chars().all(|c| c == '-' || c.is_alphanumeric())
}
