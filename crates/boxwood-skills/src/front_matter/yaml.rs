//! Reads the YAML of a front matter: the top-level mapping with the positions of its entries.
//!
//! Numbers and dates keep the text in which they are written. Booleans of YAML 1.1 are `True` or absent, as in LangBot
//! Box. Aliases and merge keys are refused.

use std::ops::Range;

use granit_parser::{Event, Parser, ScalarStyle, ScanError, Span, StructureStyle, Tag, options};

use super::refused;
use crate::SkillError;

const MAX_NESTING: usize = 64;

const TRUE: [&str; 9] = [
    "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON",
];
const FALSE: [&str; 9] = [
    "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF",
];

#[derive(Debug)]
pub(super) struct Mapping {
    pub(super) entries: Vec<Entry>,
    /// False for flow mappings, lists and scalars.
    pub(super) is_editable: bool,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) key: Value,
    pub(super) value: Value,
    /// Byte offset into the YAML.
    pub(super) key_start: usize,
    /// The end of a value on one or several lines; not meaningful for lists and mappings.
    pub(super) value_end: usize,
}

impl Entry {
    pub(super) fn is(&self, key: &str) -> bool {
        self.key.as_text() == Some(key)
    }

    pub(super) fn pair(&self) -> (&Value, &Value) {
        (&self.key, &self.value)
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Null,
    /// `is_string` is false if a parser may read the text as a number, a boolean or a date.
    Scalar {
        text: String,
        is_string: bool,
    },
    Sequence(Vec<Value>),
    Map(Vec<(Value, Value)>),
}

impl Value {
    pub(crate) fn as_text(&self) -> Option<&str> {
        match self {
            Self::Scalar { text, .. } => Some(text),
            _ => None,
        }
    }

    pub(crate) fn is_string(&self) -> bool {
        matches!(
            self,
            Self::Scalar {
                is_string: true,
                ..
            }
        )
    }
}

impl Mapping {
    pub(super) fn empty() -> Self {
        Self {
            entries: Vec::new(),
            is_editable: true,
        }
    }

    pub(super) fn parse(yaml: &str) -> Result<Self, SkillError> {
        let limits = options! {
            flow_nesting_limit: MAX_NESTING,
            block_nesting_limit: MAX_NESTING,
            emit_comments: false,
        };
        let mut reader = Reader(Parser::new_from_str_with_options(yaml, limits));
        let mut mapping = Self::empty();
        let mut documents = 0;
        while let Some((event, _)) = reader.next()? {
            match event {
                Event::DocumentStart(..) if documents > 0 => {
                    return Err(refused("front matter contains more than one YAML document"));
                }
                Event::DocumentStart(..) => documents += 1,
                Event::MappingStart(style, _, tag) => {
                    check_tag(tag.as_deref())?;
                    mapping = Self {
                        entries: reader.mapping()?,
                        is_editable: style == StructureStyle::Block,
                    };
                }
                Event::Scalar(..) | Event::SequenceStart(..) | Event::Alias(..) => {
                    mapping.is_editable = reader.node(event)? == Value::Null;
                }
                _ => {}
            }
        }
        Ok(mapping)
    }

    /// The last duplicate wins, as in LangBot Box.
    pub(super) fn get(&self, key: &str) -> Option<&Value> {
        let entry = self.entries.iter().rev().find(|entry| entry.is(key))?;
        Some(&entry.value)
    }
}

struct Reader<I>(I);

impl<'a, I: Iterator<Item = Result<(Event<'a>, Span), ScanError>>> Reader<I> {
    fn next(&mut self) -> Result<Option<(Event<'a>, Range<usize>)>, SkillError> {
        let Some(next) = self.0.next() else {
            return Ok(None);
        };
        let (event, span) = next.map_err(|error| refused(error.to_string()))?;
        let range = span
            .byte_range()
            .ok_or_else(|| refused("the YAML parser reported no position"))?;
        Ok(Some((event, range)))
    }

