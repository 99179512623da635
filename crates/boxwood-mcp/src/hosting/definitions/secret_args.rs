//! Secrets in the arguments of a server.
//!
//! `${input:ID}` in an argument refers to the value `input:ID` in `env`. The value is inserted only for the
//! process, and replaced by its placeholder again in stored run records.

use std::collections::BTreeMap;

use boxwood_api::McpServerSpec;

use super::import::{Segment, Variable, segments};

const PREFIX: &str = "input:";

/// Name in `env`. It is never passed to a process as a variable.
pub(crate) fn name_of(id: &str) -> String {
    format!("{PREFIX}{id}")
}

pub(crate) fn is_name(name: &str) -> bool {
    name.starts_with(PREFIX)
}

/// The definition with all secrets inserted into its arguments.
pub(crate) fn filled(spec: &McpServerSpec) -> McpServerSpec {
    let fill = |argument: &String| fill(argument, &spec.env);
    McpServerSpec {
        args: spec.args.iter().map(fill).collect(),
        ..spec.clone()
    }
}

/// Placeholders without a value stay as they are.
pub(crate) fn fill(text: &str, variables: &BTreeMap<String, String>) -> String {
    parts(text, variables).collect()
}

/// Length of the text after insertion.
pub(crate) fn filled_bytes(text: &str, variables: &BTreeMap<String, String>) -> usize {
    parts(text, variables).map(str::len).sum()
}

fn parts<'a>(
    text: &'a str,
    variables: &'a BTreeMap<String, String>,
) -> impl Iterator<Item = &'a str> {
    segments(text).map(|segment| match segment {
        Segment::Text(text) => text,
        Segment::Variable { whole, variable } => match variable {
            Variable::Input { id } => variables.get(&name_of(id)).map_or(whole, String::as_str),
            _ => whole,
        },
    })
}

/// Replaces secret values by their placeholders.
pub(crate) fn with_placeholders(text: String, variables: &BTreeMap<String, String>) -> String {
    let mut secrets: Vec<_> = variables
        .iter()
        .filter(|(name, value)| is_name(name) && !value.is_empty())
        .collect();
    // One value may contain another, so the longest is replaced first.
    secrets.sort_by_key(|(_, value)| std::cmp::Reverse(value.len()));
    let mut output = String::new();
    let mut rest = text.as_str();
    while let Some(first) = rest.chars().next() {
        let found = secrets
            .iter()
            .find_map(|(name, value)| Some((name, rest.strip_prefix(value.as_str())?)));
        if let Some((name, after)) = found {
            output.extend(["${", name, "}"]);
            rest = after;
        } else {
            output.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    // A name such as `a}b` cannot be written as a placeholder. The text is then stored with the value.
    if fill(&output, variables) == text {
        output
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables() -> BTreeMap<String, String> {
        let variables = [
            ("input:key", "hunter2"),
            ("input:longer", "hunter2-long"),
            ("input:short", "u"),
            ("input:none", ""),
            ("key", "mine"),
        ];
        variables
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into()
    }

    #[test]
    fn only_placeholders_with_a_value_are_filled() {
        let check = |text, expected| assert_eq!(fill(text, &variables()), expected);
        check("--key=${input:key}", "--key=hunter2");
        check("${input:key}:${input:longer}", "hunter2:hunter2-long");
        check("${input:none}", "");
        check(
            "${input:other} ${key} ${env:key} $key",
            "${input:other} ${key} ${env:key} $key",
        );
    }

    #[test]
    fn stored_text_has_placeholders_and_can_be_filled_again() {
        for text in [
            "--key=hunter2",
            "hunter2-long hunter2-longer hunter2",
            "/workspace/ü",
            "${input:other}",
            "",
        ] {
            let stored = with_placeholders(text.to_owned(), &variables());
            assert!(!stored.contains("hunter2"), "{stored}");
            assert_eq!(fill(&stored, &variables()), text);
        }
        let odd = [("input:a}b".to_owned(), "hunter2".to_owned())].into();
        assert_eq!(with_placeholders("hunter2".to_owned(), &odd), "hunter2");
    }
}
