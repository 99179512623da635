//! Hides the tools that the definition of a server denies, in calls and in lists.

use boxwood_api::McpServerName;
use serde_json::value::RawValue;

use crate::gateway::aggregate::lists::{Kind, refused};
use crate::gateway::error::RpcError;
use crate::gateway::json::{items, object, raw};
use crate::gateway::server_registry::HostedServer;
use crate::wire::{Message, Object};

/// A filtered tool is reported as unknown.
pub(crate) fn check_call(
    hosted: &dyn HostedServer,
    method: &str,
    params: Option<&RawValue>,
) -> Result<(), RpcError> {
    if method != "tools/call" || hosted.allows_all_tools() {
        return Ok(());
    }
    let params: Option<Object> = params.and_then(object);
    let name = params.and_then(|params| params.text("name"));
    let name =
        name.ok_or_else(|| RpcError::malformed("`params` must be an object with a text `name`"))?;
    if hosted.allows_tool(&name) {
        Ok(())
    } else {
        Err(RpcError::unknown_tool(&name))
    }
}

/// Removes the filtered tools from a `tools/list` response.
pub(crate) fn filter_list(hosted: &dyn HostedServer, method: &str, answer: Message) -> Message {
    if method != "tools/list" || hosted.allows_all_tools() {
        return answer;
    }
    without_filtered(hosted.name(), answer, |tool| hosted.allows_tool(tool))
}

/// Returns an error if the list cannot be parsed, so that no hidden tool gets through.
fn without_filtered(
    server: &McpServerName,
    answer: Message,
    allows_tool: impl Fn(&str) -> bool,
) -> Message {
    let Some(result) = answer.outcome() else {
        return answer;
    };
    let is_allowed = |tool: &&RawValue| {
        let name = object(tool).and_then(|tool| tool.text("name"));
        name.is_some_and(|name| allows_tool(&name))
    };
    let result = object(result);
    let tools = result.as_ref().and_then(|it| it.get(Kind::Tools.key()));
    let tools = tools.and_then(items).map(|tools| {
        let tools: Vec<&RawValue> = tools.into_iter().filter(is_allowed).collect();
        raw(&tools)
    });
    let (Some(mut result), Some(tools)) = (result, tools) else {
        return refused(Kind::Tools, server, &answer).message(answer.id());
    };
    result.set(Kind::Tools.key(), tools);
    answer.with_result(result.raw())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_cannot_be_read_shows_no_tool() {
        let server = McpServerName::new("odd").expect("a legal name");
        let filtered = |result: &str| {
            let answer = format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#);
            let answer = Message::parse(answer.as_bytes()).expect("a message");
            let filtered = without_filtered(&server, answer, |tool| tool == "open");
            String::from_utf8(filtered.json().to_vec()).expect("UTF-8")
        };
        let both = r#"[{"name":"open"},{"name":"secret"},7]"#;
        assert_eq!(
            filtered(&format!(r#"{{"tools":{both},"x":1}}"#)),
            r#"{"jsonrpc":"2.0","id":1,"result":{"tools":[{"name":"open"}],"x":1}}"#
        );
        for odd in [
            format!(r#"{{"tools":[],"tools":{both}}}"#),
            format!(r#"{{"tools":{{"all":{both}}}}}"#),
            format!(r#"{{"Tools":{both}}}"#),
            both.to_owned(),
        ] {
            let filtered = filtered(&odd);
            assert!(!filtered.contains("secret"), "{filtered}");
            assert!(filtered.contains(r#""id":1,"error""#), "{filtered}");
        }
    }
}