    fn next_in_collection(&mut self) -> Result<(Event<'a>, Range<usize>), SkillError> {
        self.next()?
            .ok_or_else(|| refused("a list or a mapping is not closed"))
    }

    /// The nesting limit of the parser bounds the recursion.
    fn node(&mut self, event: Event<'a>) -> Result<Value, SkillError> {
        match event {
            Event::Scalar(text, style, _, tag) => {
                check_tag(tag.as_deref())?;
                let is_plain = style == ScalarStyle::Plain && tag.is_none();
                let is_null = matches!(&*text, "" | "~" | "null" | "Null" | "NULL");
                if is_plain && (is_null || FALSE.contains(&&*text)) {
                    return Ok(Value::Null);
                }
                let is_true = is_plain && TRUE.contains(&&*text);
                Ok(Value::Scalar {
                    is_string: !is_plain || is_string(&text),
                    text: if is_true {
                        "True".to_owned()
                    } else {
                        text.into_owned()
                    },
                })
            }
            Event::SequenceStart(_, _, tag) => {
                check_tag(tag.as_deref())?;
                let mut items = Vec::new();
                loop {
                    match self.next_in_collection()?.0 {
                        Event::SequenceEnd => return Ok(Value::Sequence(items)),
                        item => items.push(self.node(item)?),
                    }
                }
            }
            Event::MappingStart(_, _, tag) => {
                check_tag(tag.as_deref())?;
                let pairs = self.mapping()?.into_iter();
                Ok(Value::Map(
                    pairs.map(|entry| (entry.key, entry.value)).collect(),
                ))
            }
            Event::Alias(_) => Err(refused("front matter has an alias (`*`)")),
            _ => Err(refused("front matter has an unexpected structure")),
        }
    }

    /// The entries of a mapping whose start was read.
    fn mapping(&mut self) -> Result<Vec<Entry>, SkillError> {
        let mut entries = Vec::new();
        loop {
            let (event, key_range) = self.next_in_collection()?;
            if matches!(event, Event::MappingEnd) {
                return Ok(entries);
            }
            let key = self.node(event)?;
            if !matches!(key, Value::Scalar { .. } | Value::Null) {
                return Err(refused("a list or a mapping cannot be a key"));
            }
            if key.as_text() == Some("<<") {
                return Err(refused("front matter has a merge key (`<<`)"));
            }
            let (event, range) = self.next_in_collection()?;
            entries.push(Entry {
                key,
                value: self.node(event)?,
                key_start: key_range.start,
                value_end: range.end.max(key_range.end),
            });
        }
    }
}

/// Core tags are accepted. Tags that construct objects are refused, as in LangBot Box.
fn check_tag(tag: Option<&Tag>) -> Result<(), SkillError> {
    let Some(tag) = tag else { return Ok(()) };
    let known = match tag.parts() {
        ("tag:yaml.org,2002:", suffix) => !suffix.contains('/'),
        parts => matches!(parts, ("", "!") | ("!", "")),
    };
    if known {
        Ok(())
    } else {
        Err(refused(format!("front matter has the unknown tag `{tag}`")))
    }
}

/// Returns false for a plain scalar that YAML 1.1 or 1.2 may read as something else.
pub(super) fn is_string(plain: &str) -> bool {
    const WORDS: [&str; 15] = [
        "", "~", "null", "true", "false", "yes", "no", "on", "off", "y", "n", ".nan", ".inf",
        "-.inf", "+.inf",
    ];
    let number_or_date = plain
        .trim_start_matches(['+', '-', '.'])
        .starts_with(|character: char| character.is_ascii_digit())
        && plain
            .chars()
            .all(|c| c.is_ascii_hexdigit() || "xoTtZz_:.+- \t".contains(c));
    !number_or_date && !WORDS.contains(&plain.to_lowercase().as_str())
}
