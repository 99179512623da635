//! Parses one server of an imported document.

use std::collections::{BTreeMap, BTreeSet};

use boxwood_api::{McpBoxSettings, McpServerName, McpServerSpec, McpToolFilter};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::variables::{Filling, Secret, Values};

/// Keys that only remote servers have.
const REMOTE_KEYS: [&str; 3] = ["url", "serverUrl", "httpUrl"];
/// Programs that are often written in one string with their arguments.
const LAUNCHERS: [&str; 10] = [
    "npx", "npm", "bunx", "uvx", "uv", "pipx", "node", "python", "python3", "deno",
];
/// Supported keys.
const SUPPORTED_KEYS: &str = "command args env environment envFile cwd type transport transportType disabled enabled \
     isActive box tools includeTools excludeTools disabledTools idle_stop_sec with startup_timeout_sec";
/// Keys that are ignored without a notice.
const IGNORED_KEYS: &str = "name description alwaysAllow autoApprove trust timeout version gallery source dev \
     logo provider";

pub(super) fn is_like_a_server(entry: &Value) -> bool {
    let has = |field: &str| entry.get(field).is_some();
    has("command") || REMOTE_KEYS.iter().any(|field| has(field))
}

/// All texts of a server that may contain variables.
pub(super) fn texts(entry: &Value) -> Vec<&str> {
    if REMOTE_KEYS.iter().any(|field| entry.get(field).is_some()) {
        return Vec::new();
    }
    ["command", "args", "env", "environment", "envFile", "cwd"]
        .iter()
        .filter_map(|field| entry.get(field))
        .flat_map(|value| match value {
            Value::String(text) => vec![text.as_str()],
            Value::Array(list) => list.iter().filter_map(Value::as_str).collect(),
            Value::Object(map) => map.values().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        })
        .collect()
}

/// Returns the definition, or the reason why the server is skipped.
pub(super) fn read(
    entry: &Value,
    name: &McpServerName,
    values: &Values<'_>,
    notices: &mut Vec<String>,
) -> Result<McpServerSpec, String> {
    let Value::Object(entry) = entry else {
        return Err("it is not an object with a `command`".to_owned());
    };
    check_is_local(entry)?;
    if entry.contains_key("envFile") {
        return Err(
            "`envFile` is not supported, because it is a file of the client's machine; put its variables into `env`"
                .to_owned(),
        );
    }
    let mut filling = Filling::default();
    let (command, args) = command_line(entry, notices)?;
    let args = args
        .iter()
        .map(|argument| values.fill(argument, Secret::Placeholder, &mut filling))
        .collect();
    let mut fill = |text: &str| values.fill(text, Secret::Inserted, &mut filling);
    let mut spec = McpServerSpec {
        name: name.clone(),
        command: fill(&command),
        args,
        env: environment(entry)?
            .into_iter()
            .map(|(name, value)| (name, fill(&value)))
            .collect(),
        cwd: field::<String>(entry, "cwd")?
            .filter(|cwd| !cwd.is_empty())
            .map(|cwd| fill(&cwd)),
        enabled: is_enabled(entry)?,
        settings: box_settings(entry, notices)?,
        tools: tools(entry, notices)?,
        idle_stop_sec: field(entry, "idle_stop_sec")?,
        with: field(entry, "with")?.unwrap_or_default(),
    };
    if filling.is_too_long() {
        return Err("its texts are too long after its variables are filled in".to_owned());
    }
    check_is_complete(&filling)?;
    for id in &filling.defaults {
        notices.push(format!("the input `{id}` uses the document's default"));
    }
    let is_unknown = |field: &&String| {
        let mut known = SUPPORTED_KEYS.split(' ').chain(IGNORED_KEYS.split(' '));
        !known.any(|known| known == *field)
    };
    add_ignored("", entry.keys().filter(is_unknown), notices);
    spec.env.append(&mut filling.secrets);
    Ok(spec)
}

fn check_is_complete(filling: &Filling) -> Result<(), String> {
    let listed = |set: &BTreeSet<String>| set.iter().cloned().collect::<Vec<_>>().join(", ");
    if !filling.foreign.is_empty() {
        return Err(format!(
            "{} is known only to the client; replace it by its value",
            listed(&filling.foreign)
        ));
    }
    if !filling.missing.is_empty() {
        return Err(format!(
            "no value was given for {}; pass it with `boxwood mcp import --input`, or in `inputs` of the request",
            listed(&filling.missing)
        ));
    }
    Ok(())
}

