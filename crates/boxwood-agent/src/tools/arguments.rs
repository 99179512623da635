//! Parses and validates the arguments of a tool call. An error names the field and what it should be.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::schemas::TOOLS;

/// Limit of all environment variables of a command.
const MAX_ENVIRONMENT_BYTES: usize = 1024 * 1024;

/// The arguments of one tool.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "tool", content = "arguments", rename_all = "snake_case")]
pub enum Args {
    Exec(ExecArgs),
    Read(ReadArgs),
    Write(WriteArgs),
    Edit(EditArgs),
    Glob(GlobArgs),
    Grep(GrepArgs),
    Activate(ActivateArgs),
    RegisterSkill(RegisterSkillArgs),
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ExecArgs {
    pub command: String,
    pub workdir: String,
    /// Default: that of the profile.
    pub timeout_sec: Option<u64>,
    pub env: BTreeMap<String, String>,
    pub description: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ReadArgs {
    pub path: String,
    pub offset: Option<u64>,
    pub limit: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct WriteArgs {
    pub path: String,
    pub content: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct EditArgs {
    pub path: String,
    pub old_string: String,
    pub new_string: String,
    pub replace_all: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct GlobArgs {
    pub pattern: String,
    pub path: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct GrepArgs {
    pub pattern: String,
    pub path: String,
    pub include: Option<String>,
    pub file_type: Option<String>,
    pub ignore_case: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ActivateArgs {
    pub skill_name: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct RegisterSkillArgs {
    pub path: String,
    pub name: Option<String>,
    pub display_name: Option<String>,
    pub description: Option<String>,
    pub instructions: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentError {
    #[error("unknown tool `{name}`; the tools are {}", tool_names())]
    UnknownTool { name: String },
    #[error("{0}")]
    Invalid(String),
}

/// Reads the arguments of a tool.
pub fn check(name: &str, arguments: &Map<String, Value>) -> Result<Args, ArgumentError> {
    let tool = TOOLS.iter().find(|tool| tool.name == name);
    let tool = tool.ok_or_else(|| ArgumentError::UnknownTool { name: shown(name) })?;
    for field in tool.input_schema["required"]
        .as_array()
        .into_iter()
        .flatten()
    {
        if let Some(field) = field
            .as_str()
            .filter(|&field| !arguments.contains_key(field))
        {
            return Err(ArgumentError::Invalid(format!("{field} is required")));
        }
    }
    let fields = checked(&tool.input_schema, arguments)
        .map_err(|reason| ArgumentError::Invalid(format!("{name}: {reason}")))?;
    serde_json::from_value(json!({"tool": name, "arguments": fields}))
        .map_err(|error| ArgumentError::Invalid(format!("{name}: {error}")))
}

/// All fields of the schema that are given or have a default.
fn checked(schema: &Value, arguments: &Map<String, Value>) -> Result<Map<String, Value>, String> {
    let none = Map::new();
    let properties = schema["properties"].as_object().unwrap_or(&none);
    if let Some(field) = arguments
        .keys()
        .find(|&field| !properties.contains_key(field))
    {
        let mut known: Vec<&str> = properties.keys().map(String::as_str).collect();
        known.sort_unstable();
        let (field, known) = (shown(field), known.join(", "));
        return Err(format!("unknown field `{field}`; it takes {known}"));
    }
    let mut fields = Map::new();
    for (field, schema) in properties {
        let value = match arguments.get(field) {
            Some(value) => fitting(field, schema, value)?,
            None => match schema.get("default") {
                Some(default) => default.clone(),
                None => continue,
            },
        };
        fields.insert(field.clone(), value);
    }
    Ok(fields)
}

/// The value, if its schema allows it. Lengths are in bytes; JSON Schema has only characters.
fn fitting(field: &str, schema: &Value, value: &Value) -> Result<Value, String> {
    let mistyped = |expected: &str| format!("`{field}` must be {expected}, not {}", kind_of(value));
    let limit = |name: &str, default: u64| schema[name].as_u64().unwrap_or(default);
    match schema["type"].as_str() {
        Some("integer") => {
            let number = integer(value).ok_or_else(|| mistyped("a whole number"))?;
            let (min, max) = (limit("minimum", 0), limit("maximum", u64::MAX));
            let number = u64::try_from(number).ok();
            let number = number.filter(|number| (min..=max).contains(number));
            number
                .map(Value::from)
                .ok_or_else(|| format!("`{field}` must be between {min} and {max}"))
        }
        Some("boolean") if value.is_boolean() => Ok(value.clone()),
        Some("boolean") => Err(mistyped("true or false")),
        Some("object") => {
            let variables = value.as_object();
            let variables = variables.ok_or_else(|| mistyped("an object of strings"))?;
            let max_variable_bytes = schema["additionalProperties"]["maxLength"].as_u64();
            let max_variables = limit("maxProperties", u64::MAX);
            environment(
                field,
                variables,
                max_variables,
                max_variable_bytes.unwrap_or(u64::MAX),
            )?;
            Ok(value.clone())
        }
        _ => {
            let text = value.as_str().ok_or_else(|| mistyped("a string"))?;
            let (length, max_bytes) = (text.len() as u64, limit("maxLength", u64::MAX));
            if length < limit("minLength", 0) {
                Err(format!("`{field}` must not be empty"))
            } else if length > max_bytes {
                Err(format!(
                    "`{field}` must be at most {max_bytes} bytes, not {length}"
                ))
            } else {
                Ok(value.clone())
            }
        }
    }
}

fn environment(
    field: &str,
    variables: &Map<String, Value>,
    max_variables: u64,
    max_variable_bytes: u64,
) -> Result<(), String> {
    if variables.len() as u64 > max_variables {
        return Err(format!(
            "`{field}` must have at most {max_variables} variables"
        ));
    }
    let mut bytes = 0;
    for (name, value) in variables {
        let refused = |rule: &str| Err(format!("`{field}.{}` must {rule}", shown(name)));
        let Some(text) = value.as_str() else {
            return refused(&format!("be a string, not {}", kind_of(value)));
        };
        if name.is_empty() || name.contains(['=', '\0']) {
            return refused("have a name without `=` and NUL");
        }
        if text.contains('\0') {
            return refused("not contain NUL");
        }
        let length = name.len() + text.len() + 1;
        if length as u64 > max_variable_bytes {
            return refused(&format!(
                "be at most {max_variable_bytes} bytes with its name"
            ));
        }
        bytes += length;
    }
    if bytes > MAX_ENVIRONMENT_BYTES {
        return Err(format!(
            "`{field}` must be at most {MAX_ENVIRONMENT_BYTES} bytes in all"
        ));
    }
    Ok(())
}

/// A JSON number without a fraction is an integer, however it is written.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the number has no fraction and lies within the bounds of a wide integer"
)]
pub(crate) fn integer(value: &Value) -> Option<i128> {
    let Value::Number(number) = value else {
        return None;
    };
    if let Some(count) = number.as_i128() {
        return Some(count);
    }
    number
        .as_f64()
        .filter(|float| float.fract() == 0.0 && float.abs() < 1e30)
        .map(|float| float as i128)
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null (leave the field out instead)",
        Value::Bool(_) => "a boolean",
        Value::Number(number) if number.is_f64() => "a number with a fraction",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// An untrusted name, shortened for a message.
fn shown(name: &str) -> String {
    crate::output::truncate(name, 64).text
}

fn tool_names() -> String {
    let names: Vec<&str> = TOOLS.iter().map(|tool| tool.name.as_str()).collect();
    names.join(", ")
}
