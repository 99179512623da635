//! Runs the requests of one client concurrently and sends the responses as they complete.
//!
//! A request is completed even if its client disconnects: a command may be half done, and LangBot
//! reconnects to the sessions it left.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;
use serde_json::{Map, Value};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::response::response;
use crate::error::internal;
use crate::{ActionError, Client, LangBot};

/// Concurrent requests of one client. At the limit no further message is read.
const MAX_RUNNING: usize = 1024;

/// Responses that wait to be sent. When full, requests wait until the client reads.
const RESPONSE_QUEUE: usize = 64;

pub struct Connection {
    langbot: Arc<LangBot>,
    client: Arc<Client>,
    running: JoinSet<()>,
    responses: mpsc::Sender<String>,
}

/// An action with its data.
pub(crate) struct Request {
    pub(crate) action: String,
    pub(crate) data: Map<String, Value>,
    /// The workspace, in the 0.7 wire format.
    pub(crate) context: Option<Value>,
}

impl Connection {
    /// The receiver yields the responses; it ends when the connection is dropped.
    pub fn new(langbot: Arc<LangBot>, client: Client) -> (Self, mpsc::Receiver<String>) {
        let (responses, to_send) = mpsc::channel(RESPONSE_QUEUE);
        let connection = Self {
            langbot,
            client: Arc::new(client),
            running: JoinSet::new(),
            responses,
        };
        (connection, to_send)
    }

    /// Starts to handle a message. Messages that are not requests are ignored: the daemon never sends
    /// requests, so there are no responses to expect.
    pub async fn handle(&mut self, message: Value) {
        while self.running.try_join_next().is_some() {}
        while self.running.len() >= MAX_RUNNING {
            self.running.join_next().await;
        }
        let bytes = size(&message);
        let Value::Object(mut message) = message else {
            return;
        };
        let Some(action) = message.remove("action") else {
            return;
        };
        let seq_id = message.remove("seq_id").unwrap_or(Value::from(-1));
        // Memory of the request and its response counts until the response is queued.
        let mut memory = self.langbot.sessions.budget().hold();
        let request = match memory.take(bytes) {
            Ok(()) => parse(action, message),
            Err(busy) => Err(busy.into()),
        };
        let (langbot, client) = (Arc::clone(&self.langbot), Arc::clone(&self.client));
        let responses = self.responses.clone();
        let running = self.langbot.begin_request();
        self.running.spawn(async move {
            let outcome = match request {
                Err(error) => Err(error),
                Ok(request) => run(&langbot, &client, request).await,
            };
            let response = response(&seq_id, outcome, client.max_response_bytes());
            memory.count(response.len());
            // Fails only if the client has disconnected.
            let _ = responses.send(response).await;
            drop(memory);
            drop(running);
        });
    }

    /// Resolves when all requests so far have completed.
    pub async fn finish(&mut self) {
        while self.running.join_next().await.is_some() {}
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.running.detach_all();
    }
}

/// Approximate memory of a message: the length of its text.
fn size(message: &Value) -> usize {
    match message {
        Value::String(text) => text.len(),
        Value::Array(values) => values.iter().map(size).sum(),
        Value::Object(map) => map.iter().map(|(key, value)| key.len() + size(value)).sum(),
        Value::Null | Value::Bool(_) | Value::Number(_) => size_of::<Value>(),
    }
}

fn parse(action: Value, mut message: Map<String, Value>) -> Result<Request, ActionError> {
    let Value::String(action) = action else {
        return Err(ActionError::unknown_action(&action));
    };
    let data = match message.remove("data") {
        Some(Value::Object(data)) => data,
        Some(_) => return Err(ActionError::new("TypeError", "data must be an object")),
        None => return Err(ActionError::missing("data")),
    };
    Ok(Request {
        action,
        data,
        context: message
            .remove("context")
            .filter(|context| !context.is_null()),
    })
}

/// A panic becomes an error response, so that every request gets a response.
async fn run(
    langbot: &Arc<LangBot>,
    client: &Client,
    request: Request,
) -> Result<Value, ActionError> {
    let action = request.action.clone();
    let work = AssertUnwindSafe(client.run(langbot, request));
    let outcome = work.catch_unwind().await.unwrap_or_else(|_| {
        tracing::error!(action, "action panicked");
        Err(internal(
            "internal error of the daemon; its log has the cause",
        ))
    });
    if let Err(error) = &outcome {
        tracing::debug!(action, %error, "action failed");
    }
    outcome
}