/// Adds a notice about keys that are ignored. `prefix` is put before each of them.
fn add_ignored<'a>(
    prefix: &str,
    keys: impl Iterator<Item = &'a String>,
    notices: &mut Vec<String>,
) {
    let ignored: Vec<String> = keys
        .map(|key| format!("`{prefix}{}`", shortened(key)))
        .take(10)
        .collect();
    if !ignored.is_empty() {
        let ignored = ignored.join(", ");
        notices.push(format!("{ignored} is not supported and was ignored"));
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(40).collect()
}

fn check_is_local(entry: &Map<String, Value>) -> Result<(), String> {
    let is_remote = REMOTE_KEYS.iter().any(|field| entry.contains_key(*field));
    for field in ["type", "transport", "transportType"] {
        match entry.get(field).map(Value::as_str) {
            None | Some(Some("stdio" | "local" | "")) => {}
            Some(Some("sse" | "http" | "streamable-http" | "streamableHttp" | "remote" | "ws")) => {
                return Err(REMOTE_SERVER.to_owned());
            }
            Some(_) if is_remote => {}
            Some(other) => {
                let other = shortened(other.unwrap_or("(not a string)"));
                return Err(format!(
                    "its {field} `{other}` is not supported; use `stdio`"
                ));
            }
        }
    }
    if is_remote {
        return Err(REMOTE_SERVER.to_owned());
    }
    Ok(())
}

const REMOTE_SERVER: &str = "it is a remote server, which Boxwood does not host";

fn command_line(
    entry: &Map<String, Value>,
    notices: &mut Vec<String>,
) -> Result<(String, Vec<String>), String> {
    let texts = |list: &[Value]| {
        list.iter()
            .map(plain)
            .collect::<Option<Vec<_>>>()
            .ok_or(ARGS)
    };
    let mut args = match entry.get("args") {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(list)) => texts(list)?,
        Some(_) => return Err(ARGS.to_owned()),
    };
    let mut command = match entry.get("command") {
        Some(Value::String(command)) if !command.trim().is_empty() => command.clone(),
        // Some clients write the whole command line as a list.
        Some(Value::Array(line)) if !line.is_empty() => {
            args.splice(0..0, texts(line)?);
            args.remove(0)
        }
        _ => return Err(NO_COMMAND.to_owned()),
    };
    if args.is_empty() {
        let mut words = command.split_whitespace();
        let first = words.next().unwrap_or_default();
        let arguments: Vec<String> = words.map(str::to_owned).collect();
        let is_plain = !command.contains(['"', '\'', '\\']);
        if !arguments.is_empty() && is_plain && LAUNCHERS.contains(&first) {
            notices.push(format!(
                "its command was split into `{first}` and arguments"
            ));
            (command, args) = (first.to_owned(), arguments);
        }
    }
    Ok((command, args))
}

const ARGS: &str = "its `args` are not a list of strings";
const NO_COMMAND: &str = "it has no `command`";

/// Clients accept numbers and booleans as text.
fn plain(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Values may be secrets, so errors do not contain them.
fn environment(entry: &Map<String, Value>) -> Result<BTreeMap<String, String>, String> {
    let mut environment = BTreeMap::new();
    for key in ["environment", "env"] {
        match entry.get(key) {
            None | Some(Value::Null) => {}
            Some(Value::Object(variables)) => {
                for (name, value) in variables {
                    // In some clients null removes an inherited variable. A box inherits none.
                    if value.is_null() {
                        continue;
                    }
                    let value = plain(value)
                        .ok_or_else(|| format!("its {key} `{name}` is not a string"))?;
                    environment.insert(name.clone(), value);
                }
            }
            Some(_) => return Err(format!("its `{key}` is not an object")),
        }
    }
    Ok(environment)
}

fn is_enabled(entry: &Map<String, Value>) -> Result<bool, String> {
    let is_disabled = field::<bool>(entry, "disabled")?.unwrap_or(false);
    let is_enabled = field::<bool>(entry, "enabled")?.unwrap_or(true);
    let is_active = field::<bool>(entry, "isActive")?.unwrap_or(true);
    Ok(!is_disabled && is_enabled && is_active)
}

/// Unknown settings are ignored with a notice.
fn box_settings(
    entry: &Map<String, Value>,
    notices: &mut Vec<String>,
) -> Result<McpBoxSettings, String> {
    let mut settings: Map<String, Value> = field(entry, "box")?.unwrap_or_default();
    // Null means absent.
    settings.retain(|_, value| !value.is_null());
    if let Some(seconds) = entry.get("startup_timeout_sec") {
        settings
            .entry("startup_timeout_sec")
            .or_insert_with(|| seconds.clone());
    }
    let mut ignored = Vec::new();
    settings.retain(|key, value| {
        let single = Map::from_iter([(key.clone(), value.clone())]);
        let read = serde_json::from_value::<McpBoxSettings>(Value::Object(single));
        let is_unknown = read.is_err_and(|error| error.to_string().starts_with("unknown field"));
        if is_unknown {
            ignored.push(key.clone());
        }
        !is_unknown
    });
    add_ignored("box.", ignored.iter(), notices);
    serde_json::from_value(Value::Object(settings)).map_err(|error| format!("its `box`: {error}"))
}

/// A list of names means `allow`, and `["*"]` means all. In clients an empty list means no tools, so it must not
/// become an unfiltered server here.
fn tools(entry: &Map<String, Value>, notices: &mut Vec<String>) -> Result<McpToolFilter, String> {
    let mut filter = match entry.get("tools") {
        Some(Value::Array(_)) => McpToolFilter {
            allow: field(entry, "tools")?.unwrap_or_default(),
            deny: Vec::new(),
        },
        _ => field(entry, "tools")?.unwrap_or_default(),
    };
    filter
        .allow
        .extend(field::<Vec<String>>(entry, "includeTools")?.unwrap_or_default());
    let lists = [entry.get("tools"), entry.get("includeTools")];
    let names_none = lists
        .into_iter()
        .flatten()
        .any(|list| list.as_array().is_some_and(Vec::is_empty));
    if names_none && filter.allow.is_empty() {
        filter.deny.push("*".to_owned());
        notices.push("its list of tools is empty, so all tools are disabled".to_owned());
    }
    for key in ["excludeTools", "disabledTools"] {
        filter
            .deny
            .extend(field::<Vec<String>>(entry, key)?.unwrap_or_default());
    }
    Ok(filter)
}

fn field<T: DeserializeOwned>(entry: &Map<String, Value>, name: &str) -> Result<Option<T>, String> {
    match entry.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => serde_json::from_value(value.clone())
            .map(Some)
            .map_err(|error| format!("its `{name}`: {error}")),
    }
}
