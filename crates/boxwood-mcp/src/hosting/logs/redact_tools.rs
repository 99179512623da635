//! Redacts what a server says about itself and its tools.
//!
//! Tool names stay unchanged because they are used in calls, and so do the parts of a schema that programs read.

use boxwood_api::McpToolInfo;
use serde_json::Value;

use crate::hosting::Secrets;
use crate::wire::Handshake;

/// Current protocol versions have 10 characters.
const VERSION_CHARS: usize = 64;
/// Keys of a schema whose values are shown to users.
const TEXT_KEYS: [&str; 4] = ["description", "title", "default", "examples"];

impl Secrets {
    pub(crate) fn hide_in_tools(&self, tools: &mut [McpToolInfo]) {
        for tool in tools {
            tool.description = self.hide(std::mem::take(&mut tool.description));
            self.hide_in_schema(&mut tool.parameters);
        }
    }

    /// Name and version of the server.
    pub(crate) fn shown_info(&self, handshake: &Handshake) -> Option<Value> {
        let raw = handshake.short_info()?;
        let mut info = serde_json::from_str(raw.get()).ok()?;
        self.hide_in(&mut info);
        Some(info)
    }

    pub(crate) fn shown_version(&self, handshake: &Handshake) -> String {
        let version = self.hide(handshake.protocol_version.clone());
        version.chars().take(VERSION_CHARS).collect()
    }

    fn hide_in_schema(&self, schema: &mut Value) {
        match schema {
            Value::Object(fields) => {
                for (name, value) in fields {
                    if TEXT_KEYS.contains(&name.as_str()) {
                        self.hide_in(value);
                    } else {
                        self.hide_in_schema(value);
                    }
                }
            }
            Value::Array(list) => list.iter_mut().for_each(|value| self.hide_in_schema(value)),
            _ => {}
        }
    }

    fn hide_in(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.hide(std::mem::take(text)),
            Value::Array(list) => list.iter_mut().for_each(|value| self.hide_in(value)),
            Value::Object(fields) => fields.values_mut().for_each(|value| self.hide_in(value)),
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn tool_names_and_schemas_stay_unchanged() {
        let variables = [("TOKEN", "hunter2-long"), ("PREFIX", "string")];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let secrets = Secrets::of(&variables.into());
        let mut tools = [McpToolInfo {
            name: "string_of".to_owned(),
            description: "with hunter2-long".to_owned(),
            parameters: json!({"type": "object", "required": ["string"], "properties": {"string": {
                "type": "string", "description": "not hunter2-long", "default": "hunter2-long",
                "examples": [["hunter2-long"], 7], "enum": ["string"],
            }}}),
        }];
        secrets.hide_in_tools(&mut tools);
        let [tool] = tools;
        assert_eq!(tool.name, "string_of");
        assert_eq!(tool.description, "with [TOKEN]");
        assert_eq!(
            tool.parameters,
            json!({"type": "object", "required": ["string"], "properties": {"string": {
                "type": "string", "description": "not [TOKEN]", "default": "[TOKEN]",
                "examples": [["[TOKEN]"], 7], "enum": ["string"],
            }}})
        );
    }

    #[test]
    fn a_version_is_redacted_before_it_is_cut() {
        let token = "hunter2-".repeat(20);
        let secrets = Secrets::of(&[("TOKEN".to_owned(), token.clone())].into());
        let shown = |version: &str| {
            let handshake = json!({
                "era": "legacy", "protocol_version": version, "result": {}, "capabilities": {},
                "server_info": null, "instructions": null,
            });
            let handshake = serde_json::from_str(&handshake.to_string()).expect("a handshake");
            secrets.shown_version(&handshake)
        };
        assert_eq!(shown("2025-11-25"), "2025-11-25");
        assert_eq!(shown(&token), "[TOKEN]");
        assert_eq!(shown(&"9".repeat(100_000)).len(), VERSION_CHARS);
    }
}
