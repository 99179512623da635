//! Tools that send requests to a legacy client during the call.

use rmcp::ErrorData;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ElicitRequestParams,
    ElicitResult,
};
use rmcp::service::ServiceError;
use serde_json::{Value, json};

use crate::server::{Context, model};
use crate::tools::{argument, says};

/// `None` for tools of other modules.
pub(crate) async fn call(
    request: &CallToolRequestParams,
    context: &Context,
) -> Result<Option<CallToolResponse>, ErrorData> {
    let text = |name: &str| argument(request, name).and_then(Value::as_str);
    let answered = match request.name.as_ref() {
        "test_sampling" => sample(context, text("prompt").unwrap_or("Hello")).await?,
        "test_elicitation" => {
            let field = |words: &str| json!({"type": "string", "description": words});
            let fields = json!({
                "username": field("User's response"),
                "email": field("User's email address"),
            });
            let schema = schema(&fields, &["username", "email"]);
            let message = text("message").unwrap_or("Who are you?");
            in_words("User response", elicit(context, message, schema).await?)
        }
        "test_elicitation_sep1034_defaults" => {
            let answer = elicit(context, "All of this may stay as it is.", defaults()).await?;
            in_words("Elicitation completed", answer)
        }
        "test_elicitation_sep1330_enums" => {
            let answer = elicit(context, "Choose.", choices()).await?;
            in_words("Elicitation completed", answer)
        }
        _ => return Ok(None),
    };
    let result = answered.map_or_else(
        |error| CallToolResult::error(vec![ContentBlock::text(error.to_string())]),
        says,
    );
    Ok(Some(result.into()))
}

type Answered = Result<String, ServiceError>;

async fn sample(context: &Context, prompt: &str) -> Result<Answered, ErrorData> {
    let question = json!({
        "messages": [{"role": "user", "content": {"type": "text", "text": prompt}}],
        "maxTokens": 100,
    });
    let answer = context.peer.create_message(model(question)?).await;
    Ok(answer.map(|answer| {
        let first = answer.message.content.first();
        let text = first.and_then(|content| content.as_text());
        let text = text.map_or("nothing", |content| &content.text);
        format!("LLM response: {text}")
    }))
}

async fn elicit(
    context: &Context,
    message: &str,
    schema: Value,
) -> Result<Result<ElicitResult, ServiceError>, ErrorData> {
    let question = json!({"mode": "form", "message": message, "requestedSchema": schema});
    let question: ElicitRequestParams = model(question)?;
    Ok(context.peer.create_elicitation(question).await)
}

fn in_words(what: &str, answer: Result<ElicitResult, ServiceError>) -> Answered {
    answer.map(|answer| {
        let action = json!(answer.action);
        let action = action.as_str().unwrap_or_default();
        let content = answer.content.unwrap_or_default();
        format!("{what}: action={action}, content={content}")
    })
}

fn schema(properties: &Value, required: &[&str]) -> Value {
    json!({"type": "object", "properties": properties, "required": required})
}

fn defaults() -> Value {
    let fields = json!({
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {
            "type": "string",
            "enum": ["active", "inactive", "pending"],
            "default": "active"
        },
        "verified": {"type": "boolean", "default": true},
    });
    schema(&fields, &[])
}

fn choices() -> Value {
    let options = json!(["option1", "option2", "option3"]);
    let titled = |ordinals: [&str; 3], noun: &str| {
        let each = ordinals.iter().zip(1..).map(|(ordinal, at)| {
            json!({"const": format!("value{at}"), "title": format!("{ordinal} {noun}")})
        });
        Value::Array(each.collect())
    };
    let ordinals = ["First", "Second", "Third"];
    let fields = json!({
        "untitledSingle": {"type": "string", "enum": options},
        "titledSingle": {"type": "string", "oneOf": titled(ordinals, "Option")},
        "legacyEnum": {
            "type": "string",
            "enum": ["opt1", "opt2", "opt3"],
            "enumNames": ["Option One", "Option Two", "Option Three"]
        },
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled(ordinals, "Choice")}},
    });
    schema(&fields, &[])
}
