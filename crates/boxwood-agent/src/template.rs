//! Session ids from a template such as `{launcher_type}_{launcher_id}` and a query.

use std::borrow::Cow;
use std::fmt;
use std::fmt::Write as _;

use boxwood_api::{AgentQuery, FieldError, SessionId};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// The default template: one box per conversation.
pub const DEFAULT_TEMPLATE: &str = "{launcher_type}_{launcher_id}";

/// Used instead of an invalid template of a pipeline, so that it does not share more than was intended.
pub const NARROW_TEMPLATE: &str = "{launcher_type}_{launcher_id}_{sender_id}_{conversation_id}";

/// The value of an unknown name.
const UNKNOWN: &str = "unknown";

const MAX_TEMPLATE_BYTES: usize = 4_096;

/// Maximum length of a session id.
const MAX_ID_BYTES: usize = 256;
/// Length of the digest at the end of an id whose text was changed.
const DIGEST_DIGITS: usize = 16;

/// A parsed template. The syntax is that of Python's `str.format_map`, without conversions, format
/// specifications, attributes and positions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    parts: Vec<Part>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Name(String),
}

/// A template that cannot be used, with the position and the fix.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("session-id template: {0}")]
pub struct TemplateError(String);

impl TemplateError {
    fn at(position: usize, text: &str, why: &str) -> Self {
        Self(format!("`{text}` at character {position} {why}"))
    }
}

/// The origin of a template.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trust {
    /// Fields of the query take precedence over its variables, so that no variable leaves the forced scope.
    Forced,
    /// Variables take precedence, as the pipelines of LangBot expect.
    Chosen,
}

/// The box that a conversation gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    pub session_id: SessionId,
    /// Why the pipeline's own template was not used. The id is then made by [`NARROW_TEMPLATE`].
    pub problem: Option<TemplateError>,
}

/// A text that parses to the same template.
impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in &self.parts {
            match part {
                Part::Text(text) => {
                    f.write_str(&text.replace('{', "{{").replace('}', "}}"))?;
                }
                Part::Name(name) => write!(f, "{{{name}}}")?,
            }
        }
        Ok(())
    }
}

impl Template {
    pub fn parse(text: &str) -> Result<Self, TemplateError> {
        let text = text.trim();
        if text.is_empty() {
            let message = format!("it must not be empty; the default is `{DEFAULT_TEMPLATE}`");
            return Err(TemplateError(message));
        }
        if text.len() > MAX_TEMPLATE_BYTES {
            let len = text.len();
            let message = format!("it must be at most {MAX_TEMPLATE_BYTES} bytes, not {len}");
            return Err(TemplateError(message));
        }
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut characters = text.chars().enumerate().peekable();
        while let Some((position, character)) = characters.next() {
            match character {
                '{' | '}' if characters.next_if(|(_, next)| *next == character).is_some() => {
                    literal.push(character);
                }
                '{' => {
                    if !literal.is_empty() {
                        parts.push(Part::Text(std::mem::take(&mut literal)));
                    }
                    parts.push(Part::Name(field(position, &mut characters)?));
                }
                '}' => {
                    let why = "has no opening brace; write `}}` for a literal brace";
                    return Err(TemplateError::at(position, "}", why));
                }
                other => literal.push(other),
            }
        }
        if !literal.is_empty() {
            parts.push(Part::Text(literal));
        }
        Ok(Self { parts })
    }

    /// The id for a query. Characters that are not legal are replaced, and a digest is added, so that different texts have
    /// different ids.
    pub fn render(&self, query: &AgentQuery) -> Result<SessionId, TemplateError> {
        self.render_as(query, Trust::Chosen)
    }

    fn render_as(&self, query: &AgentQuery, trust: Trust) -> Result<SessionId, TemplateError> {
        let mut text = String::new();
        for part in &self.parts {
            match part {
                Part::Text(literal) => text.push_str(literal),
                Part::Name(name) => text.push_str(&value(name, query, trust)),
            }
        }
        legal(&text).map_err(|error| {
            TemplateError(format!("its result is not a valid session id: {error}"))
        })
    }
}

/// Uses the forced template, or that of the pipeline, or the default one.
pub fn scope(forced: Option<&Template>, query: &AgentQuery) -> Result<Scope, TemplateError> {
    if let Some(template) = forced {
        return Ok(Scope {
            session_id: template.render_as(query, Trust::Forced)?,
            problem: None,
        });
    }
    let chosen = query.pipeline.box_session_id_template.as_deref();
    let chosen = chosen.filter(|text| !text.trim().is_empty());
    let (template, problem) = match Template::parse(chosen.unwrap_or(DEFAULT_TEMPLATE)) {
        Ok(template) => (template, None),
        Err(problem) => (Template::parse(NARROW_TEMPLATE)?, Some(problem)),
    };
    Ok(Scope {
        session_id: template.render(query)?,
        problem,
    })
}

