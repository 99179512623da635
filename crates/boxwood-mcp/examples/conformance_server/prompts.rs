//! The prompts, one of which requires input of the client.

use rmcp::ErrorData;
use rmcp::model::{GetPromptRequestParams, GetPromptResponse, InputResponses, Prompt};
use serde_json::{Value, json};

use crate::rounds::{self, Needed, Step, Taken, content, form, response};
use crate::server::{Context, model};
use crate::tools::{picture, resource};

pub(crate) fn list() -> Result<Vec<Prompt>, ErrorData> {
    let takes = |names: &[&str]| {
        let one = |name: &&str| {
            let description = format!("For the conformance suite: {name}.");
            json!({"name": name, "description": description, "required": true})
        };
        Value::Array(names.iter().map(one).collect())
    };
    let prompts = [
        ("test_simple_prompt", takes(&[])),
        ("test_prompt_with_arguments", takes(&["arg1", "arg2"])),
        (
            "test_prompt_with_embedded_resource",
            takes(&["resourceUri"]),
        ),
        ("test_prompt_with_image", takes(&[])),
        ("test_input_required_result_prompt", takes(&[])),
    ];
    let described = |(name, arguments): (&str, Value)| {
        let description = format!("For the conformance suite: {}.", name.replace('_', " "));
        model(json!({"name": name, "description": description, "arguments": arguments}))
    };
    prompts.into_iter().map(described).collect()
}

pub(crate) async fn get(
    request: &GetPromptRequestParams,
    context: &Context,
) -> Result<GetPromptResponse, ErrorData> {
    let argument = |name: &str| {
        let given = request.arguments.as_ref().and_then(|all| all.get(name));
        given.and_then(Value::as_str).unwrap_or_default()
    };
    let text = |words: String| json!({"type": "text", "text": words});
    let messages = match request.name.as_ref() {
        "test_simple_prompt" => vec![text("This is a simple prompt for testing.".to_owned())],
        "test_prompt_with_arguments" => {
            let (first, second) = (argument("arg1"), argument("arg2"));
            let words = format!("Prompt with arguments: arg1='{first}', arg2='{second}'");
            vec![text(words)]
        }
        "test_prompt_with_embedded_resource" => {
            let words = "Embedded resource content for testing.";
            let embedded = resource(argument("resourceUri"), "text/plain", words);
            let please = "Please process the embedded resource above.".to_owned();
            vec![embedded, text(please)]
        }
        "test_prompt_with_image" => {
            vec![
                picture(),
                text("Please analyze the image above.".to_owned()),
            ]
        }
        "test_input_required_result_prompt" => {
            let helped = (
                request.input_responses.clone(),
                request.request_state.clone(),
            );
            match rounds::take(
                helped,
                |responses, _| Ok(Some(in_context(responses))),
                context,
            )
            .await?
            {
                Some(Taken::Needed(needed)) => return Ok(needed.into()),
                Some(Taken::Done(words)) => vec![text(words)],
                None => Vec::new(),
            }
        }
        unknown => {
            let unknown = format!("there is no prompt `{unknown}`");
            return Err(ErrorData::invalid_params(unknown, None));
        }
    };
    let said = |content: Value| json!({"role": "user", "content": content});
    let messages: Vec<Value> = messages.into_iter().map(said).collect();
    let result: rmcp::model::GetPromptResult =
        model(json!({"resultType": "complete", "messages": messages}))?;
    Ok(result.into())
}

fn in_context(responses: Option<&InputResponses>) -> Step {
    if let Some(given) = response(responses, "user_context") {
        return Step::Done(format!("In this context: {}", content(given, "context")));
    }
    let question = form("What context should the prompt use?", "context", "string");
    Step::Needed(Needed::of(json!({"user_context": question})))
}
