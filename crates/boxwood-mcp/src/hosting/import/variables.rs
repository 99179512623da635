//! `${…}` in a pasted text, in the ways the clients write it.
//!
//! Comes in: a text, and values by name. Goes out: the text with values in it, or what is missing.
//! A value is put in as it is: a `${` in it means nothing.

use std::collections::{BTreeMap, BTreeSet};

use crate::hosting::secret_words;

/// From `${` to `}`. What is longer is no variable: reading on to the same end from every `${` of a long
/// text would take for ever.
const LONGEST: usize = 512;
/// All texts of one server, with their values in them. Far more than a server may have in the end.
const MOST_FILLED: usize = 4 << 20;

/// One thing that a text asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::hosting) enum Variable<'a> {
    /// `${env:NAME}`, `${NAME}`, `${NAME:-default}`
    Environment {
        name: &'a str,
        default: Option<&'a str>,
    },
    /// `${input:id}`
    Input { id: &'a str },
    /// `${workspaceFolder}` and the like: what the client's machine has.
    Place { name: &'a str },
    /// Only its own client knows, as `${command:…}`.
    Foreign,
}

pub(in crate::hosting) enum Piece<'a> {
    Text(&'a str),
    Variable {
        whole: &'a str,
        variable: Variable<'a>,
    },
}

/// The pieces of a text, in order. What looks like a variable but is none stays text.
pub(in crate::hosting) fn pieces(text: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (mut from, mut end) = (0, 0);
        while let Some(at) = rest[from..].find("${").map(|at| from + at) {
            // The same one ends all that begin before it.
            if end <= at {
                let Some(found) = rest[at..].find('}') else {
                    break;
                };
                end = at + found + 1;
            }
            let whole = &rest[at..end];
            let Some(variable) = (whole.len() <= LONGEST).then(|| read(whole)).flatten() else {
                from = at + 2;
                continue;
            };
            if at > 0 {
                let (before, after) = rest.split_at(at);
                rest = after;
                return Some(Piece::Text(before));
            }
            let (whole, after) = rest.split_at(end);
            rest = after;
            return Some(Piece::Variable { whole, variable });
        }
        Some(Piece::Text(std::mem::take(&mut rest)))
    })
}

/// `whole` is from `${` to `}`.
fn read(whole: &str) -> Option<Variable<'_>> {
    let inner = whole.strip_prefix("${")?.strip_suffix('}')?;
    let environment = |text: &'_ str| -> Option<(usize, bool)> {
        let end = text.find(":-").unwrap_or(text.len());
        (end > 0).then_some((end, end < text.len()))
    };
    let named = |text| {
        let (end, has_default) = environment(text)?;
        Some(Variable::Environment {
            name: &text[..end],
            default: has_default.then(|| &text[end + 2..]),
        })
    };
    match inner {
        "workspaceFolder" | "workspaceFolderBasename" | "userHome" | "pathSeparator" | "/" => {
            return Some(Variable::Place { name: inner });
        }
        _ => {}
    }
    if let Some(name) = inner.strip_prefix("env:") {
        return named(name);
    }
    if let Some(id) = inner.strip_prefix("input:") {
        return (!id.is_empty()).then_some(Variable::Input { id });
    }
    match named(inner) {
        Some(variable @ Variable::Environment { name, .. }) if is_shell_name(name) => {
            Some(variable)
        }
        _ => {
            let (kind, of) = inner.split_once(':')?;
            let is_kind = !kind.is_empty() && kind.bytes().all(|byte| byte.is_ascii_alphabetic());
            // `${x:1}` of a shell is left to the shell.
            let is_word =
                of.starts_with(|char: char| char.is_ascii_alphabetic() || "/.~".contains(char));
            (is_kind && is_word).then_some(Variable::Foreign)
        }
    }
}

fn is_shell_name(name: &str) -> bool {
    name.bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && name
            .bytes()
            .next()
            .is_some_and(|first| !first.is_ascii_digit())
}

/// What a document's `inputs` say of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct McpInput {
    pub id: String,
    pub description: Option<String>,
    /// Not to be seen while it is typed.
    pub is_password: bool,
    pub default: Option<String>,
    /// Empty when anything may be typed.
    pub options: Vec<String>,
}

/// Where values come from.
pub(super) struct Values<'a> {
    pub(super) given: &'a BTreeMap<String, String>,
    pub(super) inputs: &'a [McpInput],
}

/// What becomes of one in a text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Secret {
    Shown,
    KeptOut,
}

/// What came of filling one server's texts.
#[derive(Debug, Default)]
pub(super) struct Filling {
    /// In words, such as `` `TOKEN` ``.
    pub(super) missing: BTreeSet<String>,
    pub(super) foreign: BTreeSet<String>,
    /// Inputs for which nobody gave a value, but the document did.
    pub(super) defaults: BTreeSet<String>,
    /// Values that were kept out of a text, by the names they are kept under.
    pub(super) secrets: BTreeMap<String, String>,
    /// Bytes so far. What comes after the most there can be is left out.
    bytes: usize,
}

