//! Parses and fills `${…}` variables in the notations of the clients.
//!
//! Inserted values are not parsed again.

use std::collections::{BTreeMap, BTreeSet};

use crate::hosting::definitions::secret_args;

/// Length of a variable from `${` to `}`. The limit keeps parsing linear for text with many `${` and one `}`.
const MAX_VARIABLE_BYTES: usize = 512;
/// Limit for all filled texts of one server.
const MAX_FILLED_BYTES: usize = 4 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::hosting) enum Variable<'a> {
    /// `${env:NAME}`, `${NAME}`, `${NAME:-default}`
    Environment {
        name: &'a str,
        default: Option<&'a str>,
    },
    /// `${input:id}`
    Input { id: &'a str },
    /// `${workspaceFolder}` or `${userHome}`: paths on the client's machine.
    ClientPath { name: &'a str },
    /// Known only to the client, such as `${command:…}`.
    Foreign,
}

pub(in crate::hosting) enum Segment<'a> {
    Text(&'a str),
    Variable {
        whole: &'a str,
        variable: Variable<'a>,
    },
}

/// Splits a text into plain text and variables. Unrecognized variables stay text.
pub(in crate::hosting) fn segments(text: &str) -> impl Iterator<Item = Segment<'_>> {
    let mut rest = text;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (mut from, mut end) = (0, 0);
        while let Some(at) = rest[from..].find("${").map(|at| from + at) {
            // A `}` ends all `${` before it.
            if end <= at {
                let Some(length) = rest[at..].find('}') else {
                    break;
                };
                end = at + length + 1;
            }
            let whole = &rest[at..end];
            let Some(variable) = (whole.len() <= MAX_VARIABLE_BYTES)
                .then(|| read(whole))
                .flatten()
            else {
                from = at + 2;
                continue;
            };
            if at > 0 {
                let (before, after) = rest.split_at(at);
                rest = after;
                return Some(Segment::Text(before));
            }
            let (whole, after) = rest.split_at(end);
            rest = after;
            return Some(Segment::Variable { whole, variable });
        }
        Some(Segment::Text(std::mem::take(&mut rest)))
    })
}

/// `whole` is the text from `${` to `}`.
fn read(whole: &str) -> Option<Variable<'_>> {
    let inner = whole.strip_prefix("${")?.strip_suffix('}')?;
    match inner {
        "workspaceFolder" | "userHome" => return Some(Variable::ClientPath { name: inner }),
        "workspaceFolderBasename" | "pathSeparator" | "/" => return Some(Variable::Foreign),
        _ => {}
    }
    if let Some(name) = inner.strip_prefix("env:") {
        return environment(name);
    }
    if let Some(id) = inner.strip_prefix("input:") {
        return (!id.is_empty()).then_some(Variable::Input { id });
    }
    match environment(inner) {
        Some(variable @ Variable::Environment { name, .. }) if is_shell_name(name) => {
            Some(variable)
        }
        _ => {
            let (kind, value) = inner.split_once(':')?;
            let is_kind = !kind.is_empty() && kind.bytes().all(|byte| byte.is_ascii_alphabetic());
            // `${x:1}` is shell syntax.
            let is_word =
                value.starts_with(|char: char| char.is_ascii_alphabetic() || "/.~".contains(char));
            (is_kind && is_word).then_some(Variable::Foreign)
        }
    }
}

/// `NAME` or `NAME:-default`.
fn environment(text: &str) -> Option<Variable<'_>> {
    let (name, default) = match text.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (text, None),
    };
    (!name.is_empty()).then_some(Variable::Environment { name, default })
}

fn is_shell_name(name: &str) -> bool {
    name.bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && name
            .bytes()
            .next()
            .is_some_and(|first| !first.is_ascii_digit())
}

/// One entry of a document's `inputs`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct McpInput {
    pub id: String,
    pub description: Option<String>,
    /// Hidden while typing.
    pub is_password: bool,
    pub default: Option<String>,
    /// Empty if any value is allowed.
    pub options: Vec<String>,
}

pub(super) struct Values<'a> {
    pub(super) given: &'a BTreeMap<String, String>,
    pub(super) inputs: &'a [McpInput],
}

/// Whether secret values are inserted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Secret {
    Inserted,
    /// A placeholder is inserted instead, for texts that are shown in listings.
    Placeholder,
}

/// The result of filling one server's texts.
#[derive(Debug, Default)]
pub(super) struct Filling {
    /// For display, such as `` `TOKEN` ``.
    pub(super) missing: BTreeSet<String>,
    pub(super) foreign: BTreeSet<String>,
    /// Inputs that use the document's default.
    pub(super) defaults: BTreeSet<String>,
    /// Secret values that placeholders stand for, by their name in `env`.
    pub(super) secrets: BTreeMap<String, String>,
    /// Bytes so far. Text beyond the limit is dropped.
    bytes: usize,
}

impl Filling {
    pub(super) fn is_too_long(&self) -> bool {
        self.bytes > MAX_FILLED_BYTES
    }

    fn add(&mut self, part: &str, output: &mut String) {
        self.bytes = self.bytes.saturating_add(part.len());
        if !self.is_too_long() {
            output.push_str(part);
        }
    }

    /// Inserts a placeholder, and stores the value as a secret. The value counts towards the limit, because it is
    /// inserted when the process starts.
    fn add_placeholder(&mut self, id: &str, value: &str, output: &mut String) {
        self.bytes = self.bytes.saturating_add(value.len());
        let mut name = secret_args::name_of(id);
        let mut number = 1;
        // An input may have the same name as a stored variable.
        while self
            .secrets
            .get(&name)
            .is_some_and(|stored| stored != value)
        {
            number += 1;
            name = secret_args::name_of(&format!("{id}-{number}"));
        }
        self.add(&format!("${{{name}}}"), output);
        self.secrets.entry(name).or_insert_with(|| value.to_owned());
    }
}

