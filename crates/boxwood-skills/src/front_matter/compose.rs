//! Events into values.
//!
//! Aliases are followed by sharing, but their cost is counted as if they were written out: a
//! text that would mean millions of nodes is refused before anything walks it.

use std::collections::HashMap;
use std::rc::Rc;

use granit_parser::{Event, Parser, ScalarStyle, Span, StructureStyle, Tag, options};

use super::refused;
use super::scalar;
use super::value::{Kind, Scalar, Value};
use crate::SkillError;

const MAX_NESTING: usize = 64;
const MAX_NODES: usize = 20_000;

/// The top-level mapping of a front matter, with the places of its keys.
#[derive(Debug)]
pub(super) struct Composed {
    pub(super) entries: Vec<Entry>,
    /// From `<<`: what is true unless the mapping says otherwise itself.
    merged: Vec<(Rc<Value>, Rc<Value>)>,
    pub(super) shape: Shape,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Nothing but blanks and comments.
    Empty,
    BlockMapping,
    FlowMapping,
    /// A list or a word, which counts as no front matter at all.
    Other,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) key: Rc<Value>,
    pub(super) value: Rc<Value>,
    /// Byte offsets into the YAML.
    pub(super) key_start: usize,
    pub(super) value_end: usize,
}

impl Composed {
    pub(super) fn empty() -> Self {
        Self {
            entries: Vec::new(),
            merged: Vec::new(),
            shape: Shape::Empty,
        }
    }

    /// The last one wins, as in the seed.
    pub(super) fn get(&self, key: &str) -> Option<&Value> {
        let own = self
            .entries
            .iter()
            .rev()
            .find(|entry| is_key(&entry.key, key));
        if let Some(entry) = own {
            return Some(&entry.value);
        }
        let merged = self.merged.iter().find(|(name, _)| is_key(name, key));
        merged.map(|(_, value)| &**value)
    }
}

pub(super) fn is_key(value: &Value, key: &str) -> bool {
    matches!(value, Value::Scalar(scalar) if scalar.kind == Kind::Text && scalar.shown == key)
}

/// A collection that is still open.
struct Open {
    anchor: usize,
    weight: usize,
    start: usize,
    end: usize,
    style: StructureStyle,
    content: Content,
}

enum Content {
    Sequence(Vec<Rc<Value>>),
    Map {
        entries: Vec<Entry>,
        key: Option<Finished>,
    },
}

struct Finished {
    value: Rc<Value>,
    weight: usize,
    start: usize,
    end: usize,
}

pub(super) fn compose(yaml: &str) -> Result<Composed, SkillError> {
    let limits = options! {
        flow_nesting_limit: MAX_NESTING,
        block_nesting_limit: MAX_NESTING,
        emit_comments: false,
    };
    let mut composer = Composer::default();
    for next in Parser::new_from_str_with_options(yaml, limits) {
        let (event, span) = next.map_err(|error| refused(error.to_string()))?;
        composer.accept(event, &span)?;
    }
    composer.finish()
}

#[derive(Default)]
struct Composer {
    open: Vec<Open>,
    anchors: HashMap<usize, (Rc<Value>, usize)>,
    nodes: usize,
    documents: usize,
    root: Option<Composed>,
}

