//! Applies variables such as `BOX__LOCAL__HOST_ROOT` to the `box` section. The caller passes the variables; the environment of
//! the process is not read.

use serde_json::{Map, Value};

/// Prefix of the variables of this section.
const PREFIX: &str = "BOX__";

/// LangBot's variable for a forced session-id template. Used if the section has none: ignoring it would widen the sharing
/// of boxes.
pub const PLATFORM_GUARD: &str = "SYSTEM__LIMITATION__FORCE_BOX_SESSION_ID_TEMPLATE";

/// The path of the key that a variable sets, or `None` if it is not a variable of the section.
fn key_path(name: &str) -> Option<Vec<String>> {
    let path = name.strip_prefix(PREFIX)?;
    if name.chars().any(char::is_lowercase) {
        return None;
    }
    Some(path.split("__").map(str::to_lowercase).collect())
}

/// Sets the keys that the variables name. Returns the variables whose key does not exist or is a table.
pub(crate) fn apply(
    tree: &mut Map<String, Value>,
    variables: impl IntoIterator<Item = (String, String)>,
) -> Vec<String> {
    // Sorted, so that the result does not depend on the order of the environment.
    let mut variables: Vec<_> = variables.into_iter().collect();
    variables.sort();
    let mut unused = Vec::new();
    let mut guard = None;
    for (name, text) in variables {
        if name == PLATFORM_GUARD {
            guard = Some(text);
            continue;
        }
        let Some(path) = key_path(&name) else {
            continue;
        };
        match key(tree, &path) {
            Some(value) => *value = overridden(value, text),
            None => unused.push(name),
        }
    }
    if let Some(guard) = guard {
        let configured = tree.get("force_session_id_template");
        let is_blank = |value: &Value| value.as_str().is_some_and(|text| text.trim().is_empty());
        if configured.is_none_or(|value| value.is_null() || is_blank(value)) {
            tree.insert("force_session_id_template".to_owned(), guard.into());
        }
    }
    unused
}

/// The value at a path, unless it is a table.
fn key<'a>(tree: &'a mut Map<String, Value>, path: &[String]) -> Option<&'a mut Value> {
    let (last, tables) = path.split_last()?;
    let mut table = tree;
    for name in tables {
        table = table.get_mut(name)?.as_object_mut()?;
    }
    table.get_mut(last).filter(|value| !value.is_object())
}

/// The text, converted to the type of the current value. Text that is no number stays a string.
fn overridden(current: &Value, text: String) -> Value {
    match current {
        Value::Bool(_) => Value::Bool(matches!(
            text.to_lowercase().as_str(),
            "true" | "1" | "yes" | "on"
        )),
        Value::Number(number) if number.is_f64() => match text.trim().parse::<f64>() {
            Ok(float) => Value::from(float),
            Err(_) => Value::String(text),
        },
        Value::Number(_) => match text.trim().parse::<i64>() {
            Ok(integer) => Value::from(integer),
            Err(_) => Value::String(text),
        },
        Value::Array(_) => Value::from(listed(&text)),
        Value::Null | Value::String(_) | Value::Object(_) => Value::String(text),
    }
}

/// Splits a list at its commas.
pub(crate) fn listed(text: &str) -> Vec<String> {
    text.split(',')
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .map(str::to_owned)
        .collect()
}
