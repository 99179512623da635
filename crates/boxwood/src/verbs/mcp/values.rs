//! Collects the values that a pasted document refers to, from the environment and from prompts.
//!
//! Only variables that the document mentions are read.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use boxwood_mcp::{McpInput, McpMentions};
use serde_json::{Map, Value};

use super::{env_file, prompt};
use crate::failure::{Failure, Outcome};

/// No file of variables is longer.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// `ID=VALUE` or `ID=@FILE`.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct InputFlag {
    id: String,
    value: String,
}

/// The value may be a secret.
impl std::fmt::Debug for InputFlag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "InputFlag({}=..)", self.id)
    }
}

pub(super) fn input_flag(text: &str) -> Result<InputFlag, String> {
    let help = || {
        format!(
            "`{}` is not `ID=VALUE` or `ID=@FILE`",
            text.split('=').next().unwrap_or(text)
        )
    };
    let (id, value) = text
        .split_once('=')
        .filter(|(id, _)| !id.is_empty())
        .ok_or_else(help)?;
    let value = match value.strip_prefix('@') {
        None => value.to_owned(),
        Some(path) => read_text(Path::new(path))
            .map_err(|error| format!("`{path}` cannot be read: {error}"))?
            .trim_end_matches(['\r', '\n'])
            .to_owned(),
    };
    Ok(InputFlag {
        id: id.to_owned(),
        value,
    })
}

/// What this machine knows without being asked.
pub(super) struct LocalEnvironment<'a> {
    pub(super) workspace: PathBuf,
    pub(super) home: Option<String>,
    /// The environment.
    pub(super) variable: &'a dyn Fn(&str) -> Option<String>,
}

#[derive(Default)]
pub(super) struct Gathered {
    /// By their full names, as `env:HOME` and `input:key`.
    pub(super) values: BTreeMap<String, String>,
    /// In words.
    pub(super) missing: Vec<String>,
}

impl Gathered {
    /// By its full name, or by its name alone.
    fn has(&self, kind: &str, name: &str) -> bool {
        self.values.contains_key(name) || self.values.contains_key(&format!("{kind}:{name}"))
    }
}

/// Asks the person about one input.
pub(super) type Answer<'a> = &'a mut dyn FnMut(&McpInput) -> io::Result<String>;

