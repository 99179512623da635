//! The list of all tools, and the tools that send no request to the client.

use std::time::Duration;

use rmcp::ErrorData;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ClientCapabilities, ContentBlock,
    LoggingLevel, LoggingMessageNotificationParam, ProgressNotificationParam, Tool,
};
use serde_json::{Value, json};

use crate::server::{Change, Context, Fixture, model};

/// One red pixel.
pub(crate) const PICTURE: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC";
/// No samples at all.
const SOUND: &str = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA=";

const BETWEEN: Duration = Duration::from_millis(50);

/// The order is stable.
pub(crate) fn list() -> Result<Vec<Tool>, ErrorData> {
    let nothing = || json!({"type": "object", "properties": {}});
    let takes = |name: &str, kind: &str| json!({"type": "object", "properties": {name: {"type": kind}}, "required": [name]});
    let mut tools = vec![
        ("test_sampling", takes("prompt", "string")),
        ("test_elicitation", takes("message", "string")),
        ("json_schema_2020_12_tool", rich_schema()),
        ("test_custom_header", header_schema()),
        ("greet", takes("name", "string")),
        (
            "slow_compute",
            json!({"type": "object", "properties": {"seconds": {"type": "number"}, "label": {"type": "string"}}}),
        ),
        (
            "confirm_delete",
            json!({"type": "object", "properties": {"filename": {"type": "string"}}}),
        ),
    ];
    let plain = [
        "test_simple_text",
        "test_image_content",
        "test_audio_content",
        "test_embedded_resource",
        "test_multiple_content_types",
        "test_error_handling",
        "test_tool_with_logging",
        "test_tool_with_progress",
        "test_reconnection",
        "test_elicitation_sep1034_defaults",
        "test_elicitation_sep1330_enums",
        "test_trigger_tool_change",
        "test_trigger_prompt_change",
        "test_trigger_resource_change",
        "test_missing_capability",
        "test_streaming_elicitation",
        "test_logging_tool",
        "test_input_required_result_elicitation",
        "test_input_required_result_sampling",
        "test_input_required_result_list_roots",
        "test_input_required_result_request_state",
        "test_input_required_result_tampered_state",
        "test_input_required_result_multiple_inputs",
        "test_input_required_result_multi_round",
        "test_input_required_result_capabilities",
        "failing_job",
        "protocol_error_job",
        "multi_input",
        "test_tool_with_task",
    ];
    tools.extend(plain.map(|name| (name, nothing())));
    let described = |(name, schema): (&str, Value)| {
        let words = name.replace('_', " ");
        let description = format!("For the conformance suite: {words}.");
        model(json!({"name": name, "description": description, "inputSchema": schema}))
    };
    tools.into_iter().map(described).collect()
}

fn header_schema() -> Value {
    let value = json!({"type": "string", "x-mcp-header": "Value"});
    json!({"type": "object", "properties": {"value": value}, "required": ["value"]})
}

/// A schema with keywords that a gateway might drop.
fn rich_schema() -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "address",
                "type": "object",
                "properties": {"street": {"type": "string"}, "city": {"type": "string"}}
            }
        },
        "properties": {"name": {"type": "string"}, "address": {"$ref": "#/$defs/address"}},
        "allOf": [{"anyOf": [{"required": ["name"]}, {"required": ["address"]}]}],
        "if": {"required": ["address"]},
        "then": {"properties": {"address": {"required": ["street"]}}},
        "else": {"required": ["name"]},
        "additionalProperties": false
    })
}

pub(crate) fn says(text: impl Into<String>) -> CallToolResult {
    CallToolResult::success(vec![ContentBlock::text(text.into())])
}

pub(crate) fn argument<'a>(request: &'a CallToolRequestParams, name: &str) -> Option<&'a Value> {
    request.arguments.as_ref()?.get(name)
}

