//! `SKILL.md`: front matter and body.
//!
//! Comes in: the text of a file. Goes out: the fields the store knows, the facts its rules ask
//! about, and, for a rewrite, the same text with only the asked-for fields changed. Never here:
//! files.

mod compose;
mod emit;
mod python_float;
mod rewrite;
mod scalar;
mod value;

pub(crate) use rewrite::{Fields, rewrite};

use crate::SkillError;
use crate::python_text::{lines_with_ends, strip, universal_newlines};
use compose::Composed;
use value::Value;

/// Front matter is a page of settings; more than this is an attack on the parser.
const MAX_YAML_BYTES: usize = 64 << 10;

/// A `SKILL.md`, read.
#[derive(Debug)]
pub(crate) struct Document {
    /// The YAML between the markers, where there are markers.
    yaml: Option<String>,
    composed: Composed,
    /// What follows the front matter, without leading newlines.
    pub(crate) body: String,
    pub(crate) byte_order_mark: bool,
}

/// The value of a key, as Python's `str()` shows it.
pub(crate) struct Shown {
    pub(crate) text: String,
    pub(crate) is_string: bool,
}

impl Document {
    pub(crate) fn parse(content: &str) -> Result<Self, SkillError> {
        let content = universal_newlines(content);
        let Some((yaml, body)) = split(&content) else {
            return Ok(Self {
                yaml: None,
                composed: Composed::empty(),
                byte_order_mark: content.starts_with('\u{feff}'),
                body: content.into_owned(),
            });
        };
        Ok(Self {
            composed: read_yaml(&yaml)?,
            yaml: Some(yaml),
            body,
            byte_order_mark: false,
        })
    }

    pub(crate) fn has_front_matter(&self) -> bool {
        self.yaml.is_some()
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = String> {
        self.composed
            .entries
            .iter()
            .filter_map(|entry| entry.key.python_str().ok())
    }

    /// A value that Python would count as true, with blanks at its ends removed; `None` for an
    /// absent, empty or blank one.
    pub(crate) fn text(&self, key: &str) -> Result<Option<String>, SkillError> {
        let Some(value) = self.composed.get(key) else {
            return Ok(None);
        };
        if !value.is_truthy() {
            return Ok(None);
        }
        let shown = value.python_str()?;
        let stripped = strip(&shown);
        Ok((!stripped.is_empty()).then(|| stripped.to_owned()))
    }

    pub(crate) fn shown(&self, key: &str) -> Option<Shown> {
        let value = self.composed.get(key)?;
        Some(Shown {
            text: value.python_str().ok()?,
            is_string: value.is_string(),
        })
    }

    /// Whether a key, where it is there at all, maps strings to strings.
    pub(crate) fn is_string_map(&self, key: &str) -> bool {
        match self.composed.get(key) {
            None => true,
            Some(Value::Map(entries)) => entries
                .iter()
                .all(|(name, value)| name.is_string() && value.is_string()),
            Some(_) => false,
        }
    }
}

/// The YAML and the body, or nothing where there is no complete front matter.
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
    // To the seed's YAML reader these are line ends like any other.
    let yaml = rest[..end]
        .concat()
        .replace(['\u{85}', '\u{2028}', '\u{2029}'], "\n");
    let body = rest[end + 1..].concat();
    Some((yaml, body.trim_start_matches('\n').to_owned()))
}

fn read_yaml(yaml: &str) -> Result<Composed, SkillError> {
    if yaml.len() > MAX_YAML_BYTES {
        return Err(refused(format!(
            "front matter is longer than {MAX_YAML_BYTES} bytes"
        )));
    }
    // The seed's YAML reader refuses these before it looks at anything else.
    if let Some(bad) = yaml
        .chars()
        .find(|&character| !is_yaml_printable(character))
    {
        return Err(refused(format!(
            "front matter contains the character U+{:04X}",
            u32::from(bad)
        )));
    }
    // Newer YAML lets a tab stand there; the seed, and everybody who reads YAML 1.1, does not.
    let tabbed = |line: &str| line.starts_with('\t') && !strip(line).is_empty();
    if yaml.lines().any(tabbed) {
        return Err(refused("front matter is indented with a tab"));
    }
    compose::compose(yaml)
}

fn is_yaml_printable(character: char) -> bool {
    matches!(character,
        '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}'
        | '\u{10000}'..)
}

fn refused(reason: impl Into<String>) -> SkillError {
    SkillError::FrontMatter {
        reason: reason.into(),
    }
}
