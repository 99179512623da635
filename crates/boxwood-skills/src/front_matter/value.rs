//! A YAML value as the seed's runtime would hold it.

use std::fmt::Write as _;
use std::rc::Rc;

use super::refused;
use crate::SkillError;

/// Aliases can make a small text mean a huge one; nothing we show needs to be longer.
const MAX_SHOWN_BYTES: usize = 256 << 10;

#[derive(Debug, PartialEq)]
pub(super) enum Value {
    Scalar(Scalar),
    Sequence(Vec<Rc<Value>>),
    Map(Vec<(Rc<Value>, Rc<Value>)>),
}

#[derive(Clone, Debug)]
pub(super) struct Scalar {
    pub(super) kind: Kind,
    /// What Python's `str()` makes of it.
    pub(super) shown: String,
    /// As it stands in the source, for writing it again.
    pub(super) source: String,
}

/// Two spellings of one value are equal.
impl PartialEq for Scalar {
    fn eq(&self, other: &Self) -> bool {
        self.kind == other.kind && self.shown == other.shown
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Null,
    Bool(bool),
    Number { is_zero: bool },
    Time,
    Text,
}

impl Value {
    pub(super) fn is_truthy(&self) -> bool {
        match self {
            Self::Scalar(scalar) => match scalar.kind {
                Kind::Null => false,
                Kind::Bool(value) => value,
                Kind::Number { is_zero } => !is_zero,
                Kind::Time => true,
                Kind::Text => !scalar.shown.is_empty(),
            },
            Self::Sequence(items) => !items.is_empty(),
            Self::Map(entries) => !entries.is_empty(),
        }
    }

    pub(super) fn is_string(&self) -> bool {
        matches!(self, Self::Scalar(scalar) if scalar.kind == Kind::Text)
    }

    /// Python's `str()`.
    pub(super) fn python_str(&self) -> Result<String, SkillError> {
        if let Self::Scalar(scalar) = self {
            return Ok(scalar.shown.clone());
        }
        let mut shown = String::new();
        self.write_repr(&mut shown)?;
        Ok(shown)
    }

    /// Recursion is bounded by the nesting that the parser allows.
    fn write_repr(&self, out: &mut String) -> Result<(), SkillError> {
        if out.len() > MAX_SHOWN_BYTES {
            return Err(refused("a value is too long once its aliases are followed"));
        }
        match self {
            Self::Scalar(scalar) if scalar.kind == Kind::Text => {
                write_text_repr(&scalar.shown, out);
            }
            Self::Scalar(scalar) => out.push_str(&scalar.shown),
            Self::Sequence(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out.push_str(", ");
                    }
                    item.write_repr(out)?;
                }
                out.push(']');
            }
            Self::Map(entries) => {
                out.push('{');
                for (index, (key, value)) in entries.iter().enumerate() {
                    if index > 0 {
                        out.push_str(", ");
                    }
                    key.write_repr(out)?;
                    out.push_str(": ");
                    value.write_repr(out)?;
                }
                out.push('}');
            }
        }
        Ok(())
    }
}

fn write_text_repr(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    out.push(quote);
    for character in text.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            _ if character == quote => {
                out.push('\\');
                out.push(character);
            }
            _ if character.is_control() => {
                let _ = write!(out, "\\x{:02x}", u32::from(character));
            }
            _ => out.push(character),
        }
    }
    out.push(quote);
}