/// The name after an opening brace.
fn field(
    position: usize,
    characters: &mut impl Iterator<Item = (usize, char)>,
) -> Result<String, TemplateError> {
    let mut field = String::new();
    loop {
        match characters.next() {
            None | Some((_, '{')) => {
                let why = "has no closing brace; write `{name}`, or `{{` for a literal brace";
                return Err(TemplateError::at(position, "{", why));
            }
            Some((_, '}')) => break,
            Some((_, character)) => field.push(character),
        }
    }
    let named = |character: char| character.is_alphanumeric() || matches!(character, '_' | '-');
    let why = if field.is_empty() {
        "has no name; write one, such as `{launcher_id}`"
    } else if field.contains(['!', ':', '.', '[', ']']) {
        "has a conversion, a format, an attribute or an index; write `{name}` alone"
    } else if field.chars().all(|character| character.is_ascii_digit()) {
        "is positional; write a name, such as `{launcher_id}`"
    } else if field.starts_with('-') || !field.chars().all(named) {
        "is not a name; names have letters, digits, `_` and `-`"
    } else {
        return Ok(field);
    };
    Err(TemplateError::at(position, &format!("{{{field}}}"), why))
}

/// The value of a variable. A null variable counts as missing: the text `None` would be one box for all users without a
/// value.
fn value<'a>(name: &str, query: &'a AgentQuery, trust: Trust) -> Cow<'a, str> {
    // A query variable of that name cannot replace the shared box.
    if name == "global" {
        return Cow::Borrowed("global");
    }
    let variable = || query.variables.get(name).and_then(text);
    let query_field = || query_field(name, query);
    let found = match trust {
        Trust::Forced => query_field().or_else(variable),
        Trust::Chosen => variable().or_else(query_field),
    };
    found
        .or_else(|| fallback(name, query, trust))
        .unwrap_or(Cow::Borrowed(UNKNOWN))
}

/// A field of the query.
fn query_field<'a>(name: &str, query: &'a AgentQuery) -> Option<Cow<'a, str>> {
    let field_value = match name {
        "query_id" => query.query_id.as_ref().and_then(text),
        "launcher_type" => query.launcher_type.as_deref().map(Cow::Borrowed),
        "launcher_id" => query.launcher_id.as_ref().and_then(text),
        "sender_id" => query.sender_id.as_ref().and_then(text),
        _ => None,
    };
    field_value.filter(|text| !text.is_empty())
}

/// The default of a name that is neither a field nor a variable.
fn fallback<'a>(name: &str, query: &'a AgentQuery, trust: Trust) -> Option<Cow<'a, str>> {
    match name {
        "launcher_type" => Some(Cow::Borrowed("query")),
        "launcher_id" => Some(value("query_id", query, trust)),
        "sender_id" => Some(value("launcher_id", query, trust)),
        _ => None,
    }
}

/// As Python's `str` writes it.
fn text(value: &Value) -> Option<Cow<'_, str>> {
    Some(match value {
        Value::Null => return None,
        Value::String(text) => Cow::Borrowed(text),
        Value::Bool(true) => Cow::Borrowed("True"),
        Value::Bool(false) => Cow::Borrowed("False"),
        other => Cow::Owned(other.to_string()),
    })
}

/// Makes an id of any text. A text that must be changed gets a digest, so that two conversations cannot share a box.
fn legal(text: &str) -> Result<SessionId, FieldError> {
    if let Ok(id) = SessionId::new(text)
        && id.as_str() == text
    {
        return Ok(id);
    }
    let digest = digest(text);
    let mut prefix = String::new();
    for character in text.trim().chars() {
        let character = if character.is_control() {
            '_'
        } else {
            character
        };
        if prefix.len() + character.len_utf8() > MAX_ID_BYTES - DIGEST_DIGITS - 1 {
            break;
        }
        prefix.push(character);
    }
    if prefix.is_empty() {
        prefix.push_str(UNKNOWN);
    }
    SessionId::new(&format!("{prefix}-{digest}"))
}

fn digest(text: &str) -> String {
    let mut digits = String::with_capacity(DIGEST_DIGITS);
    for byte in &Sha256::digest(text.as_bytes())[..DIGEST_DIGITS / 2] {
        // Writing to a text cannot fail.
        let _ = write!(digits, "{byte:02x}");
    }
    digits
}