/// `None` for tools of other modules.
pub(crate) async fn call(
    fixture: &Fixture,
    request: &CallToolRequestParams,
    context: &Context,
) -> Result<Option<CallToolResponse>, ErrorData> {
    let content = |blocks: Value| Ok::<_, ErrorData>(CallToolResult::success(model(blocks)?));
    let result = match request.name.as_ref() {
        "test_simple_text" => says("This is a simple text response for testing."),
        "test_image_content" => content(json!([picture()]))?,
        "test_audio_content" => {
            content(json!([{"type": "audio", "data": SOUND, "mimeType": "audio/wav"}]))?
        }
        "test_embedded_resource" => content(json!([resource(
            "test://embedded-resource",
            "text/plain",
            "This is an embedded resource content.",
        )]))?,
        "test_multiple_content_types" => content(json!([
            {"type": "text", "text": "Multiple content types test:"},
            picture(),
            resource(
                "test://mixed-content-resource",
                "application/json",
                r#"{"test":"data","value":123}"#,
            ),
        ]))?,
        "test_error_handling" => CallToolResult::error(vec![ContentBlock::text(
            "This tool intentionally returns an error for testing",
        )]),
        "test_tool_with_logging" => {
            log_on_the_way(context).await;
            says("said three things on the way")
        }
        "test_tool_with_progress" => {
            progress_on_the_way(context).await;
            says("got there step by step")
        }
        "test_logging_tool" => {
            if let Some(level) = context.meta.log_level() {
                log(context, level, "a level was asked for").await;
            }
            says("logged if asked to")
        }
        "test_reconnection" => {
            tokio::time::sleep(BETWEEN * 2).await;
            says("still here")
        }
        "test_custom_header" | "json_schema_2020_12_tool" => {
            let given = argument(request, "value").or_else(|| argument(request, "name"));
            says(given.and_then(Value::as_str).unwrap_or("nothing was given"))
        }
        "test_missing_capability" => {
            let offers = context.client_capabilities().unwrap_or_default();
            if offers.sampling.is_none() {
                let needed = ClientCapabilities::builder().enable_sampling().build();
                return Err(ErrorData::missing_required_client_capability(needed));
            }
            says("the client can be asked")
        }
        "test_trigger_tool_change" => changed(fixture, Change::Tools, context).await,
        "test_trigger_prompt_change" => changed(fixture, Change::Prompts, context).await,
        "test_trigger_resource_change" => {
            let uri = "test://watched-resource";
            changed(fixture, Change::Resource(uri), context).await
        }
        _ => return Ok(None),
    };
    Ok(Some(result.into()))
}

pub(crate) fn picture() -> Value {
    json!({"type": "image", "data": PICTURE, "mimeType": "image/png"})
}

pub(crate) fn resource(uri: &str, kind: &str, text: &str) -> Value {
    json!({"type": "resource", "resource": {"uri": uri, "mimeType": kind, "text": text}})
}

async fn changed(fixture: &Fixture, change: Change, context: &Context) -> CallToolResult {
    fixture.announce(change, context).await;
    says("subscribers were notified")
}

async fn log_on_the_way(context: &Context) {
    let words = [
        "Tool execution started",
        "Tool processing data",
        "Tool execution completed",
    ];
    for words in words {
        log(context, LoggingLevel::Info, words).await;
        tokio::time::sleep(BETWEEN).await;
    }
}

async fn log(context: &Context, level: LoggingLevel, words: &str) {
    let message = LoggingMessageNotificationParam::new(level, json!(words)).with_logger("fixture");
    // The client may have disconnected.
    let _ = context.peer.notify_logging_message(message).await;
}

async fn progress_on_the_way(context: &Context) {
    let token = context.meta.get_progress_token();
    for progress in [0.0, 50.0, 100.0] {
        if let Some(token) = &token {
            let so_far = ProgressNotificationParam::new(token.clone(), progress).with_total(100.0);
            let _ = context.peer.notify_progress(so_far).await;
        }
        tokio::time::sleep(BETWEEN).await;
    }
}