/// `answer` prompts the user; it is not called without a terminal.
pub(super) fn gather(
    mentions: &McpMentions,
    flags: &[InputFlag],
    environment: &LocalEnvironment<'_>,
    mut answer: Option<Answer<'_>>,
) -> Outcome<Gathered> {
    let mut found = Gathered::default();
    for flag in flags {
        // A flag may mean an input or a variable, and may say which.
        found.values.insert(flag.id.clone(), flag.value.clone());
    }
    for (name, can_do_without) in &mentions.environment {
        if found.has("env", name) {
            continue;
        }
        match (environment.variable)(name) {
            Some(value) => {
                found.values.insert(format!("env:{name}"), value);
            }
            None if *can_do_without => {}
            None => found.missing.push(format!("the variable `{name}`")),
        }
    }
    for input in &mentions.inputs {
        if found.has("input", &input.id) {
            continue;
        }
        let typed = match &mut answer {
            Some(answer) => Some(answer(input).map_err(|error| {
                Failure::local(format!("no answer about `{}`", input.id), error)
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
    found
        .values
        .entry("workspaceFolder".to_owned())
        .or_insert(workspace);
    if let Some(home) = &environment.home {
        found
            .values
            .entry("userHome".to_owned())
            .or_insert_with(|| home.clone());
    }
    Ok(found)
}

/// Asks about one input, in the document's own words.
pub(super) fn prompt_user(input: &McpInput) -> io::Result<String> {
    let about = input.description.as_deref().unwrap_or(&input.id);
    let mut question = crate::printable::printable(about).into_owned();
    if !input.options.is_empty() {
        let options = crate::printable::printable(&input.options.join(", ")).into_owned();
        question = format!("{question} ({options})");
    }
    if let Some(default) = &input.default {
        question = format!("{question} [{}]", crate::printable::printable(default));
    }
    if input.is_password {
        prompt::secret(&question)
    } else {
        prompt::line(&question)
    }
}

/// Puts the variables of every `envFile` into `env`, each behind a name of its own, so that nothing in
/// a value is taken for a variable. What `env` says already stays.
pub(super) fn take_env_files(
    document: &mut Value,
    values: &mut BTreeMap<String, String>,
    workspace: &Path,
) -> Outcome<()> {
    let mut number = 0_usize;
    for servers in servers_of(document) {
        for (name, server) in servers.iter_mut() {
            let Value::Object(server) = server else {
                continue;
            };
            let Some(Value::String(path)) = server.get("envFile") else {
                continue;
            };
            let path = filled(path, values).ok_or_else(|| {
                Failure::usage(format!(
                    "the `envFile` of `{name}` has a variable that is not known"
                ))
                .hint("write the path of the file instead")
            })?;
            let path = workspace.join(path);
            let text = read_text(&path).map_err(|error| {
                Failure::local(
                    format!(
                        "the `envFile` of `{name}`, `{}`, cannot be read",
                        path.display()
                    ),
                    error,
                )
                .hint("make it, or take `envFile` out of the document")
            })?;
            let variables = env_file::parse(&text).map_err(|why| {
                Failure::usage(format!(
                    "the `envFile` of `{name}`, `{}`: {why}",
                    path.display()
                ))
            })?;
            server.remove("envFile");
            let env = server
                .entry("env")
                .or_insert_with(|| Value::Object(Map::new()));
            let Value::Object(env) = env else {
                continue;
            };
            let stated: Vec<String> = env.keys().cloned().collect();
            for (key, value) in variables {
                if stated.contains(&key) {
                    continue;
                }
                number += 1;
                let id = format!("env-file-{number}");
                env.insert(key, Value::String(format!("${{input:{id}}}")));
                values.insert(format!("input:{id}"), value);
            }
        }
    }
    Ok(())
}

/// Wherever the document keeps servers.
fn servers_of(document: &mut Value) -> Vec<&mut Map<String, Value>> {
    let Value::Object(whole) = document else {
        return Vec::new();
    };
    let is_nested = ["mcpServers", "servers", "mcp", "context_servers"]
        .iter()
        .any(|place| whole.contains_key(*place));
    if !is_nested {
        return vec![whole];
    }
    let mut found = Vec::new();
    for (place, value) in whole {
        match (place.as_str(), value) {
            ("mcpServers" | "servers" | "context_servers", Value::Object(servers)) => {
                found.push(servers);
            }
            ("mcp", Value::Object(inner)) => {
                if let Some(Value::Object(servers)) = inner.get_mut("servers") {
                    found.push(servers);
                }
            }
            _ => {}
        }
    }
    found
}

/// The path with its variables' values in it; `None` when one has none. A value is put in as it is: a `${`
/// in it means nothing.
fn filled(path: &str, values: &BTreeMap<String, String>) -> Option<String> {
    let mut text = String::new();
    let mut rest = path;
    while let Some((before, behind)) = rest.split_once("${") {
        let (variable, behind) = behind.split_once('}')?;
        text.push_str(before);
        text.push_str(value_of(variable, values)?);
        rest = behind;
    }
    text.push_str(rest);
    Some(text)
}

/// Of `env:NAME`, `NAME`, either with `:-default`, `input:id`, `workspaceFolder` or `userHome`. What a flag
/// says is known by the name alone.
fn value_of<'a>(variable: &'a str, values: &'a BTreeMap<String, String>) -> Option<&'a str> {
    let (variable, default) = match variable.split_once(":-") {
        Some((variable, default)) => (variable, Some(default)),
        None => (variable, None),
    };
    let name = ["env:", "input:"]
        .iter()
        .find_map(|kind| variable.strip_prefix(kind))
        .unwrap_or(variable);
    values
        .get(variable)
        .or_else(|| values.get(name))
        .or_else(|| values.get(&format!("env:{name}")))
        .map(String::as_str)
        .or(default)
}

fn read_text(path: &Path) -> io::Result<String> {
    use std::io::Read as _;

    let mut text = String::new();
    std::fs::File::open(path)?
        .take(MAX_FILE_BYTES + 1)
        .read_to_string(&mut text)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(io::Error::other("it is longer than 1 MiB"));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use boxwood_mcp::mentions;
    use serde_json::json;

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
    fn only_what_is_mentioned_is_read_and_what_is_missing_is_named() {
        let asked = std::cell::RefCell::new(Vec::new());
        let variable = |name: &str| {
            asked.borrow_mut().push(name.to_owned());
            (name == "SET").then(|| "here".to_owned())
        };
        let mentions = mentions(&document()).expect("a document");
        let Ok(found) = gather(&mentions, &[], &environment(&variable), None) else {
            panic!("nothing can fail");
        };
        assert_eq!(found.values["env:SET"], "here");
        assert_eq!(found.missing, ["the variable `UNSET`", "the input `key`"]);
        assert_eq!(*asked.borrow(), ["OTHER", "SET", "UNSET"]);
        assert_eq!(found.values["workspaceFolder"], "/src/app");
    }

    #[test]
    fn flags_come_first_and_people_are_asked_for_the_rest() {
        let mentions = mentions(&document()).expect("a document");
        let flags = [input_flag("UNSET=flag").expect("a flag")];
        let mut questions = Vec::new();
        let mut answer = |input: &McpInput| {
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
            Some(&mut answer),
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
    fn flags_with_full_names_come_first_as_well() {
        let mentions = mentions(&document()).expect("a document");
        let flags = ["env:SET=flag", "input:key=flag"];
        let flags = flags.map(|flag| input_flag(flag).expect("a flag"));
        let mut questions = Vec::new();
        let mut answer = |input: &McpInput| {
            questions.push(input.id.clone());
            Ok(String::new())
        };
        let environment = environment(&|_| Some("shell".to_owned()));
        let Ok(found) = gather(&mentions, &flags, &environment, Some(&mut answer)) else {
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

    #[test]
    fn files_of_variables_are_read_here_and_mean_what_they_say() {
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::write(dir.path().join(".env"), "A=${NOT_A_VARIABLE}\nB=file\n").expect("written");
        let mut document = json!({"servers": {"s": {
            "command": "x", "envFile": "${workspaceFolder}/.env", "env": {"B": "stated"},
        }}});
        let folder = dir.path().to_string_lossy().into_owned();
        let mut values = BTreeMap::from([("workspaceFolder".to_owned(), folder)]);
        let taken = take_env_files(&mut document, &mut values, dir.path());
        assert!(taken.is_ok());
        let request = boxwood_api::ImportMcpRequest {
            document,
            inputs: values,
            replace: false,
        };
        let (servers, report) = boxwood_mcp::read_document(&request).expect("a document");
        assert_eq!(report.skipped, []);
        let env: Vec<_> = servers[0]
            .env
            .iter()
            .map(|(k, v)| (k.as_str(), v.as_str()))
            .collect();
        assert_eq!(env, [("A", "${NOT_A_VARIABLE}"), ("B", "stated")]);
    }

    #[test]
    fn the_path_of_such_a_file_has_the_variables_that_everything_else_has() {
        let values = [
            ("env:HERE", "/here"),
            ("FLAG", "/flag"),
            ("input:dir", "/typed"),
            ("env:LOOP", "${env:LOOP}/${FLAG}"),
            ("userHome", "/home/a"),
        ];
        let values = values.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let values = BTreeMap::from(values);
        for (path, expected) in [
            ("plain/.env", Some("plain/.env")),
            ("${env:HERE}/.env", Some("/here/.env")),
            ("${HERE}/.env", Some("/here/.env")),
            ("${env:FLAG}/.env", Some("/flag/.env")),
            ("${FLAG}/${userHome}.env", Some("/flag//home/a.env")),
            ("${NONE:-/else}/.env", Some("/else/.env")),
            ("${env:HERE:-/else}/.env", Some("/here/.env")),
            ("${input:dir}/.env", Some("/typed/.env")),
            ("${env:LOOP}/.env", Some("${env:LOOP}/${FLAG}/.env")),
            ("${NONE}/.env", None),
            ("${HERE", None),
        ] {
            assert_eq!(filled(path, &values).as_deref(), expected, "{path}");
        }
    }

    #[test]
    fn the_path_of_such_a_file_is_asked_about_as_well() {
        let document = json!({"servers": {"s": {"command": "x", "envFile": "${DIR}/.env"}}});
        let mentions = mentions(&document).expect("a document");
        assert!(mentions.environment.contains_key("DIR"));
    }

    #[test]
    fn a_missing_file_of_variables_is_told_by_its_path() {
        let mut document = json!({"s": {"command": "x", "envFile": "nowhere.env"}});
        let taken = take_env_files(
            &mut document,
            &mut BTreeMap::new(),
            Path::new("/nonexistent"),
        );
        let text = taken
            .err()
            .map(|it| it.report(crate::output::OutputFormat::Table));
        assert!(text.is_some_and(|text| text.contains("/nonexistent/nowhere.env")));
    }
}
