//! Names, descriptions and JSON schemas of the tools.
//!
//! They are in `tools.json`. Arguments are checked against the same schemas.

use std::sync::LazyLock;

use boxwood_api::ToolInfo;
use serde_json::{Value, json};

/// Default timeout of a command in the built-in profiles.
pub const DEFAULT_TIMEOUT_SEC: u64 = 30;

/// In the order in which they are best shown.
pub(crate) static TOOLS: LazyLock<Vec<ToolInfo>> = LazyLock::new(|| {
    serde_json::from_str(include_str!("tools.json")).expect("`tools.json` describes tools")
});

/// All tools, with the default timeout of the built-in profiles.
pub fn tools() -> Vec<ToolInfo> {
    tools_for(Some(DEFAULT_TIMEOUT_SEC))
}

/// All tools. `timeout_sec` is the default timeout of a command, if it is known.
pub fn tools_for(timeout_sec: Option<u64>) -> Vec<ToolInfo> {
    let mut tools = TOOLS.clone();
    for tool in &mut tools {
        if let Some(timeout) = tool.input_schema.pointer_mut("/properties/timeout_sec")
            && let Some(timeout_sec) = timeout_sec
        {
            timeout["default"] = json!(timeout_sec);
        }
    }
    tools
}

/// A tool in the format of OpenAI's function calling.
pub fn openai(tool: &ToolInfo) -> Value {
    json!({
        "type": "function",
        "function": {
            "name": tool.name,
            "description": tool.description,
            "parameters": tool.input_schema,
        },
    })
}
