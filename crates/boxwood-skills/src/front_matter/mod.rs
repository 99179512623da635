//! Parses and rewrites `SKILL.md`: front matter and body.
//!
//! A rewrite changes only the requested fields and keeps the rest of the text.

mod rewrite;
mod yaml;

pub(crate) use rewrite::{Fields, rewrite};

use crate::SkillError;
use crate::python::{lines_with_ends, strip, universal_newlines};
use yaml::Mapping;
pub(crate) use yaml::Value;

/// Limits the work of the parser. Real front matter is much smaller.
const MAX_YAML_BYTES: usize = 64 << 10;

/// A parsed `SKILL.md`.
#[derive(Debug)]
pub(crate) struct Document {
    /// The YAML between the markers, if there are markers.
    yaml: Option<String>,
    mapping: Mapping,
    /// What follows the front matter, without leading newlines.
    pub(crate) body: String,
    pub(crate) byte_order_mark: bool,
}

impl Document {
    pub(crate) fn parse(content: &str) -> Result<Self, SkillError> {
        let content = universal_newlines(content);
        let Some((yaml, body)) = split(&content) else {
            return Ok(Self {
                yaml: None,
                mapping: Mapping::empty(),
                byte_order_mark: content.starts_with('\u{feff}'),
                body: content.into_owned(),
            });
        };
        Ok(Self {
            mapping: read_yaml(&yaml)?,
            yaml: Some(yaml),
            body,
            byte_order_mark: false,
        })
    }

    pub(crate) fn has_front_matter(&self) -> bool {
        self.yaml.is_some()
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &str> {
        let keys = self.mapping.entries.iter().map(|entry| &entry.key);
        keys.filter_map(Value::as_text)
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        self.mapping.get(key)
    }

    /// The trimmed value. `None` if it is absent or blank.
    pub(crate) fn text(&self, key: &str) -> Result<Option<String>, SkillError> {
        let text = match self.get(key) {
            None | Some(Value::Null) => return Ok(None),
            Some(value) => value
                .as_text()
                .ok_or_else(|| refused(format!("`{key}` is not a string")))?,
        };
        let text = strip(text);
        Ok((!text.is_empty()).then(|| text.to_owned()))
    }

    /// Returns false if the key exists and is not a mapping of strings to strings.
    pub(crate) fn is_string_map(&self, key: &str) -> bool {
        match self.get(key) {
            None => true,
            Some(Value::Map(entries)) => entries
                .iter()
                .all(|(name, value)| name.is_string() && value.is_string()),
            Some(_) => false,
        }
    }
}

/// The YAML and the body. `None` if there is no complete front matter.
fn split(content: &str) -> Option<(String, String)> {
    if !content.starts_with("---") {
        return None;
    }
    let lines = lines_with_ends(content);
    let (first, rest) = lines.split_first()?;
    if strip(first) != "---" {
        return None;
    }
    let end = rest.iter().position(|line| strip(line) == "---")?;
    // PyYAML treats these as line ends.
    let yaml = rest[..end]
        .concat()
        .replace(['\u{85}', '\u{2028}', '\u{2029}'], "\n");
    let body = rest[end + 1..].concat();
    Some((yaml, body.trim_start_matches('\n').to_owned()))
}

fn read_yaml(yaml: &str) -> Result<Mapping, SkillError> {
    if yaml.len() > MAX_YAML_BYTES {
        return Err(refused(format!(
            "front matter is longer than {MAX_YAML_BYTES} bytes"
        )));
    }
    // PyYAML refuses these characters first.
    if let Some(bad) = yaml
        .chars()
        .find(|&character| !is_yaml_printable(character))
    {
        return Err(refused(format!(
            "front matter contains the character U+{:04X}, which YAML does not allow",
            u32::from(bad)
        )));
    }
    // YAML 1.2 allows a tab here. YAML 1.1 parsers, including that of LangBot Box, do not.
    let tabbed = |line: &str| line.starts_with('\t') && !strip(line).is_empty();
    if yaml.lines().any(tabbed) {
        return Err(refused("front matter is indented with a tab; use spaces"));
    }
    Mapping::parse(yaml)
}

fn is_yaml_printable(character: char) -> bool {
    matches!(character,
        '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}'
        | '\u{10000}'..)
}

fn refused(reason: impl Into<String>) -> SkillError {
    SkillError::FrontMatter(reason.into())
}
