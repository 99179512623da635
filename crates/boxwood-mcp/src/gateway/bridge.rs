//! A client of the era with sessions on a server of the stateless one.
//!
//! Comes in: requests of that client. Goes out: requests that stand for themselves; what the server wants
//! to know first is asked of the client as a request of its own, and the call is made again with the
//! answers. Never here: who carries those requests to the client.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use futures_util::future::try_join_all;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::behind::Behind;
use super::json::{object, raw};
use super::questions::{NOT_ANSWERED, TO_ANSWER, withdrawn};
use super::refusal::{INTERNAL_ERROR, INVALID_PARAMS, Refusal};
use super::translate::modern_params;
use crate::wire::{Ask, CallError, Connection, Message, Object};

const MOST_ROUNDS: usize = 32;
const MOST_QUESTIONS: usize = 16;
const QUEUE: usize = 64;

/// Holds no server: one that was started anew is asked by the same bridge.
pub(crate) struct Bridge {
    client_info: Option<Box<RawValue>>,
    capabilities: Object,
    questions: mpsc::Sender<Message>,
    waiting: Mutex<HashMap<String, oneshot::Sender<Message>>>,
    last: AtomicU64,
}

impl Bridge {
    /// `initialize` are the client's own parameters. What comes second is to be asked of the client.
    pub(crate) fn new(initialize: &RawValue) -> (Self, mpsc::Receiver<Message>) {
        let initialize = object(initialize).unwrap_or_default();
        let capabilities = initialize.get("capabilities").and_then(object);
        let (questions, asked) = mpsc::channel(QUEUE);
        let bridge = Self {
            client_info: initialize.get("clientInfo").map(ToOwned::to_owned),
            capabilities: capabilities.unwrap_or_default(),
            questions,
            waiting: Mutex::default(),
            last: AtomicU64::new(0),
        };
        (bridge, asked)
    }

    /// With everything that stands in the client's request.
    pub(crate) async fn request(
        &self,
        behind: &dyn Behind,
        request: &Message,
        how: Ask,
    ) -> Result<Message, Refusal> {
        let Some(after) = how.timeout else {
            return self.rounds(behind, request, how).await;
        };
        // All rounds together, with the time the client takes.
        let answer = timeout(after, self.rounds(behind, request, how)).await;
        answer.unwrap_or_else(|_| {
            let method = request.method().unwrap_or_default().to_owned();
            let late = CallError::TimedOut { method, after };
            Err(Refusal::unanswered(&late, behind.name()))
        })
    }

    async fn rounds(
        &self,
        behind: &dyn Behind,
        request: &Message,
        how: Ask,
    ) -> Result<Message, Refusal> {
        let connection = behind.main();
        let capabilities = self.capabilities.raw();
        let params = modern_params(request.params(), self.client_info.as_deref(), &capabilities);
        let mut params = params.ok_or_else(unreadable)?;
        for _ in 0..MOST_ROUNDS {
            let again = how.clone();
            let answer = asked(behind, &connection, request, &params, again).await?;
            let Some(unfinished) = unfinished(&answer) else {
                return Ok(answer);
            };
            params.remove("requestState");
            if let Some(state) = unfinished.get("requestState") {
                params.set("requestState", state.to_owned());
            }
            let answers = self.ask_client(&unfinished).await?;
            params.set("inputResponses", answers.raw());
        }
        let text = format!("the server asked the client more than {MOST_ROUNDS} times");
        Err(Refusal::new(INTERNAL_ERROR, text))
    }

    async fn ask_client(&self, unfinished: &Object) -> Result<Object, Refusal> {
        let requests = unfinished
            .get("inputRequests")
            .and_then(object)
            .unwrap_or_default();
        if requests.iter().count() > MOST_QUESTIONS {
            let text = format!("the server asks more than {MOST_QUESTIONS} things at once");
            return Err(Refusal::new(INTERNAL_ERROR, text));
        }
        let asked = requests.iter().map(|(key, request)| async move {
            let answer = self.ask_one(request).await?;
            Ok::<_, Refusal>((key.to_owned(), answer))
        });
        let mut answers = Object::default();
        for (key, answer) in try_join_all(asked).await? {
            answers.set(&key, answer);
        }
        Ok(answers)
    }

