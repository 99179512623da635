//! Changes single fields of a front matter.
//!
//! The YAML is edited as text: the lines of a changed field are replaced, and everything else is kept, including
//! comments and order. The result is parsed and compared; a layout that cannot be edited is refused.

use super::yaml::{Entry, Mapping, is_string};
use super::{Document, is_yaml_printable, read_yaml};
use crate::SkillError;
use crate::python::strip;

const KNOWN: [&str; 3] = ["name", "display_name", "description"];

/// New values of the known fields. `None` keeps a field, blank removes it.
#[derive(Debug, Default)]
pub(crate) struct Fields<'a> {
    pub(crate) name: Option<&'a str>,
    pub(crate) display_name: Option<&'a str>,
    pub(crate) description: Option<&'a str>,
}

impl Fields<'_> {
    fn values(&self) -> [(&'static str, Option<&str>); 3] {
        [
            (KNOWN[0], self.name),
            (KNOWN[1], self.display_name),
            (KNOWN[2], self.description),
        ]
    }
}

/// Returns a `SKILL.md` with these fields and this body.
pub(crate) fn rewrite(
    old: &Document,
    fields: &Fields<'_>,
    body: &str,
) -> Result<String, SkillError> {
    let source = old.yaml.as_deref().unwrap_or_default();
    let yaml = edited(source, &old.mapping, fields)
        .filter(|edited| keeps_the_rest(edited, &old.mapping, fields))
        .ok_or(SkillError::FrontMatterLayout)?;
    let yaml = yaml.trim_end_matches('\n');
    if strip(yaml).is_empty() {
        return Ok(body.to_owned());
    }
    Ok(format!("---\n{yaml}\n---\n\n{body}"))
}

/// Replaces the changed fields in the text. `None` if the layout does not allow it.
fn edited(source: &str, old: &Mapping, fields: &Fields<'_>) -> Option<String> {
    if !old.is_editable {
        return None;
    }
    let indent = match old.entries.first() {
        Some(first) => indent_of(source, first.key_start)?,
        None => "",
    };
    // (start, end of the replaced text, new text), in text order.
    let mut edits: Vec<(usize, usize, String)> = Vec::new();
    // New fields follow the known fields that precede them in order.
    let mut after = match old.entries.first() {
        Some(entry) => line_start(source, entry.key_start),
        None => source.len(),
    };
    for (key, value) in fields.values() {
        let mut entries = old.entries.iter().filter(|entry| entry.is(key));
        let entry = entries.next();
        if entries.next().is_some() {
            return None;
        }
        let (start, end, comment) = match entry {
            None => (after, after, ""),
            Some(entry) => {
                indent_of(source, entry.key_start)?;
                let (end, comment) = value_end(source, entry.key_start, entry.value_end);
                (line_start(source, entry.key_start), end, comment)
            }
        };
        after = after.max(end);
        if let Some(value) = value {
            let new = match strip(value) {
                "" => String::new(),
                _ => format!("{indent}{key}: {}{comment}\n", quoted(value)),
            };
            edits.push((start, end, new));
        }
    }
    edits.sort_by_key(|(start, end, _)| (*start, *end));
    let mut text = source.to_owned();
    // From the end, so that the offsets of the others stay valid.
    for (start, end, new) in edits.into_iter().rev() {
        text.get(start..end)?;
        text.replace_range(start..end, &new);
    }
    Some(text)
}

fn line_start(source: &str, at: usize) -> usize {
    source[..at].rfind('\n').map_or(0, |newline| newline + 1)
}

/// The indentation of a key. `None` if other text precedes it on its line.
fn indent_of(source: &str, key_start: usize) -> Option<&str> {
    let before = &source[line_start(source, key_start)..key_start];
    before.chars().all(|c| c == ' ').then_some(before)
}

/// The end of the lines of a value, and the comment after a one-line value.
fn value_end(source: &str, key_start: usize, value_end: usize) -> (usize, &str) {
    let value = &source[key_start..value_end];
    // The span of a block scalar includes the following blank lines, which are kept.
    if value.ends_with('\n') {
        let length = value.trim_end_matches('\n').len() + 1;
        return (key_start + length, "");
    }
    let rest = &source[value_end..];
    let line = rest.find('\n').unwrap_or(rest.len());
    let end = value_end + (line + 1).min(rest.len());
    let trailing = &rest[..line];
    let comment = if trailing.trim_start().starts_with('#') && !value.contains('\n') {
        trailing.trim_end()
    } else {
        ""
    };
    (end, comment)
}

/// Checks that the new text has the new values and keeps all others.
fn keeps_the_rest(yaml: &str, old: &Mapping, fields: &Fields<'_>) -> bool {
    let Ok(new) = read_yaml(yaml) else {
        return false;
    };
    // The text must also parse between the markers.
    if yaml.lines().any(|line| strip(line) == "---") {
        return false;
    }
    let known = fields
        .values()
        .iter()
        .all(|(key, expected)| match expected {
            None => new.get(key) == old.get(key),
            Some(expected) if strip(expected).is_empty() => new.get(key).is_none(),
            Some(expected) => new
                .get(key)
                .is_some_and(|value| value.is_string() && value.as_text() == Some(expected)),
        });
    let unknown = |entry: &&Entry| !KNOWN.iter().any(|key| entry.is(key));
    let new = new.entries.iter().filter(unknown);
    let old = old.entries.iter().filter(unknown);
    known && new.map(Entry::pair).eq(old.map(Entry::pair))
}

/// Writes a string on one line: plain if YAML 1.1 and 1.2 parsers read it alike, else in single quotes, else in double
/// quotes with escapes.
fn quoted(text: &str) -> String {
    if is_plain(text) {
        text.to_owned()
    } else if text.chars().all(fits_single_quotes) && !text.is_empty() {
        format!("'{}'", text.replace('\'', "''"))
    } else {
        double_quoted(text)
    }
}

fn is_plain(text: &str) -> bool {
    text.starts_with(char::is_alphanumeric)
        && text
            .chars()
            .all(|c| c == ' ' || c.is_ascii_graphic() || c.is_alphanumeric())
        && !text.ends_with([' ', ':'])
        && !text.contains(": ")
        && !text.contains(" #")
        && is_string(text)
}

fn fits_single_quotes(character: char) -> bool {
    is_yaml_printable(character)
        && !matches!(
            character,
            '\t' | '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}' | '\u{feff}'
        )
}

fn double_quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for character in text.chars() {
        match character {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            '\r' => quoted.push_str("\\r"),
            '\t' => quoted.push_str("\\t"),
            _ if fits_single_quotes(character) => quoted.push(character),
            _ => {
                let escape = format!("\\U{:08X}", u32::from(character));
                quoted.push_str(&escape);
            }
        }
    }
    quoted.push('"');
    quoted
}
