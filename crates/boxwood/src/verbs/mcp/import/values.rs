//! Collects the values that a pasted document refers to, from the environment and from prompts.
//!
//! Only variables that the document mentions are read.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use boxwood_mcp::{McpInput, McpMentions};

use super::prompt;
use crate::failure::{Failure, Outcome};
use crate::flags::{Assignment, assignments};
use crate::input;
use crate::output::printable::printable;

/// Limit of a file with a value.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// `ID=VALUE` or `ID=@FILE`.
pub(super) fn input_flag(text: &str) -> Result<Assignment, String> {
    let (id, value) = text.split_once('=').unwrap_or((text, ""));
    if id.is_empty() || id.len() == text.len() {
        // Without the value, which may be a secret.
        return Err(format!("`{id}` is not `ID=VALUE` or `ID=@FILE`"));
    }
    let value = match value.strip_prefix('@') {
        None => value.to_owned(),
        Some(path) => input::read_text(Path::new(path), MAX_FILE_BYTES)
            .map_err(|failure| failure.to_string())?
            .trim_end_matches(['\r', '\n'])
            .to_owned(),
    };
    Ok(Assignment {
        key: id.to_owned(),
        value,
    })
}

/// Values of this machine.
pub(super) struct LocalEnvironment<'a> {
    pub(super) workspace: PathBuf,
    pub(super) home: Option<String>,
    /// Reads an environment variable.
    pub(super) variable: &'a dyn Fn(&str) -> Option<String>,
}

#[derive(Default)]
pub(super) struct Gathered {
    /// By full name, such as `env:HOME` or `input:key`.
    pub(super) values: BTreeMap<String, String>,
    /// Descriptions for messages.
    pub(super) missing: Vec<String>,
}

impl Gathered {
    /// By its full name, or by its name alone.
    fn has(&self, kind: &str, name: &str) -> bool {
        self.values.contains_key(name) || self.values.contains_key(&format!("{kind}:{name}"))
    }
}

/// Prompts for one input.
pub(super) type Prompt<'a> = &'a mut dyn FnMut(&McpInput) -> io::Result<String>;

/// `prompt` asks the user; it is not called without a terminal.
pub(super) fn gather(
    mentions: &McpMentions,
    flags: &[Assignment],
    environment: &LocalEnvironment<'_>,
    mut prompt: Option<Prompt<'_>>,
) -> Outcome<Gathered> {
    let mut found = Gathered::default();
    // A flag may name an input or a variable, with or without its kind.
    found.values.extend(assignments(flags));
    for (name, has_default) in &mentions.environment {
        if found.has("env", name) {
            continue;
        }
        match (environment.variable)(name) {
            Some(value) => {
                found.values.insert(format!("env:{name}"), value);
            }
            None if *has_default => {}
            None => found.missing.push(format!("the variable `{name}`")),
        }
    }
    for input in &mentions.inputs {
        if found.has("input", &input.id) {
            continue;
        }
        let typed = match &mut prompt {
            Some(prompt) => Some(prompt(input).map_err(|error| {
                Failure::local(format!("no value for the input `{}`", input.id), error)
            })?),
            None => None,
        };
        match typed.filter(|typed| !typed.is_empty()) {
            Some(typed) => {
                found.values.insert(format!("input:{}", input.id), typed);
            }
            None if input.default.is_some() => {}
            None => found.missing.push(format!("the input `{}`", input.id)),
        }
    }
    let workspace = environment.workspace.to_string_lossy().into_owned();
    let home = environment.home.clone().map(|home| ("userHome", home));
    let variables = [Some(("workspaceFolder", workspace)), home];
    for (name, value) in variables.into_iter().flatten() {
        found.values.entry(name.to_owned()).or_insert(value);
    }
    Ok(found)
}

/// Prompts for an input with the description in the document.
pub(super) fn prompt_user(input: &McpInput) -> io::Result<String> {
    let description = input.description.as_deref().unwrap_or(&input.id);
    let mut question = printable(description).into_owned();
    if !input.options.is_empty() {
        let options = printable(&input.options.join(", ")).into_owned();
        question = format!("{question} ({options})");
    }
    if let Some(default) = &input.default {
        question = format!("{question} [{}]", printable(default));
    }
    if input.is_password {
        prompt::secret(&question)
    } else {
        prompt::line(&question)
    }
}

