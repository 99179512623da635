//! Converts tool results and errors to MCP.

use boxwood_agent::ToolError;
use boxwood_api::{ToolAnswer, ToolInfo};
use rmcp::model::{CallToolResult, ContentBlock, JsonObject, MetaObject, Tool, ToolAnnotations};
use serde_json::{Value, json};

use super::conversation::SESSION_META;

/// Key in a result's `_meta` with the code, state and hint of an error.
const ERROR_META: &str = "io.boxwood/error";

/// `ok: false` in a result is an error that the model should see.
pub(crate) fn answered(answer: ToolAnswer) -> CallToolResult {
    let failed = answer.result.get("ok") == Some(&Value::Bool(false));
    let value = Value::Object(answer.result);
    let mut result = CallToolResult::default();
    result.content = vec![ContentBlock::text(value.to_string())];
    result.structured_content = Some(value);
    result.is_error = Some(failed);
    result.meta = answer
        .session_id
        .map(|id| meta(SESSION_META, Value::from(id)));
    result
}

/// Without structured content, which would have to match the tool's output schema.
pub(crate) fn refused(error: &ToolError) -> CallToolResult {
    let mut result = CallToolResult::default();
    result.content = vec![ContentBlock::text(refusal(error))];
    result.is_error = Some(true);
    result.meta = Some(meta(ERROR_META, refusal_facts(error)));
    result
}

/// The message, and the hint on the next line.
pub(crate) fn refusal(error: &ToolError) -> String {
    let mut text = error.message.clone();
    if let Some(hint) = &error.hint {
        text.push('\n');
        text.push_str(hint);
    }
    text
}

pub(crate) fn refusal_facts(error: &ToolError) -> Value {
    json!({ "code": error.code, "state": error.state, "hint": error.hint })
}

pub(crate) fn meta(key: &str, value: Value) -> MetaObject {
    let mut object = JsonObject::new();
    object.insert(key.to_owned(), value);
    MetaObject(object)
}

pub(crate) fn tool(info: ToolInfo) -> Tool {
    let annotations = ToolAnnotations::with_title(info.title.clone())
        .read_only(info.annotations.read_only)
        .destructive(info.annotations.destructive)
        .idempotent(info.annotations.idempotent)
        .open_world(info.annotations.open_world);
    Tool::new(info.name, info.description, object(info.input_schema))
        .with_title(info.title)
        .with_raw_output_schema(object(info.output_schema).into())
        .with_annotations(annotations)
}

fn object(schema: Value) -> JsonObject {
    match schema {
        Value::Object(object) => object,
        _ => JsonObject::new(),
    }
}

#[cfg(test)]
mod tests {
    use boxwood_api::{AgentState, ErrorCode};

    use super::*;

    fn answer(result: Value) -> ToolAnswer {
        ToolAnswer {
            result: object(result),
            session_id: Some("s".to_owned()),
        }
    }

    #[test]
    fn a_result_is_both_structured_and_text() {
        let result = answered(answer(json!({"ok": true, "stdout": "hi"})));
        assert_eq!(result.is_error, Some(false));
        assert_eq!(
            result.structured_content,
            Some(json!({"ok": true, "stdout": "hi"}))
        );
        let text = result.content[0].as_text().expect("text");
        assert_eq!(
            serde_json::from_str::<Value>(&text.text).expect("JSON"),
            json!({"ok": true, "stdout": "hi"})
        );
        assert_eq!(result.meta, Some(meta(SESSION_META, json!("s"))));
    }

    #[test]
    fn a_failed_operation_is_an_error_with_its_result() {
        let result = answered(answer(json!({"ok": false, "error": "no such file"})));
        assert_eq!(result.is_error, Some(true));
        assert!(result.structured_content.is_some());
    }

    #[test]
    fn an_error_contains_its_hint() {
        let result = refused(&ToolError {
            code: ErrorCode::BackendUnavailable,
            message: "the sandbox is off".to_owned(),
            hint: Some("set box.enabled = true".to_owned()),
            state: Some(AgentState::Disabled),
        });
        assert_eq!(result.is_error, Some(true));
        assert_eq!(result.structured_content, None);
        let text = &result.content[0].as_text().expect("text").text;
        assert_eq!(text, "the sandbox is off\nset box.enabled = true");
    }
}
