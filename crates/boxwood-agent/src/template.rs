//! Session ids from a template such as `{launcher_type}_{launcher_id}` and a query.

use std::borrow::Cow;
use std::fmt;
use std::fmt::Write as _;

use boxwood_api::{AgentQuery, IdError, SessionId};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use crate::templates::Templates;

/// The default template: one box per conversation.
pub const DEFAULT_TEMPLATE: &str = "{launcher_type}_{launcher_id}";

/// Stands in for a pipeline's template that cannot be read. Narrower than what any broken template can
/// have meant to share between people.
pub const NARROW_TEMPLATE: &str = "{launcher_type}_{launcher_id}_{sender_id}_{conversation_id}";

/// What an unknown name becomes.
const UNKNOWN: &str = "unknown";

pub(crate) const LONGEST_TEMPLATE: usize = 4_096;

/// The longest id, in bytes, and what of it is left when a mark is put behind it.
const LONGEST_ID: usize = 256;
const MARK_DIGITS: usize = 16;

/// A template that has been read. Same words as Python's `str.format_map`, without conversions, format
/// specifications, attributes and positions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    pieces: Vec<Piece>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Piece {
    Text(String),
    Name(String),
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    #[error("a session-id template must not be empty; the usual one is `{DEFAULT_TEMPLATE}`")]
    Empty,
    #[error("a session-id template must be at most {LONGEST_TEMPLATE} bytes, not {len}")]
    TooLong { len: usize },
    #[error(
        "session-id template: `{{` at character {at} is never closed; write `{{name}}`, or `{{{{` for a brace"
    )]
    Unclosed { at: usize },
    #[error(
        "session-id template: `}}` at character {at} was never opened; write `}}}}` for a brace"
    )]
    Unopened { at: usize },
    #[error(
        "session-id template: `{{}}` at character {at} has no name; write one, such as `{{launcher_id}}`"
    )]
    NoName { at: usize },
    #[error(
        "session-id template: `{{{field}}}` at character {at} counts positions; write a name, such as `{{launcher_id}}`"
    )]
    Position { at: usize, field: String },
    #[error(
        "session-id template: `{{{field}}}` at character {at} has a conversion, a format, an attribute or an index; \
         write `{{name}}` alone"
    )]
    Decorated { at: usize, field: String },
    #[error(
        "session-id template: `{{{field}}}` at character {at} is not a name; names have letters, digits, `_` and `-`"
    )]
    NotAName { at: usize, field: String },
    #[error("a session-id template gave an id that is not legal")]
    Illegal(#[from] IdError),
}

/// Which template made an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trust {
    /// What the query says of itself wins over its variables, so that no variable leads out of the
    /// scope that the operator forced.
    Forced,
    /// Variables win, as the platform's pipelines expect.
    Chosen,
}

/// The box that a conversation gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    pub session_id: SessionId,
    /// Why the pipeline's own template was not used. The id is then made by [`NARROW_TEMPLATE`].
    pub problem: Option<TemplateError>,
}

/// As it would be written.
impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for piece in &self.pieces {
            match piece {
                Piece::Text(text) => {
                    f.write_str(&text.replace('{', "{{").replace('}', "}}"))?;
                }
                Piece::Name(name) => write!(f, "{{{name}}}")?,
            }
        }
        Ok(())
    }
}

impl Template {
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(TemplateError::Empty);
        }
        if text.len() > LONGEST_TEMPLATE {
            return Err(TemplateError::TooLong { len: text.len() });
        }
        let mut pieces = Vec::new();
        let mut literal = String::new();
        let mut rest = text.chars().enumerate().peekable();
        while let Some((at, character)) = rest.next() {
            match character {
                '{' | '}' if rest.next_if(|(_, next)| *next == character).is_some() => {
                    literal.push(character);
                }
                '{' => {
                    if !literal.is_empty() {
                        pieces.push(Piece::Text(std::mem::take(&mut literal)));
                    }
                    pieces.push(Piece::Name(field(at, &mut rest)?));
                }
                '}' => return Err(TemplateError::Unopened { at }),
                other => literal.push(other),
            }
        }
        if !literal.is_empty() {
            pieces.push(Piece::Text(literal));
        }
        Ok(Self { pieces })
    }

    /// The id for a query. Every template has one for every query: what cannot stand in an id is
    /// replaced, and the id marked so that two different texts never become the same box.
    pub fn render(&self, query: &AgentQuery) -> Result<SessionId, TemplateError> {
        self.render_as(query, Trust::Chosen)
    }

    fn render_as(&self, query: &AgentQuery, trust: Trust) -> Result<SessionId, TemplateError> {
        let mut text = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(literal) => text.push_str(literal),
                Piece::Name(name) => text.push_str(&value(name, query, trust)),
            }
        }
        Ok(legal(&text)?)
    }
}

/// The template in force: the forced one, or the pipeline's, or the usual one.
pub fn scope(forced: Option<&Template>, query: &AgentQuery) -> Result<Scope, TemplateError> {
    scope_of(forced, query, &Templates::default())
}

