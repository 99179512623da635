//! One client's requests and their answers, over whatever carries them.
//!
//! Comes in: messages. Goes out: answers, each as soon as it is there, in any order. Never here: the
//! wire, and what the actions do. What a client asked for is done also when it has left meanwhile: a
//! command may be half-way, and a platform that lost its connection comes back to what it left.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;
use serde_json::{Map, Value};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::reply::reply;
use super::{Fault, Speaker};
use crate::http::App;

/// Requests of one client that are answered at the same time. Beyond that it is read no further.
const MAX_RUNNING: usize = 1024;

/// Answers that wait to be sent. When the client does not read them, its requests wait too.
const WAITING_ANSWERS: usize = 64;

pub(super) struct Conversation {
    app: Arc<App>,
    speaker: Arc<Speaker>,
    /// What one answer may be long.
    limit: usize,
    running: JoinSet<()>,
    answers: mpsc::Sender<String>,
}

/// An action and what it is to work on.
pub(super) struct Request {
    pub(super) action: String,
    pub(super) data: Map<String, Value>,
    /// Who is meant by it, where the client says so.
    pub(super) context: Option<Value>,
}

impl Conversation {
    /// The receiver has the answers; it ends when the conversation is dropped.
    pub(super) fn new(app: Arc<App>, speaker: Speaker) -> (Self, mpsc::Receiver<String>) {
        let (answers, to_send) = mpsc::channel(WAITING_ANSWERS);
        let limit = speaker.longest_answer();
        let conversation = Self {
            app,
            speaker: Arc::new(speaker),
            limit,
            running: JoinSet::new(),
            answers,
        };
        (conversation, to_send)
    }

    /// Starts to answer a message. What is no request needs no answer: we ask the clients nothing.
    pub(super) async fn hear(&mut self, message: Value) {
        while self.running.try_join_next().is_some() {}
        while self.running.len() >= MAX_RUNNING {
            self.running.join_next().await;
        }
        let Value::Object(mut message) = message else {
            return;
        };
        let Some(action) = message.remove("action") else {
            return;
        };
        let seq_id = message.remove("seq_id").unwrap_or(Value::from(-1));
        // Held until the answer is on its way.
        let mut held = self.app.sessions.budget().hold();
        let request = match held.take(weight(&message)) {
            Ok(()) => read(action, message),
            Err(busy) => Err(busy.into()),
        };
        let (app, speaker) = (Arc::clone(&self.app), Arc::clone(&self.speaker));
        let (answers, limit) = (self.answers.clone(), self.limit);
        let under_way = self.app.langbot.begin_request();
        self.running.spawn(async move {
            let outcome = match request {
                Err(fault) => Err(fault),
                Ok(request) => answer(&app, &speaker, request).await,
            };
            // When nobody is there to read it, the answer has nowhere to go.
            let answer = reply(&seq_id, outcome, limit);
            held.count(answer.len());
            let _ = answers.send(answer).await;
            drop(held);
            drop(under_way);
        });
    }

    /// Resolves when everything asked so far is answered.
    pub(super) async fn finish(&mut self) {
        while self.running.join_next().await.is_some() {}
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        self.running.detach_all();
    }
}

/// What a message takes in memory, near enough: its text.
fn weight(message: &Map<String, Value>) -> usize {
    fn of(value: &Value) -> usize {
        match value {
            Value::String(text) => text.len(),
            Value::Array(values) => values.iter().map(of).sum(),
            Value::Object(map) => weight(map),
            Value::Null | Value::Bool(_) | Value::Number(_) => size_of::<Value>(),
        }
    }
    message
        .iter()
        .map(|(key, value)| key.len() + of(value))
        .sum()
}

fn read(action: Value, mut message: Map<String, Value>) -> Result<Request, Fault> {
    let Value::String(action) = action else {
        return Err(Fault::new(
            "ValueError",
            format!("Action {action} not found"),
        ));
    };
    let data = match message.remove("data") {
        Some(Value::Object(data)) => data,
        Some(_) => return Err(Fault::new("TypeError", "data must be an object")),
        None => return Err(Fault::missing("data")),
    };
    Ok(Request {
        action,
        data,
        context: message
            .remove("context")
            .filter(|context| !context.is_null()),
    })
}

/// Every request gets an answer, also one that trips over a mistake of ours.
async fn answer(app: &Arc<App>, speaker: &Speaker, request: Request) -> Result<Value, Fault> {
    let action = request.action.clone();
    let work = AssertUnwindSafe(speaker.answer(app, request));
    let outcome = work.catch_unwind().await.unwrap_or_else(|_| {
        tracing::error!(action, "an action panicked");
        Err(Fault::new(
            "BoxError",
            "the daemon made a mistake with this request",
        ))
    });
    if let Err(fault) = &outcome {
        tracing::debug!(action, %fault, "an action failed");
    }
    outcome
}