#[cfg(test)]
mod tests {
    use boxwood_mcp::mentions;
    use serde_json::{Value, json};

    use super::*;

    fn environment(variable: &dyn Fn(&str) -> Option<String>) -> LocalEnvironment<'_> {
        LocalEnvironment {
            workspace: PathBuf::from("/src/app"),
            home: Some("/home/a".to_owned()),
            variable,
        }
    }

    fn document() -> Value {
        json!({
            "inputs": [
                {"id": "key", "password": true},
                {"id": "region", "default": "eu"},
            ],
            "servers": {"a": {
                "command": "x", "args": ["${env:SET}", "${UNSET}", "${OTHER:-y}", "${input:region}"],
                "env": {"K": "${input:key}"},
            }},
        })
    }

    #[test]
    fn only_mentioned_variables_are_read_and_missing_ones_are_named() {
        let requested = std::cell::RefCell::new(Vec::new());
        let variable = |name: &str| {
            requested.borrow_mut().push(name.to_owned());
            (name == "SET").then(|| "here".to_owned())
        };
        let mentions = mentions(&document()).expect("a document");
        let Ok(found) = gather(&mentions, &[], &environment(&variable), None) else {
            panic!("nothing can fail");
        };
        assert_eq!(found.values["env:SET"], "here");
        assert_eq!(found.missing, ["the variable `UNSET`", "the input `key`"]);
        assert_eq!(*requested.borrow(), ["OTHER", "SET", "UNSET"]);
        assert_eq!(found.values["workspaceFolder"], "/src/app");
    }

    #[test]
    fn flags_take_precedence_and_prompts_supply_the_rest() {
        let mentions = mentions(&document()).expect("a document");
        let flags = [input_flag("UNSET=flag").expect("a flag")];
        let mut questions = Vec::new();
        let mut prompt = |input: &McpInput| {
            questions.push(input.id.clone());
            Ok(if input.id == "key" {
                "hunter2".to_owned()
            } else {
                String::new()
            })
        };
        let found = gather(
            &mentions,
            &flags,
            &environment(&|_| None),
            Some(&mut prompt),
        );
        let Ok(found) = found else {
            panic!("nothing can fail");
        };
        assert_eq!(found.missing, ["the variable `SET`"]);
        assert_eq!(found.values["input:key"], "hunter2");
        assert_eq!(found.values["UNSET"], "flag");
        assert_eq!(questions, ["key", "region"]);
    }

    #[test]
    fn flags_with_full_names_take_precedence_too() {
        let mentions = mentions(&document()).expect("a document");
        let flags = ["env:SET=flag", "input:key=flag"];
        let flags = flags.map(|flag| input_flag(flag).expect("a flag"));
        let mut questions = Vec::new();
        let mut prompt = |input: &McpInput| {
            questions.push(input.id.clone());
            Ok(String::new())
        };
        let environment = environment(&|_| Some("shell".to_owned()));
        let Ok(found) = gather(&mentions, &flags, &environment, Some(&mut prompt)) else {
            panic!("nothing can fail");
        };
        assert_eq!(found.values["env:SET"], "flag");
        assert_eq!(found.values["env:UNSET"], "shell");
        assert_eq!(found.values["input:key"], "flag");
        assert_eq!(questions, ["region"]);
    }

    #[test]
    fn input_flags_hide_their_values() {
        let flag = input_flag("key=hunter2").expect("a flag");
        assert!(!format!("{flag:?}").contains("hunter2"));
        let error = input_flag("hunter2").expect_err("no flag");
        assert!(error.contains("ID=VALUE"), "{error}");
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("secret");
        std::fs::write(&path, "from file\n").expect("written");
        let flag = input_flag(&format!("key=@{}", path.display())).expect("a flag");
        assert_eq!(flag.value, "from file");
        assert!(input_flag("key=@/nonexistent").is_err());
    }
}
