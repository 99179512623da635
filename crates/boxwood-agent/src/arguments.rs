//! Parses and validates the arguments of a tool call. An error names the field and what it should be.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::schemas::{
    Field, Kind, MOST_COUNT, MOST_ENVIRONMENT_BYTES, MOST_VALUE_BYTES, MOST_VARIABLES, Needed,
    TOOLS, Tool,
};

/// The arguments of one tool.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// Left out: what the settings say.
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
    #[error("{tool}: unknown field `{field}`; it takes {}", known.join(", "))]
    UnknownField {
        tool: &'static str,
        field: String,
        known: Vec<&'static str>,
    },
    #[error("{field} is required")]
    Missing { field: &'static str },
    #[error("{tool}: `{field}` must be {wanted}, not {found}")]
    Mistyped {
        tool: &'static str,
        field: String,
        wanted: &'static str,
        found: &'static str,
    },
    #[error("{tool}: `{field}` {rule}")]
    OutOfBounds {
        tool: &'static str,
        field: String,
        rule: String,
    },
}

/// Reads the arguments of a tool.
pub fn check(name: &str, arguments: &Map<String, Value>) -> Result<Args, ArgumentError> {
    let tool = TOOLS.iter().find(|tool| tool.name == name);
    let tool = tool.ok_or_else(|| ArgumentError::UnknownTool { name: shown(name) })?;
    let fields = checked(tool, arguments)?;
    Ok(match tool.name {
        "exec" => Args::Exec(typed(tool, fields)?),
        "read" => Args::Read(typed(tool, fields)?),
        "write" => Args::Write(typed(tool, fields)?),
        "edit" => Args::Edit(typed(tool, fields)?),
        "glob" => Args::Glob(typed(tool, fields)?),
        "grep" => Args::Grep(typed(tool, fields)?),
        "activate" => Args::Activate(typed(tool, fields)?),
        "register_skill" => Args::RegisterSkill(typed(tool, fields)?),
        other => return Err(ArgumentError::UnknownTool { name: shown(other) }),
    })
}

/// Every field of the tool, as given or as it is by default.
fn checked(
    tool: &'static Tool,
    arguments: &Map<String, Value>,
) -> Result<Map<String, Value>, ArgumentError> {
    for field in arguments.keys() {
        if !tool.fields.iter().any(|known| known.name == field) {
            return Err(ArgumentError::UnknownField {
                tool: tool.name,
                field: shown(field),
                known: tool.fields.iter().map(|known| known.name).collect(),
            });
        }
    }
    let mut fields = Map::new();
    for field in tool.fields {
        let value = match arguments.get(field.name) {
            Some(value) => fitting(tool, field, value)?,
            None => match field.needed {
                Needed::Yes => return Err(ArgumentError::Missing { field: field.name }),
                // The profile knows how long.
                Needed::No | Needed::Timeout => continue,
                Needed::Text(text) => text.into(),
                Needed::Flag(flag) => flag.into(),
                Needed::Nothing => Value::Object(Map::new()),
            },
        };
        fields.insert(field.name.to_owned(), value);
    }
    Ok(fields)
}

/// The value, if the schema allows it.
fn fitting(tool: &'static Tool, field: &Field, value: &Value) -> Result<Value, ArgumentError> {
    let mistyped = |wanted| ArgumentError::Mistyped {
        tool: tool.name,
        field: field.name.to_owned(),
        wanted,
        found: kind_of(value),
    };
    let refused = |rule| ArgumentError::OutOfBounds {
        tool: tool.name,
        field: field.name.to_owned(),
        rule,
    };
    match field.kind {
        Kind::Text { least, most } => {
            let text = value.as_str().ok_or_else(|| mistyped("a string"))?;
            if text.len() < least {
                return Err(refused("must not be empty".to_owned()));
            }
            if text.len() > most {
                let len = text.len();
                return Err(refused(format!("must be at most {most} bytes, not {len}")));
            }
            Ok(value.clone())
        }
        Kind::Count => {
            let count = whole(value).ok_or_else(|| mistyped("a whole number"))?;
            if !(1..=i128::from(MOST_COUNT)).contains(&count) {
                return Err(refused(format!("must be between 1 and {MOST_COUNT}")));
            }
            u64::try_from(count)
                .map(Value::from)
                .map_err(|_| mistyped("a whole number"))
        }
        Kind::Flag => match value {
            Value::Bool(_) => Ok(value.clone()),
            _ => Err(mistyped("true or false")),
        },
        Kind::Environment => {
            let variables = value
                .as_object()
                .ok_or_else(|| mistyped("an object of strings"))?;
            environment(tool, field, variables)?;
            Ok(value.clone())
        }
    }
}

fn environment(
    tool: &'static Tool,
    field: &Field,
    variables: &Map<String, Value>,
) -> Result<(), ArgumentError> {
    let refused = |field: String, rule: String| ArgumentError::OutOfBounds {
        tool: tool.name,
        field,
        rule,
    };
    let of = |name: &str| format!("{}.{}", field.name, shown(name));
    if variables.len() > MOST_VARIABLES {
        let rule = format!("must have at most {MOST_VARIABLES} variables");
        return Err(refused(field.name.to_owned(), rule));
    }
    let mut bytes = 0;
    for (name, value) in variables {
        let Some(text) = value.as_str() else {
            return Err(ArgumentError::Mistyped {
                tool: tool.name,
                field: of(name),
                wanted: "a string",
                found: kind_of(value),
            });
        };
        if name.is_empty() || name.contains(['=', '\0']) {
            let rule = "must have a name without `=` and NUL".to_owned();
            return Err(refused(of(name), rule));
        }
        if text.contains('\0') {
            return Err(refused(of(name), "must not contain NUL".to_owned()));
        }
        let one = name.len() + text.len() + 1;
        if one > MOST_VALUE_BYTES {
            let rule = format!("must be at most {MOST_VALUE_BYTES} bytes with its name");
            return Err(refused(of(name), rule));
        }
        bytes += one;
    }
    if bytes > MOST_ENVIRONMENT_BYTES {
        let rule = format!("must be at most {MOST_ENVIRONMENT_BYTES} bytes in all");
        return Err(refused(field.name.to_owned(), rule));
    }
    Ok(())
}

/// A JSON number without a fraction is an integer, however it is written.
#[expect(
    clippy::cast_possible_truncation,
    reason = "the number has no fraction and lies within the bounds of a wide integer"
)]
fn whole(value: &Value) -> Option<i128> {
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

fn typed<T: serde::de::DeserializeOwned>(
    tool: &'static Tool,
    fields: Map<String, Value>,
) -> Result<T, ArgumentError> {
    serde_json::from_value(Value::Object(fields)).map_err(|error| ArgumentError::OutOfBounds {
        tool: tool.name,
        field: "arguments".to_owned(),
        rule: format!("cannot be read: {error}"),
    })
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
    crate::truncate(name, 64).text
}

fn tool_names() -> String {
    let names: Vec<&str> = TOOLS.iter().map(|tool| tool.name).collect();
    names.join(", ")
}
