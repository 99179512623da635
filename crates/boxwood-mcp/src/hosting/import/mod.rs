//! A client's configuration, pasted as it is.
//!
//! Comes in: the JSON of Claude, Cursor, VS Code, Windsurf and their relatives, and values for its
//! variables. Goes out: servers of ours, and for every other one why it was left out. Never here: files,
//! the environment, and questions to people; whoever imports brings the values along.

mod entry;
mod names;
mod variables;

use std::collections::{BTreeMap, BTreeSet};

use boxwood_api::{ImportMcpRequest, ImportedMcp, McpServerSpec, SkippedMcp};
use serde_json::{Map, Value};

use super::HostingError;
use super::check::check;
use names::legal_names;
use variables::Values;

pub use variables::McpInput;
pub(super) use variables::{Piece, Variable, pieces};

/// Nobody has so many; a document that does is a mistake or an attack.
const MAX_SERVERS: usize = 500;
/// The same of what it asks people for. Each variable is looked up among them.
const MAX_INPUTS: usize = 1000;

/// The servers of the document that can be added, and the report so far: who was skipped, and what is
/// worth knowing.
pub fn read_document(
    request: &ImportMcpRequest,
) -> Result<(Vec<McpServerSpec>, ImportedMcp), HostingError> {
    let document = Document::find(&request.document)?;
    let values = Values {
        given: &request.inputs,
        inputs: &document.inputs,
    };
    let mut report = ImportedMcp {
        skipped: document.elsewhere,
        ..ImportedMcp::default()
    };
    let wanted: Vec<&str> = document.servers.keys().map(String::as_str).collect();
    let mut servers = Vec::new();
    for (wanted, name) in legal_names(&wanted) {
        let mut notices = Vec::new();
        let read = document.servers.get(wanted).map_or_else(
            || Err("it is not in the document".to_owned()),
            |entry| entry::read(entry, &name, &values, &mut notices),
        );
        let checked = read.and_then(|spec| match check(&spec) {
            Ok(()) => Ok(spec),
            Err(error) => Err(error.to_string()),
        });
        match checked {
            Ok(spec) => {
                if name.as_str() != wanted {
                    let wanted: String = wanted.chars().take(80).collect();
                    report.notices.push(format!(
                        "`{wanted}` cannot name a server, so it is called `{name}` here"
                    ));
                }
                let about = notices
                    .into_iter()
                    .chain(super::launch::notice(&spec))
                    .map(|notice| format!("`{name}`: {notice}"));
                report.notices.extend(about);
                servers.push(spec);
            }
            Err(why) => report.skipped.push(SkippedMcp {
                name: wanted.to_owned(),
                why,
            }),
        }
    }
    Ok((servers, report))
}

/// What a document asks for, so that whoever imports it can bring that and nothing else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct McpMentions {
    /// Variables of the environment, with whether the document can do without.
    pub environment: BTreeMap<String, bool>,
    /// In the order of the document's own list; those it has no word about come last.
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
    let mut asked = BTreeSet::new();
    for text in texts {
        for piece in pieces(text) {
            let Piece::Variable { variable, .. } = piece else {
                continue;
            };
            match variable {
                Variable::Environment { name, default } => {
                    let can_do_without =
                        mentions.environment.entry(name.to_owned()).or_insert(true);
                    *can_do_without &= default.is_some();
                }
                Variable::Input { id } => {
                    asked.insert(id);
                }
                Variable::Place { name } => {
                    mentions.places.insert(name.to_owned());
                }
                Variable::Foreign => {}
            }
        }
    }
    for input in &document.inputs {
        if asked.remove(input.id.as_str()) {
            mentions.inputs.push(input.clone());
        }
    }
    mentions.inputs.extend(asked.into_iter().map(|id| McpInput {
        id: id.to_owned(),
        // Nothing is known of it, so it may be a secret.
        is_password: true,
        ..McpInput::default()
    }));
    Ok(mentions)
}

struct Document<'a> {
    servers: &'a Map<String, Value>,
    inputs: Vec<McpInput>,
    elsewhere: Vec<SkippedMcp>,
}

/// Where clients keep their servers. The first that is there is meant.
const PLACES: [&[&str]; 4] = [
    &["mcpServers"],
    &["servers"],
    &["mcp", "servers"],
    &["context_servers"],
];

impl<'a> Document<'a> {
    fn find(document: &'a Value) -> Result<Self, HostingError> {
        let invalid = |message: &str| HostingError::invalid("document", message);
        let Value::Object(whole) = document else {
            return Err(invalid(SHAPE));
        };
        let found = PLACES.into_iter().find_map(|place| at(whole, place));
        let (servers, beside) = match found {
            Some((Value::Object(servers), beside)) => (servers, beside),
            None if whole.contains_key("command") || whole.contains_key("url") => {
                let fix = "a server needs a name: paste it as `{\"mcpServers\": {\"NAME\": …}}`";
                return Err(invalid(fix));
            }
            None if !whole.is_empty() && whole.values().all(entry::is_like_a_server) => {
                (whole, whole)
            }
            Some(_) | None => return Err(invalid(SHAPE)),
        };
        if servers.len() > MAX_SERVERS {
            let many = servers.len();
            return Err(invalid(&format!(
                "{many} servers are too many for one document; at most {MAX_SERVERS}"
            )));
        }
        Ok(Self {
            servers,
            inputs: inputs(beside.get("inputs")),
            elsewhere: of_projects(whole),
        })
    }
}

const SHAPE: &str = "no servers were found; paste `{\"mcpServers\": {\"NAME\": {\"command\": …}}}`, as Claude, \
     Cursor and Windsurf have it, or `{\"servers\": …}`, as VS Code has it";

/// What is there, and the object that it is in.
fn at<'a>(
    whole: &'a Map<String, Value>,
    place: &[&str],
) -> Option<(&'a Value, &'a Map<String, Value>)> {
    let (last, before) = place.split_last()?;
    let mut inside = whole;
    for step in before {
        inside = inside.get(*step)?.as_object()?;
    }
    Some((inside.get(*last)?, inside))
}

fn inputs(list: Option<&Value>) -> Vec<McpInput> {
    let text = |input: &Value, field: &str| input[field].as_str().map(str::to_owned);
    list.and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|input| {
            Some(McpInput {
                id: text(input, "id")?,
                description: text(input, "description"),
                is_password: input["password"].as_bool() == Some(true),
                default: text(input, "default").filter(|default| !default.is_empty()),
                options: options(&input["options"]),
            })
        })
        .take(MAX_INPUTS)
        .collect()
}

fn options(list: &Value) -> Vec<String> {
    let of = |option: &Value| {
        option
            .as_str()
            .or_else(|| option["value"].as_str())
            .map(str::to_owned)
    };
    list.as_array()
        .into_iter()
        .flatten()
        .filter_map(of)
        .collect()
}

/// Claude Code keeps the servers of each project in the same file. Whose they are is not ours to mix.
fn of_projects(whole: &Map<String, Value>) -> Vec<SkippedMcp> {
    let mut found = Vec::new();
    let projects = whole.get("projects").and_then(Value::as_object);
    for (project, settings) in projects.into_iter().flatten() {
        for name in settings["mcpServers"]
            .as_object()
            .into_iter()
            .flat_map(Map::keys)
        {
            found.push(SkippedMcp {
                name: name.clone(),
                why: format!("it belongs to the project `{project}`; paste that part to import it"),
            });
        }
    }
    found
}

#[cfg(test)]
mod tests;