impl Filling {
    pub(super) fn is_too_long(&self) -> bool {
        self.bytes > MOST_FILLED
    }

    fn add(&mut self, piece: &str, to: &mut String) {
        self.bytes = self.bytes.saturating_add(piece.len());
        if !self.is_too_long() {
            to.push_str(piece);
        }
    }

    /// Leaves in the text where the value belongs, and the value among the secrets. It counts as if it were
    /// in the text, for it will be.
    fn keep_out(&mut self, id: &str, value: &str, of: &mut String) {
        self.bytes = self.bytes.saturating_add(value.len());
        let mut name = secret_words::name_of(id);
        let mut number = 1;
        // An input may be called as a variable is kept.
        while self.secrets.get(&name).is_some_and(|kept| kept != value) {
            number += 1;
            name = secret_words::name_of(&format!("{id}-{number}"));
        }
        self.add(&format!("${{{name}}}"), of);
        self.secrets.entry(name).or_insert_with(|| value.to_owned());
    }
}

impl Values<'_> {
    pub(super) fn fill(&self, text: &str, filling: &mut Filling) -> String {
        self.fill_with(text, Secret::Shown, filling)
    }

    /// For texts that everybody sees who may list the servers.
    pub(super) fn fill_but_secrets(&self, text: &str, filling: &mut Filling) -> String {
        self.fill_with(text, Secret::KeptOut, filling)
    }

    fn fill_with(&self, text: &str, secret: Secret, filling: &mut Filling) -> String {
        let mut filled = String::new();
        if filling.is_too_long() {
            return filled;
        }
        for piece in pieces(text) {
            match piece {
                Piece::Text(text) => filling.add(text, &mut filled),
                Piece::Variable {
                    whole,
                    variable: Variable::Foreign,
                } => {
                    filling.foreign.insert(format!("`{whole}`"));
                }
                Piece::Variable { variable, .. } => {
                    let Some(value) = self.value(variable, filling) else {
                        continue;
                    };
                    match self.secret_id(variable) {
                        Some(id) if secret == Secret::KeptOut => {
                            filling.keep_out(&id, value, &mut filled);
                        }
                        _ => filling.add(value, &mut filled),
                    }
                }
            }
            if filling.is_too_long() {
                break;
            }
        }
        filled
    }

    /// What a value that may be a secret is kept under. An input of which nothing is known may be one, and so
    /// may anything that comes from an environment; what the document says itself is none.
    fn secret_id(&self, variable: Variable<'_>) -> Option<String> {
        match variable {
            Variable::Input { id } => {
                let may_be = self.input(id).is_none_or(|input| input.is_password);
                may_be.then(|| id.to_owned())
            }
            Variable::Environment { name, .. } => {
                let is_given = self.given("env", name).is_some();
                is_given.then(|| format!("env:{name}"))
            }
            Variable::Place { .. } | Variable::Foreign => None,
        }
    }

    fn input(&self, id: &str) -> Option<&McpInput> {
        self.inputs.iter().find(|input| input.id == id)
    }

    /// By its full name first: an input and a variable may be called the same.
    fn given(&self, kind: &str, name: &str) -> Option<&str> {
        let full = self.given.get(&format!("{kind}:{name}"));
        full.or_else(|| self.given.get(name)).map(String::as_str)
    }

    fn value<'t>(&'t self, variable: Variable<'t>, filling: &mut Filling) -> Option<&'t str> {
        match variable {
            Variable::Environment { name, default } => {
                let found = self.given("env", name).or(default);
                if found.is_none() {
                    filling.missing.insert(format!("`{name}`"));
                }
                found
            }
            Variable::Input { id } => {
                if let Some(found) = self.given("input", id) {
                    return Some(found);
                }
                let input = self.input(id);
                let default = input.and_then(|input| input.default.as_deref());
                if default.is_some() {
                    filling.defaults.insert(id.to_owned());
                } else {
                    let about = input.and_then(|input| input.description.as_deref());
                    let about = about.map(|about| format!(" ({about})")).unwrap_or_default();
                    filling.missing.insert(format!("the input `{id}`{about}"));
                }
                default
            }
            Variable::Place { name } => {
                let found = match name {
                    "pathSeparator" | "/" => Some("/"),
                    "workspaceFolderBasename" => self.given.get("workspaceFolder").map(|folder| {
                        let folder = folder.trim_end_matches('/');
                        folder.rsplit('/').next().unwrap_or(folder)
                    }),
                    name => self.given.get(name).map(String::as_str),
                };
                if found.is_none() {
                    let name = name.trim_end_matches("Basename");
                    filling.missing.insert(format!("`{name}`"));
                }
                found
            }
            Variable::Foreign => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let shown: Vec<String> = pieces(text)
            .map(|piece| match piece {
                Piece::Text(text) => text.to_owned(),
                Piece::Variable { whole, variable } => match variable {
                    Variable::Environment {
                        name,
                        default: None,
                    } => format!("<env {name}>"),
                    Variable::Environment {
                        name,
                        default: Some(or),
                    } => {
                        format!("<env {name} or {or}>")
                    }
                    Variable::Input { id } => format!("<input {id}>"),
                    Variable::Place { name } => format!("<place {name}>"),
                    Variable::Foreign => format!("<foreign {whole}>"),
                },
            })
            .collect();
        assert_eq!(shown.join("|"), expected, "for {text:?}");
    }

    #[test]
    fn every_client_is_read_in_its_own_way() {
        check("plain $HOME", "plain $HOME");
        check("${env:TOKEN}", "<env TOKEN>");
        check("a${TOKEN}b", "a|<env TOKEN>|b");
        check("${PORT:-80}${X:-}", "<env PORT or 80>|<env X or >");
        check("${env:A:-b c}", "<env A or b c>");
        check("Bearer ${input:my-key}", "Bearer |<input my-key>");
        check("${workspaceFolder}/src", "<place workspaceFolder>|/src");
        check("${userHome}${/}x", "<place userHome>|<place />|x");
        check("${command:pick}", "<foreign ${command:pick}>");
        check("${workspaceFolder:web}", "<foreign ${workspaceFolder:web}>");
        check("${file:~/key}", "<foreign ${file:~/key}>");
    }

    #[test]
    fn what_is_no_variable_stays_as_it_is() {
        for text in [
            "${", "${}", "${a b}", "${1}", "$${", "${env:}", "${x:1}", "{}", "${:-x}", "${#x}",
        ] {
            check(text, text);
        }
        check("${a b}${C}", "${a b}|<env C>");
        check("${open ${C}", "${open |<env C>");
    }

    fn filled(text: &str, given: &[(&str, &str)], inputs: &[McpInput]) -> (String, Filling) {
        let given = given
            .iter()
            .map(|&(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        let mut filling = Filling::default();
        let values = Values {
            given: &given,
            inputs,
        };
        (values.fill(text, &mut filling), filling)
    }

    #[test]
    fn values_are_put_in_and_never_read_again() {
        let (text, filling) = filled("${A}-${env:A}", &[("A", "${B}")], &[]);
        assert_eq!(text, "${B}-${B}");
        assert!(filling.missing.is_empty());
        let both = [("env:key", "variable"), ("input:key", "input")];
        assert_eq!(
            filled("${env:key} ${input:key}", &both, &[]).0,
            "variable input"
        );
        let (text, _) = filled(
            "${workspaceFolderBasename}",
            &[("workspaceFolder", "/a/web/")],
            &[],
        );
        assert_eq!(text, "web");
    }

    #[test]
    fn a_text_full_of_beginnings_is_read_in_one_pass() {
        let text = format!("{}}}", "${".repeat(2 << 20));
        let began = std::time::Instant::now();
        let read = pieces(&text).count();
        assert_eq!(read, 1);
        assert!(began.elapsed() < std::time::Duration::from_mins(1));
        let far = format!("${{X:-{}}}", "x".repeat(LONGEST));
        check(&far, &far);
        check(&format!("{far}${{C}}"), &format!("{far}|<env C>"));
    }

    #[test]
    fn values_that_would_fill_the_memory_are_not_put_in() {
        let long = "x".repeat(1 << 20);
        let (text, filling) = filled(&"${A}".repeat(1 << 20), &[("A", &long)], &[]);
        assert!(filling.is_too_long());
        assert_eq!(text.len(), MOST_FILLED);
        let (text, filling) = filled("${A}${A}", &[("A", &long)], &[]);
        assert!(!filling.is_too_long());
        assert_eq!(text.len(), 2 << 20);
    }

    #[test]
    fn what_is_missing_is_told_by_name() {
        let inputs = [
            McpInput {
                id: "key".to_owned(),
                description: Some("API key".to_owned()),
                ..McpInput::default()
            },
            McpInput {
                id: "region".to_owned(),
                default: Some("eu".to_owned()),
                ..McpInput::default()
            },
        ];
        let text = "${TOKEN}${input:key}${input:region}${X:-x}${userHome}${command:c}";
        let (text, filling) = filled(text, &[], &inputs);
        assert_eq!(text, "eux");
        let missing: Vec<_> = filling.missing.into_iter().collect();
        assert_eq!(
            missing,
            ["`TOKEN`", "`userHome`", "the input `key` (API key)"]
        );
        assert!(filling.foreign.contains("`${command:c}`"));
        assert!(filling.defaults.contains("region"));
    }

    proptest! {
        #[test]
        fn pieces_are_the_text(text in "[${}a:/-]{0,24}") {
            let whole: String = pieces(&text)
                .map(|piece| match piece {
                    Piece::Text(text) | Piece::Variable { whole: text, .. } => text,
                })
                .collect();
            prop_assert_eq!(whole, text);
        }
    }
}
