//! Imports the configuration of an MCP client, such as Claude, Cursor, VS Code or Windsurf.
//!
//! Reads no files and no environment. The caller supplies the values of variables.

mod entry;
mod names;
mod variables;

use std::collections::{BTreeMap, BTreeSet};

use boxwood_api::{ImportMcpRequest, ImportedMcp, McpServerSpec, SkippedMcp};
use serde_json::{Map, Value};

use super::validate::check;
use crate::hosting::HostingError;
use names::legal_names;
use variables::Values;

pub use variables::McpInput;
pub(super) use variables::{Segment, Variable, segments};

const MAX_SERVERS: usize = 500;
/// The list is searched for every variable, so its length is limited.
const MAX_INPUTS: usize = 1000;

/// The servers that can be added, and a report with skipped servers and notices.
pub fn read_document(
    request: &ImportMcpRequest,
) -> Result<(Vec<McpServerSpec>, ImportedMcp), HostingError> {
    let document = Document::find(&request.document)?;
    let values = Values {
        given: &request.inputs,
        inputs: &document.inputs,
    };
    let mut report = ImportedMcp {
        skipped: document.skipped,
        ..ImportedMcp::default()
    };
    let names: Vec<&str> = document.servers.keys().map(String::as_str).collect();
    let mut servers = Vec::new();
    for (original, name) in legal_names(&names) {
        let mut notices = Vec::new();
        let parsed = document.servers.get(original).map_or_else(
            || Err("it is not in the document".to_owned()),
            |entry| entry::read(entry, &name, &values, &mut notices),
        );
        let validated = parsed.and_then(|spec| match check(&spec) {
            Ok(()) => Ok(spec),
            Err(error) => Err(error.to_string()),
        });
        match validated {
            Ok(spec) => {
                if name.as_str() != original {
                    let original: String = original.chars().take(80).collect();
                    report.notices.push(format!(
                        "`{original}` is not a valid server name; it was added as `{name}`"
                    ));
                }
                let prefixed = notices
                    .into_iter()
                    .chain(crate::hosting::launch::notice(&spec))
                    .map(|notice| format!("`{name}`: {notice}"));
                report.notices.extend(prefixed);
                servers.push(spec);
            }
            Err(why) => report.skipped.push(SkippedMcp {
                name: original.to_owned(),
                why,
            }),
        }
    }
    Ok((servers, report))
}

/// The variables of a document, so that the caller can supply exactly these.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct McpMentions {
    /// Environment variables. The value is true if the document has a default.
    pub environment: BTreeMap<String, bool>,
    /// In the order of the document's list, followed by undeclared ones.
    pub inputs: Vec<McpInput>,
    /// `workspaceFolder`, `userHome`.
    pub places: BTreeSet<String>,
}

pub fn mentions(document: &Value) -> Result<McpMentions, HostingError> {
    let document = Document::find(document)?;
    let mut texts = Vec::new();
    for entry in document.servers.values() {
        texts.extend(entry::texts(entry));
    }
    let mut mentions = McpMentions::default();
    let mut input_ids = BTreeSet::new();
    for text in texts {
        for segment in segments(text) {
            let Segment::Variable { variable, .. } = segment else {
                continue;
            };
            match variable {
                Variable::Environment { name, default } => {
                    let has_default = mentions.environment.entry(name.to_owned()).or_insert(true);
                    *has_default &= default.is_some();
                }
                Variable::Input { id } => {
                    input_ids.insert(id);
                }
                Variable::ClientPath { name } => {
                    mentions.places.insert(name.to_owned());
                }
                Variable::Foreign => {}
            }
        }
    }
    for input in &document.inputs {
        if input_ids.remove(input.id.as_str()) {
            mentions.inputs.push(input.clone());
        }
    }
    mentions
        .inputs
        .extend(input_ids.into_iter().map(|id| McpInput {
            id: id.to_owned(),
            // Undeclared, so it may be a secret.
            is_password: true,
            ..McpInput::default()
        }));
    Ok(mentions)
}

struct Document<'a> {
    servers: &'a Map<String, Value>,
    inputs: Vec<McpInput>,
    /// Servers that are not imported from this document.
    skipped: Vec<SkippedMcp>,
}

impl<'a> Document<'a> {
    fn find(document: &'a Value) -> Result<Self, HostingError> {
        let invalid = |message: &str| HostingError::invalid("document", message);
        let Value::Object(root) = document else {
            return Err(invalid(SHAPE));
        };
        // The first match is used. VS Code also stores servers in `mcp` of its settings.
        let in_settings = root.get("mcp").and_then(Value::as_object);
        let found = [
            (Some(root), "mcpServers"),
            (Some(root), "servers"),
            (in_settings, "servers"),
            (Some(root), "context_servers"),
        ]
        .into_iter()
        .find_map(|(parent, key)| Some((parent?.get(key)?, parent?)));
        let (servers, parent) = match found {
            Some((Value::Object(servers), parent)) => (servers, parent),
            None if root.contains_key("command") || root.contains_key("url") => {
                let message =
                    "the server has no name: write it as `{\"mcpServers\": {\"NAME\": …}}`";
                return Err(invalid(message));
            }
            None if !root.is_empty() && root.values().all(entry::is_like_a_server) => (root, root),
            Some(_) | None => return Err(invalid(SHAPE)),
        };
        if servers.len() > MAX_SERVERS {
            let count = servers.len();
            return Err(invalid(&format!(
                "the document has {count} servers; the limit is {MAX_SERVERS}"
            )));
        }
        Ok(Self {
            servers,
            inputs: inputs(parent.get("inputs")),
            skipped: of_projects(root),
        })
    }
}

const SHAPE: &str = "no servers were found; paste `{\"mcpServers\": {\"NAME\": {\"command\": …}}}`, as Claude, \
     Cursor and Windsurf have it, or `{\"servers\": …}`, as VS Code has it";

fn inputs(list: Option<&Value>) -> Vec<McpInput> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let entries = |list: Option<&Value>| list.and_then(Value::as_array).cloned();
    let read = |input: Value| {
        let options = entries(input.get("options")).unwrap_or_default();
        Some(McpInput {
            id: text(&input["id"])?,
            description: text(&input["description"]),
            is_password: input["password"] == true,
            default: text(&input["default"]).filter(|default| !default.is_empty()),
            options: options
                .iter()
                .filter_map(|option| text(option).or_else(|| text(&option["value"])))
                .collect(),
        })
    };
    let inputs = entries(list).unwrap_or_default().into_iter();
    inputs.filter_map(read).take(MAX_INPUTS).collect()
}

/// Claude Code stores the servers of all projects in one file. They are skipped, because they belong to different
/// projects.
fn of_projects(root: &Map<String, Value>) -> Vec<SkippedMcp> {
    let mut skipped = Vec::new();
    let projects = root.get("projects").and_then(Value::as_object);
    for (project, settings) in projects.into_iter().flatten() {
        let why = format!("it belongs to the project `{project}`; import that section separately");
        let servers = settings["mcpServers"].as_object().into_iter().flatten();
        skipped.extend(servers.map(|(name, _)| SkippedMcp {
            name: name.clone(),
            why: why.clone(),
        }));
    }
    skipped
}

#[cfg(test)]
mod tests;
