//! Changing three fields and nothing else.
//!
//! The YAML is edited as text: the lines of a changed field are replaced, everything else stays
//! as its author wrote it, comments and order included. The result is read again and compared;
//! where an edit did not do what it should (anchors, odd layouts), the mapping is written anew
//! from its values, and compared again.

use std::fmt::Write as _;

use super::compose::{Composed, Shape, is_key};
use super::{Document, emit, read_yaml, refused};
use crate::SkillError;
use crate::python_text::strip;

const KNOWN: [&str; 3] = ["name", "display_name", "description"];

/// What the known fields shall be: `None` keeps what is there, blank removes it.
#[derive(Debug, Default)]
pub(crate) struct Fields<'a> {
    pub(crate) name: Option<&'a str>,
    pub(crate) display_name: Option<&'a str>,
    pub(crate) description: Option<&'a str>,
}

impl Fields<'_> {
    fn wanted(&self) -> [(&'static str, Option<&str>); 3] {
        [
            (KNOWN[0], self.name),
            (KNOWN[1], self.display_name),
            (KNOWN[2], self.description),
        ]
    }
}

/// The text of a `SKILL.md` with these fields and this body.
pub(crate) fn rewrite(
    old: &Document,
    fields: &Fields<'_>,
    body: &str,
) -> Result<String, SkillError> {
    let yaml = new_yaml(old, fields)?;
    let yaml = yaml.trim_end_matches('\n');
    if strip(yaml).is_empty() {
        return Ok(body.to_owned());
    }
    Ok(format!("---\n{yaml}\n---\n\n{body}"))
}

fn new_yaml(old: &Document, fields: &Fields<'_>) -> Result<String, SkillError> {
    let source = old.yaml.as_deref().unwrap_or("");
    if let Some(edited) = edited(source, &old.composed, fields)
        && says(&edited, &old.composed, fields)
    {
        return Ok(edited);
    }
    let anew = written_anew(&old.composed, fields);
    if says(&anew, &old.composed, fields) {
        Ok(anew)
    } else {
        Err(refused("front matter could not be rewritten without loss"))
    }
}

/// The old lines with the changed fields replaced; `None` where the layout does not allow it.
fn edited(source: &str, old: &Composed, fields: &Fields<'_>) -> Option<String> {
    let indent = match old.shape {
        Shape::Empty => "",
        Shape::BlockMapping => {
            let first = old.entries.first()?;
            indent_of(source, first.key_start)?
        }
        Shape::FlowMapping | Shape::Other => return None,
    };
    // (place, end of what is replaced, new text), in the order of the text.
    let mut edits: Vec<(usize, usize, String)> = Vec::new();
    // New fields come after the known ones that stand before them.
    let mut after = match old.entries.first() {
        Some(entry) => line_start(source, entry.key_start),
        None => source.len(),
    };
    for (key, wanted) in fields.wanted() {
        let mut places = old.entries.iter().filter(|entry| is_key(&entry.key, key));
        let place = places.next();
        if places.next().is_some() {
            return None;
        }
        let line = |value: &str| format!("{indent}{key}: {}", emit::string(value));
        match (place, wanted) {
            (Some(entry), wanted) => {
                let start = line_start(source, entry.key_start);
                indent_of(source, entry.key_start)?;
                let (end, comment) = value_end(source, entry.key_start, entry.value_end);
                if let Some(wanted) = wanted {
                    let blank = strip(wanted).is_empty();
                    let new = if blank {
                        String::new()
                    } else {
                        format!("{}{comment}\n", line(wanted))
                    };
                    edits.push((start, end, new));
                }
                after = after.max(end);
            }
            (None, Some(wanted)) if !strip(wanted).is_empty() => {
                edits.push((after, after, format!("{}\n", line(wanted))));
            }
            (None, _) => {}
        }
    }
    edits.sort_by_key(|(start, end, _)| (*start, *end));
    let mut text = String::with_capacity(source.len() + 128);
    let mut at = 0;
    for (start, end, new) in edits {
        text.push_str(source.get(at..start)?);
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        text.push_str(&new);
        at = end;
    }
    text.push_str(source.get(at..)?);
    Some(text)
}

fn line_start(source: &str, at: usize) -> usize {
    source[..at].rfind('\n').map_or(0, |newline| newline + 1)
}

/// The blanks before a key, or `None` where something else stands before it on its line.
fn indent_of(source: &str, key_start: usize) -> Option<&str> {
    let before = &source[line_start(source, key_start)..key_start];
    before.chars().all(|c| c == ' ').then_some(before)
}

/// Where the lines of a value end, and the comment behind a value of one line.
fn value_end(source: &str, key_start: usize, value_end: usize) -> (usize, &str) {
    let value = &source[key_start..value_end];
    // A block scalar's span runs over the blank lines behind it; those may stay.
    if value.ends_with('\n') {
        let kept = value.trim_end_matches('\n').len() + 1;
        return (key_start + kept, "");
    }
    let rest = &source[value_end..];
    let line = rest.find('\n').unwrap_or(rest.len());
    let end = value_end + (line + 1).min(rest.len());
    let behind = &rest[..line];
    let comment = if behind.trim_start().starts_with('#') && !value.contains('\n') {
        behind.trim_end()
    } else {
        ""
    };
    (end, comment)
}

fn written_anew(old: &Composed, fields: &Fields<'_>) -> String {
    let mut text = String::new();
    for (key, wanted) in fields.wanted() {
        match (wanted, old.get(key)) {
            (Some(wanted), _) if !strip(wanted).is_empty() => {
                let _ = writeln!(text, "{key}: {}", emit::string(wanted));
            }
            (None, Some(value)) => {
                let _ = write!(text, "{key}: ");
                emit::flow(value, &mut text);
                text.push('\n');
            }
            _ => {}
        }
    }
    for entry in &old.entries {
        if !KNOWN.iter().any(|key| is_key(&entry.key, key)) {
            emit::flow(&entry.key, &mut text);
            text.push_str(": ");
            emit::flow(&entry.value, &mut text);
            text.push('\n');
        }
    }
    text
}

/// Whether a new text means what it should and has kept the rest.
fn says(yaml: &str, old: &Composed, fields: &Fields<'_>) -> bool {
    let Ok(new) = read_yaml(yaml) else {
        return false;
    };
    // The text must also survive being put between the markers.
    if yaml.lines().any(|line| strip(line) == "---") {
        return false;
    }
    let known = fields.wanted().iter().all(|(key, wanted)| match wanted {
        None => new.get(key) == old.get(key),
        Some(wanted) if strip(wanted).is_empty() => own(&new, key).is_none(),
        Some(wanted) => new.get(key).is_some_and(|value| {
            value.is_string() && value.python_str().is_ok_and(|s| s == *wanted)
        }),
    });
    let rest = |composed: &Composed| -> Vec<_> {
        let unknown = composed
            .entries
            .iter()
            .filter(|entry| !KNOWN.iter().any(|key| is_key(&entry.key, key)));
        unknown
            .map(|entry| (entry.key.clone(), entry.value.clone()))
            .collect()
    };
    known && rest(&new) == rest(old)
}

fn own<'a>(composed: &'a Composed, key: &str) -> Option<&'a super::compose::Entry> {
    composed
        .entries
        .iter()
        .find(|entry| is_key(&entry.key, key))
}
