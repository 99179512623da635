//! What a server says of itself, without the values of its variables.
//!
//! Comes in: tools and words as the server wrote them. Goes out: the same for people to see. The names of
//! tools stay as they are, for a tool is called by its name; so does what a schema says to programs.

use boxwood_api::McpToolInfo;
use serde_json::Value;
use serde_json::value::to_raw_value;

use super::Secrets;
use crate::wire::Greeting;

/// Every version there is has ten.
const VERSION_CHARS: usize = 64;
/// Where a schema has words for people, and values that a server took from somewhere.
const IN_WORDS: [&str; 4] = ["description", "title", "default", "examples"];

impl Secrets {
    pub(crate) fn hide_in_tools(&self, tools: &mut [McpToolInfo]) {
        for tool in tools {
            tool.description = self.hide(std::mem::take(&mut tool.description));
            self.hide_in_schema(&mut tool.parameters);
        }
    }

    /// The server's name and version, as it said.
    pub(crate) fn shown_info(&self, greeting: &Greeting) -> Option<Value> {
        let raw = greeting.short_info()?;
        let mut info = serde_json::from_str(raw.get()).ok()?;
        self.hide_in(&mut info);
        Some(info)
    }

    /// The version of the protocol, which is whatever the server says.
    pub(crate) fn shown_version(&self, greeting: &Greeting) -> String {
        let version = self.hide(greeting.protocol_version.clone());
        version.chars().take(VERSION_CHARS).collect()
    }

    /// Of a server that no client will ever talk to.
    pub(crate) fn hide_in_greeting(&self, greeting: &mut Greeting) {
        let shown = self.shown_info(greeting);
        greeting.server_info = shown.and_then(|info| to_raw_value(&info).ok());
        greeting.protocol_version = self.shown_version(greeting);
    }

    fn hide_in_schema(&self, schema: &mut Value) {
        match schema {
            Value::Object(fields) => {
                for (name, value) in fields {
                    if IN_WORDS.contains(&name.as_str()) {
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
    fn a_tool_keeps_its_name_and_what_programs_read() {
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
    fn a_version_is_hidden_before_it_is_cut() {
        let token = "hunter2-".repeat(20);
        let secrets = Secrets::of(&[("TOKEN".to_owned(), token.clone())].into());
        let shown = |version: &str| {
            let greeting = json!({
                "era": "legacy", "protocol_version": version, "result": {}, "capabilities": {},
                "server_info": null, "instructions": null,
            });
            let mut greeting = serde_json::from_str(&greeting.to_string()).expect("a greeting");
            let version = secrets.shown_version(&greeting);
            secrets.hide_in_greeting(&mut greeting);
            assert_eq!(greeting.protocol_version, version);
            version
        };
        assert_eq!(shown("2025-11-25"), "2025-11-25");
        assert_eq!(shown(&token), "[TOKEN]");
        assert_eq!(shown(&"9".repeat(100_000)).len(), VERSION_CHARS);
    }
}