impl Values<'_> {
    pub(super) fn fill(&self, text: &str, secret: Secret, filling: &mut Filling) -> String {
        let mut filled = String::new();
        if filling.is_too_long() {
            return filled;
        }
        for segment in segments(text) {
            match segment {
                Segment::Text(text) => filling.add(text, &mut filled),
                Segment::Variable {
                    whole,
                    variable: Variable::Foreign,
                } => {
                    filling.foreign.insert(format!("`{whole}`"));
                }
                Segment::Variable { variable, .. } => {
                    let Some(value) = self.value(variable, filling) else {
                        continue;
                    };
                    match self.secret_id(variable) {
                        Some(id) if secret == Secret::Placeholder => {
                            filling.add_placeholder(&id, value, &mut filled);
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

    /// The id for a value that may be a secret: an undeclared or password input, or a value from the environment.
    /// Values written in the document are not secret.
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
            Variable::ClientPath { .. } | Variable::Foreign => None,
        }
    }

    fn input(&self, id: &str) -> Option<&McpInput> {
        self.inputs.iter().find(|input| input.id == id)
    }

    /// The qualified name comes first, because an input and a variable may have the same name.
    fn given(&self, kind: &str, name: &str) -> Option<&str> {
        let full = self.given.get(&format!("{kind}:{name}"));
        full.or_else(|| self.given.get(name)).map(String::as_str)
    }

    fn value<'t>(&'t self, variable: Variable<'t>, filling: &mut Filling) -> Option<&'t str> {
        match variable {
            Variable::Environment { name, default } => {
                let value = self.given("env", name).or(default);
                if value.is_none() {
                    filling.missing.insert(format!("`{name}`"));
                }
                value
            }
            Variable::Input { id } => {
                if let Some(value) = self.given("input", id) {
                    return Some(value);
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
            Variable::ClientPath { name } => {
                let value = self.given.get(name);
                if value.is_none() {
                    filling.missing.insert(format!("`{name}`"));
                }
                value.map(String::as_str)
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
        let shown: Vec<String> = segments(text)
            .map(|segment| match segment {
                Segment::Text(text) => text.to_owned(),
                Segment::Variable { whole, variable } => match variable {
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
                    Variable::ClientPath { name } => format!("<place {name}>"),
                    Variable::Foreign => format!("<foreign {whole}>"),
                },
            })
            .collect();
        assert_eq!(shown.join("|"), expected, "for {text:?}");
    }

    #[test]
    fn the_notations_of_all_clients_are_parsed() {
        check("plain $HOME", "plain $HOME");
        check("${env:TOKEN}", "<env TOKEN>");
        check("a${TOKEN}b", "a|<env TOKEN>|b");
        check("${PORT:-80}${X:-}", "<env PORT or 80>|<env X or >");
        check("${env:A:-b c}", "<env A or b c>");
        check("Bearer ${input:my-key}", "Bearer |<input my-key>");
        check("${workspaceFolder}/src", "<place workspaceFolder>|/src");
        check("${userHome}${/}x", "<place userHome>|<foreign ${/}>|x");
        check("${command:pick}", "<foreign ${command:pick}>");
        check("${workspaceFolder:web}", "<foreign ${workspaceFolder:web}>");
        check("${file:~/key}", "<foreign ${file:~/key}>");
    }

    #[test]
    fn other_text_stays_unchanged() {
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
        (values.fill(text, Secret::Inserted, &mut filling), filling)
    }

    #[test]
    fn inserted_values_are_not_parsed_again() {
        let (text, filling) = filled("${A}-${env:A}", &[("A", "${B}")], &[]);
        assert_eq!(text, "${B}-${B}");
        assert!(filling.missing.is_empty());
        let both = [("env:key", "variable"), ("input:key", "input")];
        assert_eq!(
            filled("${env:key} ${input:key}", &both, &[]).0,
            "variable input"
        );
        let (_, filling) = filled("${workspaceFolderBasename}", &[], &[]);
        assert!(filling.foreign.contains("`${workspaceFolderBasename}`"));
    }

    #[test]
    fn many_unclosed_variables_are_parsed_in_linear_time() {
        let text = format!("{}}}", "${".repeat(2 << 20));
        let began = std::time::Instant::now();
        let read = segments(&text).count();
        assert_eq!(read, 1);
        assert!(began.elapsed() < std::time::Duration::from_mins(1));
        let far = format!("${{X:-{}}}", "x".repeat(MAX_VARIABLE_BYTES));
        check(&far, &far);
        check(&format!("{far}${{C}}"), &format!("{far}|<env C>"));
    }

    #[test]
    fn filled_text_is_bounded() {
        let long = "x".repeat(1 << 20);
        let (text, filling) = filled(&"${A}".repeat(1 << 20), &[("A", &long)], &[]);
        assert!(filling.is_too_long());
        assert_eq!(text.len(), MAX_FILLED_BYTES);
        let (text, filling) = filled("${A}${A}", &[("A", &long)], &[]);
        assert!(!filling.is_too_long());
        assert_eq!(text.len(), 2 << 20);
    }

    #[test]
    fn missing_values_are_reported_by_name() {
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
        fn pieces_join_to_the_text(text in "[${}a:/-]{0,24}") {
            let whole: String = segments(&text)
                .map(|segment| match segment {
                    Segment::Text(text) | Segment::Variable { whole: text, .. } => text,
                })
                .collect();
            prop_assert_eq!(whole, text);
        }
    }
}