impl Composer {
    fn accept(&mut self, event: Event<'_>, span: &Span) -> Result<(), SkillError> {
        let range = span
            .byte_range()
            .ok_or_else(|| refused("positions are missing"))?;
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            return Err(refused("front matter has too many values"));
        }
        match event {
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > 1 {
                    return Err(refused("front matter holds more than one document"));
                }
            }
            Event::Alias(anchor) => {
                let (value, weight) = self
                    .anchors
                    .get(&anchor)
                    .cloned()
                    .ok_or_else(|| refused("an alias refers to what contains it"))?;
                return self.place(Finished {
                    value,
                    weight,
                    start: range.start,
                    end: range.end,
                });
            }
            Event::Scalar(text, style, anchor, tag) => {
                let scalar = scalar(&text, style, tag.as_deref())?;
                let value = Rc::new(Value::Scalar(scalar));
                self.remember(anchor, &value, 1);
                return self.place(Finished {
                    value,
                    weight: 1,
                    start: range.start,
                    end: range.end,
                });
            }
            Event::SequenceStart(style, anchor, tag) => {
                check_tag(tag.as_deref())?;
                self.begin(anchor, range.start, style, Content::Sequence(Vec::new()));
            }
            Event::MappingStart(style, anchor, tag) => {
                check_tag(tag.as_deref())?;
                let content = Content::Map {
                    entries: Vec::new(),
                    key: None,
                };
                self.begin(anchor, range.start, style, content);
            }
            Event::SequenceEnd | Event::MappingEnd => return self.end(range.end),
            _ => {}
        }
        Ok(())
    }

    fn begin(&mut self, anchor: usize, start: usize, style: StructureStyle, content: Content) {
        self.open.push(Open {
            anchor,
            weight: 1,
            start,
            end: start,
            style,
            content,
        });
    }

    fn end(&mut self, end: usize) -> Result<(), SkillError> {
        let open = self
            .open
            .pop()
            .ok_or_else(|| refused("a collection ends that never began"))?;
        let value = match open.content {
            Content::Sequence(items) => Value::Sequence(items),
            Content::Map { entries, .. } if self.open.is_empty() => {
                self.root = Some(top_level(entries, open.style)?);
                return Ok(());
            }
            Content::Map { entries, .. } => {
                let pairs = entries.into_iter().map(|entry| (entry.key, entry.value));
                Value::Map(pairs.collect())
            }
        };
        // A flow collection ends at its bracket; the end of a block one is only noticed at the
        // next key, so the end of its last child is the truer place.
        let end = match open.style {
            StructureStyle::Flow => end,
            StructureStyle::Block => open.end,
        };
        let value = Rc::new(value);
        self.remember(open.anchor, &value, open.weight);
        self.place(Finished {
            value,
            weight: open.weight,
            start: open.start,
            end,
        })
    }

    fn remember(&mut self, anchor: usize, value: &Rc<Value>, weight: usize) {
        if anchor != 0 {
            self.anchors.insert(anchor, (Rc::clone(value), weight));
        }
    }

    fn place(&mut self, done: Finished) -> Result<(), SkillError> {
        let Some(open) = self.open.last_mut() else {
            self.root = Some(Composed {
                shape: match &*done.value {
                    Value::Scalar(scalar) if scalar.kind == Kind::Null => Shape::Empty,
                    _ => Shape::Other,
                },
                ..Composed::empty()
            });
            return Ok(());
        };
        open.weight = open.weight.saturating_add(done.weight);
        open.end = open.end.max(done.end);
        if open.weight > MAX_NODES {
            return Err(refused(
                "front matter has too many values once its aliases are followed",
            ));
        }
        match &mut open.content {
            Content::Sequence(items) => items.push(done.value),
            Content::Map { entries, key, .. } => match key.take() {
                None if matches!(&*done.value, Value::Scalar(_)) => *key = Some(done),
                None => return Err(refused("a list or a mapping stands where a key must be")),
                Some(name) => entries.push(Entry {
                    key: name.value,
                    value: done.value,
                    key_start: name.start,
                    value_end: done.end.max(name.end),
                }),
            },
        }
        Ok(())
    }

    fn finish(self) -> Result<Composed, SkillError> {
        if !self.open.is_empty() {
            return Err(refused("a collection never ends"));
        }
        Ok(self.root.unwrap_or_else(Composed::empty))
    }
}

fn top_level(entries: Vec<Entry>, style: StructureStyle) -> Result<Composed, SkillError> {
    let mut merged = Vec::new();
    for entry in entries.iter().filter(|entry| is_key(&entry.key, "<<")) {
        match &*entry.value {
            Value::Map(pairs) => merged.extend(pairs.iter().cloned()),
            Value::Sequence(maps) => {
                for map in maps {
                    let Value::Map(pairs) = &**map else {
                        return Err(refused("`<<` takes mappings"));
                    };
                    merged.extend(pairs.iter().cloned());
                }
            }
            Value::Scalar(_) => return Err(refused("`<<` takes mappings")),
        }
    }
    Ok(Composed {
        entries,
        merged,
        shape: match style {
            StructureStyle::Block => Shape::BlockMapping,
            StructureStyle::Flow => Shape::FlowMapping,
        },
    })
}

/// The core tags are accepted and mean what the text means anyway, except `!!str`; a tag that
/// would build an object is refused, as in the seed.
fn check_tag(tag: Option<&Tag>) -> Result<(), SkillError> {
    const KNOWN: [&str; 12] = [
        "str",
        "int",
        "float",
        "bool",
        "null",
        "seq",
        "map",
        "set",
        "omap",
        "pairs",
        "binary",
        "timestamp",
    ];
    let Some(tag) = tag else { return Ok(()) };
    let (handle, suffix) = tag.parts();
    let known = handle == "tag:yaml.org,2002:" && KNOWN.contains(&suffix);
    if known || is_non_specific(tag) {
        Ok(())
    } else {
        Err(refused(format!("front matter has the unknown tag `{tag}`")))
    }
}

/// A lone `!`: the text as text.
fn is_non_specific(tag: &Tag) -> bool {
    matches!(tag.parts(), ("", "!") | ("!", ""))
}

fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Result<Scalar, SkillError> {
    check_tag(tag)?;
    let resolved = || scalar::resolve(text).map_err(refused);
    match tag.map(Tag::suffix) {
        None if style == ScalarStyle::Plain => resolved(),
        // A tag turns even a quoted text into what it names, or it is an error.
        Some("int" | "float" | "bool" | "null" | "timestamp") => {
            let scalar = resolved()?;
            if scalar.kind == Kind::Text {
                return Err(refused(format!("`{text}` is not what its tag says")));
            }
            Ok(scalar)
        }
        _ => Ok(scalar::text(text)),
    }
}