pub(crate) fn scope_of(
    forced: Option<&Template>,
    query: &AgentQuery,
    templates: &Templates,
) -> Result<Scope, TemplateError> {
    if let Some(template) = forced {
        return Ok(Scope {
            session_id: template.render_as(query, Trust::Forced)?,
            problem: None,
        });
    }
    let (template, problem) = match chosen(query) {
        "" => (templates.parse(DEFAULT_TEMPLATE)?, None),
        text => match templates.parse(text) {
            Ok(template) => (template, None),
            Err(problem) => (templates.parse(NARROW_TEMPLATE)?, Some(problem)),
        },
    };
    Ok(Scope {
        session_id: template.render(query)?,
        problem,
    })
}

/// What the pipeline says, empty where it says nothing.
pub(crate) fn chosen(query: &AgentQuery) -> &str {
    let template = query.pipeline.box_session_id_template.as_deref();
    template.map_or("", str::trim)
}

/// The name behind an opening brace.
fn field(
    at: usize,
    rest: &mut impl Iterator<Item = (usize, char)>,
) -> Result<String, TemplateError> {
    let mut field = String::new();
    loop {
        match rest.next() {
            None | Some((_, '{')) => return Err(TemplateError::Unclosed { at }),
            Some((_, '}')) => break,
            Some((_, character)) => field.push(character),
        }
    }
    let Some(first) = field.chars().next() else {
        return Err(TemplateError::NoName { at });
    };
    if field.contains(['!', ':', '.', '[', ']']) {
        return Err(TemplateError::Decorated { at, field });
    }
    if field.chars().all(|character| character.is_ascii_digit()) {
        return Err(TemplateError::Position { at, field });
    }
    let named = |character: char| character.is_alphanumeric() || matches!(character, '_' | '-');
    if first == '-' || !field.chars().all(named) {
        return Err(TemplateError::NotAName { at, field });
    }
    Ok(field)
}

/// The value of a variable. A null variable counts as missing: the text `None` would be one box for all users without a
/// value.
fn value<'a>(name: &str, query: &'a AgentQuery, trust: Trust) -> Cow<'a, str> {
    // A query variable of that name cannot replace the shared box.
    if name == "global" {
        return Cow::Borrowed("global");
    }
    let variable = || query.variables.get(name).and_then(text);
    let own = || own(name, query);
    let known = match trust {
        Trust::Forced => own().or_else(variable),
        Trust::Chosen => variable().or_else(own),
    };
    known
        .or_else(|| fallback(name, query, trust))
        .unwrap_or(Cow::Borrowed(UNKNOWN))
}

/// What the query says of itself.
fn own<'a>(name: &str, query: &'a AgentQuery) -> Option<Cow<'a, str>> {
    let given = match name {
        "query_id" => query.query_id.as_ref().and_then(text),
        "launcher_type" => query.launcher_type.as_deref().map(Cow::Borrowed),
        "launcher_id" => query.launcher_id.as_ref().and_then(text),
        "sender_id" => query.sender_id.as_ref().and_then(text),
        _ => None,
    };
    given.filter(|text| !text.is_empty())
}

/// What stands in for a name that neither the query nor its variables know.
fn fallback<'a>(name: &str, query: &'a AgentQuery, trust: Trust) -> Option<Cow<'a, str>> {
    match name {
        "launcher_type" => Some(Cow::Borrowed("query")),
        "launcher_id" => Some(value("query_id", query, trust)),
        "sender_id" => Some(value("launcher_id", query, trust)),
        _ => None,
    }
}

/// As Python's `str` writes it, where JSON and Python differ in one word.
fn text(value: &Value) -> Option<Cow<'_, str>> {
    Some(match value {
        Value::Null => return None,
        Value::String(text) => Cow::Borrowed(text),
        Value::Bool(true) => Cow::Borrowed("True"),
        Value::Bool(false) => Cow::Borrowed("False"),
        other => Cow::Owned(other.to_string()),
    })
}

/// Makes an id of any text. A text that had to be changed gets a mark of its whole self: without it
/// two conversations whose names differ in what was lost would meet in one box.
fn legal(text: &str) -> Result<SessionId, IdError> {
    if let Ok(id) = SessionId::new(text)
        && id.as_str() == text
    {
        return Ok(id);
    }
    let mark = mark(text);
    let mut kept = String::new();
    for character in text.trim().chars() {
        let character = if character.is_control() {
            '_'
        } else {
            character
        };
        if kept.len() + character.len_utf8() > LONGEST_ID - MARK_DIGITS - 1 {
            break;
        }
        kept.push(character);
    }
    if kept.is_empty() {
        kept.push_str(UNKNOWN);
    }
    SessionId::new(&format!("{kept}-{mark}"))
}

pub(crate) fn mark(text: &str) -> String {
    let mut digits = String::with_capacity(MARK_DIGITS);
    for byte in &Sha256::digest(text.as_bytes())[..MARK_DIGITS / 2] {
        // Writing to a text cannot fail.
        let _ = write!(digits, "{byte:02x}");
    }
    digits
}
