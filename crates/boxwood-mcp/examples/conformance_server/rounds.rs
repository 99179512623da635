//! Tools that require input of the client, with `input_required` results and without state in the server.
//!
//! Legacy clients get the same requests during the call.

use std::fmt::Write as _;

use rmcp::ErrorData;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, InputRequest, InputRequests, InputRequiredResult,
    InputResponses,
};
use rmcp::service::ServiceError;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::server::{Context, is_modern, model};
use crate::tools::says;

/// Not a secret, because this server is a fixture.
const KEY: &[u8] = b"the conformance fixture's own";

/// A client that repeatedly sends other responses gets an error.
const MOST_ROUNDS: usize = 4;

/// `None` for tools of other modules.
pub(crate) async fn call(
    request: &CallToolRequestParams,
    context: &Context,
) -> Result<Option<CallToolResponse>, ErrorData> {
    let name = request.name.as_ref();
    let step = |responses: Option<&InputResponses>, state: Option<&str>| {
        step(name, responses, state, context)
    };
    let first = (
        request.input_responses.clone(),
        request.request_state.clone(),
    );
    let taken = take(first, step, context).await?;
    Ok(taken.map(|taken| match taken {
        Taken::Done(text) => says(text).into(),
        Taken::Needed(needed) => needed.into(),
    }))
}

/// The state of a call: complete, or waiting for input.
pub(crate) enum Step {
    Done(String),
    Needed(Needed),
}

pub(crate) enum Taken {
    Done(String),
    Needed(InputRequiredResult),
}

type Helped = (Option<InputResponses>, Option<String>);

/// Runs one step for a modern client, which repeats its call with the input, and all steps for a legacy client.
pub(crate) async fn take(
    mut helped: Helped,
    step: impl Fn(Option<&InputResponses>, Option<&str>) -> Result<Option<Step>, ErrorData>,
    context: &Context,
) -> Result<Option<Taken>, ErrorData> {
    for _ in 0..MOST_ROUNDS {
        let (responses, state) = &helped;
        let needed = match step(responses.as_ref(), state.as_deref())? {
            None => return Ok(None),
            Some(Step::Done(text)) => return Ok(Some(Taken::Done(text))),
            Some(Step::Needed(needed)) => needed,
        };
        let requests: InputRequests = model(needed.requests)?;
        if is_modern(context) {
            let needed = InputRequiredResult::new(Some(requests), needed.state);
            return Ok(Some(Taken::Needed(needed)));
        }
        helped = (Some(ask_all(requests, context).await?), needed.state);
    }
    let words = "the responses of the client do not match the requests";
    Err(ErrorData::invalid_params(words, None))
}

fn step(
    name: &str,
    responses: Option<&InputResponses>,
    state: Option<&str>,
    context: &Context,
) -> Result<Option<Step>, ErrorData> {
    let given = |key: &str| response(responses, key);
    let tool = name
        .strip_prefix("test_input_required_result_")
        .unwrap_or(name);
    let needed = match tool {
        "test_streaming_elicitation" => {
            if let Some(given) = given("streaming_elicitation") {
                return Ok(Some(Step::Done(format!("got {}", content(given, "value")))));
            }
            Needed::of(json!({"streaming_elicitation": form("Give a value", "value", "string")}))
        }
        "elicitation" => {
            if let Some(given) = given("user_name") {
                return Ok(Some(Step::Done(format!(
                    "Hello, {}!",
                    content(given, "name")
                ))));
            }
            Needed::of(json!({"user_name": who_are_you()}))
        }
        "sampling" => {
            if let Some(given) = given("capital_question") {
                return Ok(Some(Step::Done(format!(
                    "it said: {}",
                    content(given, "text")
                ))));
            }
            let question = sampling("What is the capital of France?", 100);
            Needed::of(json!({"capital_question": question}))
        }
        "list_roots" => {
            if let Some(given) = given("client_roots") {
                let roots = given.get("roots").cloned().unwrap_or_default();
                return Ok(Some(Step::Done(format!("the roots are {roots}"))));
            }
            Needed::of(json!({"client_roots": roots()}))
        }
        "request_state" | "tampered_state" => {
            if let Some(state) = state {
                open(state)?;
                return Ok(Some(Step::Done("Confirmed: state-ok".to_owned())));
            }
            let confirm = form("Please confirm", "ok", "boolean");
            Needed::of(json!({"confirm": confirm})).with_state("confirm")
        }
        "multiple_inputs" => {
            if let Some(state) = state {
                open(state)?;
                let keys = ["user_name", "greeting", "client_roots"];
                if keys.into_iter().all(|key| given(key).is_some()) {
                    return Ok(Some(Step::Done("everything is there".to_owned())));
                }
            }
            Needed::of(json!({
                "user_name": who_are_you(),
                "greeting": sampling("Generate a greeting", 50),
                "client_roots": roots(),
            }))
            .with_state("gather")
        }
        "multi_round" => match state.map(open).transpose()? {
            None => {
                let first = form("Step 1: What is your name?", "name", "string");
                Needed::of(json!({"step1": first})).with_state("one")
            }
            Some("one") => {
                let second = form("Step 2: What is your favorite color?", "color", "string");
                Needed::of(json!({"step2": second})).with_state("two")
            }
            Some(_) => return Ok(Some(Step::Done("both rounds are over".to_owned()))),
        },
        "capabilities" => {
            let requests = offered(context);
            if responses.is_some() || (requests.is_empty() && !is_modern(context)) {
                return Ok(Some(Step::Done(
                    "got what the client could give".to_owned(),
                )));
            }
            Needed::of(Value::Object(requests))
        }
        _ => return Ok(None),
    };
    Ok(Some(Step::Needed(needed)))
}