    async fn ask_one(&self, request: &RawValue) -> Result<Box<RawValue>, Refusal> {
        let request = object(request).unwrap_or_default();
        let method = request.text("method").unwrap_or_default();
        let capability = match method.as_str() {
            "sampling/createMessage" => "sampling",
            "elicitation/create" => "elicitation",
            "roots/list" => "roots",
            _ => "",
        };
        if self.capabilities.get(capability).is_none() {
            let shown: String = method.chars().take(120).collect();
            let text = format!("the server asks `{shown}`, which the client has not offered");
            return Err(Refusal::new(INTERNAL_ERROR, text));
        }
        let id = format!("boxwood-{}", self.last.fetch_add(1, Ordering::Relaxed) + 1);
        let (answered, answer) = oneshot::channel();
        let id_text = raw(&id);
        self.waiting().insert(id_text.get().to_owned(), answered);
        let _asked = Asked {
            bridge: self,
            id: id_text.clone(),
        };
        let params = request.get("params").map(ToOwned::to_owned);
        let question = Message::request(id_text, &method, params);
        let gone = || Refusal::new(INTERNAL_ERROR, "the client is gone and answers nothing");
        self.questions.send(question).await.map_err(|_| gone())?;
        let late = |_| Refusal::new(INTERNAL_ERROR, NOT_ANSWERED);
        let answer = timeout(TO_ANSWER, answer).await.map_err(late)?;
        let answer = answer.map_err(|_| gone())?;
        match (answer.outcome(), answer.error_words()) {
            (Some(result), _) => Ok(result.to_owned()),
            (None, _) if capability == "elicitation" => Ok(raw(&json!({ "action": "cancel" }))),
            (None, Some((code, text))) => Err(Refusal::new(code, text)),
            (None, None) => Err(gone()),
        }
    }

    /// What the client answered.
    pub(crate) fn respond(&self, answer: &Message) {
        let id = answer.id().map_or("null", RawValue::get);
        if let Some(waiting) = self.waiting().remove(id) {
            // Whoever waited has left.
            let _ = waiting.send(answer.clone());
        }
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<String, oneshot::Sender<Message>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For clients that cannot be asked anything.
    pub(crate) async fn unaskable(
        behind: &dyn Behind,
        connection: &Connection,
        request: &Message,
        how: Ask,
    ) -> Result<Message, Refusal> {
        if let Some("ping" | "logging/setLevel") = request.method() {
            return Ok(Message::result(Box::default(), Object::default().raw()));
        }
        let nothing = Object::default().raw();
        let own = raw(&json!({ "name": "boxwood", "version": env!("CARGO_PKG_VERSION") }));
        let params = modern_params(request.params(), Some(&own), &nothing);
        let params = params.ok_or_else(unreadable)?;
        let answer = asked(behind, connection, request, &params, how).await?;
        if unfinished(&answer).is_some() {
            let text =
                "the server wants to ask the client something, and the client has offered nothing";
            return Err(Refusal::new(INTERNAL_ERROR, text));
        }
        Ok(answer)
    }
}

/// Takes a question back that nobody waits for any more.
struct Asked<'a> {
    bridge: &'a Bridge,
    id: Box<RawValue>,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        let is_open = self.bridge.waiting().remove(self.id.get()).is_some();
        if is_open {
            // Full: then the client's answer is nobody's, and its question is forgotten in time.
            let _ = self.bridge.questions.try_send(withdrawn(&self.id));
        }
    }
}

async fn asked(
    behind: &dyn Behind,
    connection: &Connection,
    request: &Message,
    params: &Object,
    how: Ask,
) -> Result<Message, Refusal> {
    let request = request.clone().with_params(Some(params.raw()));
    let answer = connection.relay(request, how).await;
    answer.map_err(|error| Refusal::unanswered(&error, behind.name()))
}

fn unfinished(answer: &Message) -> Option<Object> {
    let result = answer.outcome()?;
    // Results may be long, and hardly any is unfinished.
    if !result.get().contains("input_required") {
        return None;
    }
    let result = object(result)?;
    (result.text("resultType").as_deref() == Some("input_required")).then_some(result)
}

fn unreadable() -> Refusal {
    Refusal::new(
        INVALID_PARAMS,
        "`params` and `params._meta` must be objects without doubled keys",
    )
}