pub(crate) struct Needed {
    requests: Value,
    state: Option<String>,
}

impl Needed {
    pub(crate) fn of(requests: Value) -> Self {
        Self {
            requests,
            state: None,
        }
    }

    fn with_state(mut self, state: &str) -> Self {
        self.state = Some(seal(state));
        self
    }
}

/// Sends all requests at once.
async fn ask_all(requests: InputRequests, context: &Context) -> Result<InputResponses, ErrorData> {
    let asked = requests.into_iter().map(async |(key, request)| {
        let peer = &context.peer;
        let answer = match request {
            InputRequest::CreateMessage(asked) => {
                let answer = peer.create_message(asked.params).await;
                answer.map(|answer| json!(answer))
            }
            InputRequest::Elicitation(asked) => {
                let answer = peer.create_elicitation(asked.params).await;
                answer.map(|answer| json!(answer))
            }
            InputRequest::ListRoots(_) => peer.list_roots().await.map(|answer| json!(answer)),
            _ => return Err(ErrorData::internal_error("cannot ask that", None)),
        };
        let refused = |error: ServiceError| ErrorData::invalid_request(error.to_string(), None);
        answer.map(|answer| (key, answer)).map_err(refused)
    });
    let answers = futures_util::future::join_all(asked).await;
    answers.into_iter().collect()
}

/// One request for each capability of the client.
fn offered(context: &Context) -> Map<String, Value> {
    let offers = context.client_capabilities().unwrap_or_default();
    let mut requests = Map::new();
    if offers.elicitation.is_some() {
        requests.insert("user_name".to_owned(), who_are_you());
    }
    if offers.sampling.is_some() {
        requests.insert("greeting".to_owned(), sampling("Generate a greeting", 50));
    }
    if offers.roots.is_some() {
        requests.insert("client_roots".to_owned(), roots());
    }
    requests
}

/// `None` if the response is missing or not an object; the request is then sent again.
pub(crate) fn response<'a>(
    responses: Option<&'a InputResponses>,
    key: &str,
) -> Option<&'a Map<String, Value>> {
    responses?.get(key)?.as_object()
}

/// A text field of a form that the user filled in.
pub(crate) fn content<'a>(response: &'a Map<String, Value>, key: &str) -> &'a str {
    let content = response.get("content").and_then(|content| content.get(key));
    content.and_then(Value::as_str).unwrap_or("somebody")
}

pub(crate) fn form(message: &str, field: &str, kind: &str) -> Value {
    let schema = json!({
        "type": "object",
        "properties": {field: {"type": kind}},
        "required": [field],
    });
    let params = json!({"mode": "form", "message": message, "requestedSchema": schema});
    json!({"method": "elicitation/create", "params": params})
}

pub(crate) fn who_are_you() -> Value {
    form("What is your name?", "name", "string")
}

fn sampling(prompt: &str, most_tokens: u32) -> Value {
    let message = json!({"role": "user", "content": {"type": "text", "text": prompt}});
    let params = json!({"messages": [message], "maxTokens": most_tokens});
    json!({"method": "sampling/createMessage", "params": params})
}

fn roots() -> Value {
    json!({"method": "roots/list", "params": {}})
}

fn seal(state: &str) -> String {
    format!("{state}.{}", mark(state))
}

fn open(sealed: &str) -> Result<&str, ErrorData> {
    let opened = sealed.rsplit_once('.');
    let whole = opened.filter(|(state, marked)| mark(state) == *marked);
    let whole = whole.map(|(state, _)| state);
    whole.ok_or_else(|| ErrorData::invalid_params("`requestState` was modified", None))
}

fn mark(state: &str) -> String {
    let mut hash = Sha256::new();
    for part in [KEY, state.as_bytes(), KEY] {
        hash.update(part);
    }
    let mut mark = String::new();
    for byte in hash.finalize() {
        let _ = write!(mark, "{byte:02x}");
    }
    mark
}
