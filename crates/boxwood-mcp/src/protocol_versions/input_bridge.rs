//! Calls a modern server for a legacy client.
//!
//! `input_required` results become requests to the client. The call is repeated with the client's
//! responses.

use std::sync::Arc;

use futures_util::future::try_join_all;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::gateway::aggregate::server_info;
use crate::gateway::client_session::ClientSession;
use crate::gateway::client_session::client_processes::ClientProcesses;
use crate::gateway::client_session::pending_requests::{Responder, TOO_MANY_REQUESTS};
use crate::gateway::error::{INTERNAL_ERROR, INVALID_PARAMS, RpcError, shortened};
use crate::gateway::json::{object, raw};
use crate::gateway::params;
use crate::gateway::server_registry::{HostedServer, relay};
use crate::protocol_versions::translate::modern_params;
use crate::wire::{CallError, CallOptions, Message, Object, cancellation};

const MOST_ROUNDS: usize = 32;
const MOST_QUESTIONS: usize = 16;

/// A legacy client that accepts server requests.
struct InputBridge<'a> {
    session: &'a ClientSession,
    capabilities: Object,
}

/// For a client that accepts server requests.
pub(crate) async fn call_with_input(
    session: &Arc<ClientSession>,
    processes: &ClientProcesses,
    hosted: &dyn HostedServer,
    request: &Message,
    how: CallOptions,
) -> Result<Message, RpcError> {
    let client = processes.initialize();
    let bridge = InputBridge {
        session,
        capabilities: client
            .get("capabilities")
            .and_then(object)
            .unwrap_or_default(),
    };
    let after = how.timeout;
    let rounds = bridge.rounds(hosted, request, client.get("clientInfo"), how);
    let Some(after) = after else {
        return rounds.await;
    };
    // Includes all rounds and the time that the client takes.
    timeout(after, rounds).await.unwrap_or_else(|_| {
        let method = request.method().unwrap_or_default().to_owned();
        let late = CallError::TimedOut { method, after };
        Err(RpcError::call_failed(&late, hosted.name()))
    })
}

/// For a client that does not accept server requests.
pub(crate) async fn call_without_input(
    hosted: &dyn HostedServer,
    request: &Message,
    how: CallOptions,
) -> Result<Message, RpcError> {
    let nothing = Object::default().raw();
    let params = modern_params(request.params(), Some(&server_info()), &nothing);
    let params = params.ok_or_else(unreadable)?;
    let request = request.clone().with_params(Some(params.raw()));
    let answer = relay(hosted, &hosted.main(), request, how).await?;
    if unfinished(&answer).is_some() {
        let text =
            "the server requires client input, but the client does not support server requests";
        return Err(RpcError::new(INTERNAL_ERROR, text));
    }
    Ok(answer)
}

/// Methods that modern servers do not have.
pub(crate) fn answered_here(method: &str) -> Option<Message> {
    let is_removed = matches!(method, "ping" | "logging/setLevel");
    is_removed.then(|| Message::result(Box::default(), params::empty()))
}

impl InputBridge<'_> {
    async fn rounds(
        &self,
        hosted: &dyn HostedServer,
        request: &Message,
        client_info: Option<&RawValue>,
        how: CallOptions,
    ) -> Result<Message, RpcError> {
        let connection = hosted.main();
        let capabilities = self.capabilities.raw();
        let params = modern_params(request.params(), client_info, &capabilities);
        let mut params = params.ok_or_else(unreadable)?;
        for _ in 0..MOST_ROUNDS {
            let request = request.clone().with_params(Some(params.raw()));
            let answer = relay(hosted, &connection, request, how.clone()).await?;
            let Some(unfinished) = unfinished(&answer) else {
                return Ok(answer);
            };
            params.remove("requestState");
            if let Some(state) = unfinished.get("requestState") {
                params.set("requestState", state.to_owned());
            }
            let answers = tokio::select! {
                answers = self.ask_client(&unfinished) => answers?,
                reason = connection.ended() => {
                    let ended = CallError::Closed(reason);
                    return Err(RpcError::call_failed(&ended, hosted.name()));
                }
            };
            params.set("inputResponses", answers.raw());
        }
        let text = format!("the server requested client input more than {MOST_ROUNDS} times");
        Err(RpcError::new(INTERNAL_ERROR, text))
    }

    async fn ask_client(&self, unfinished: &Object) -> Result<Object, RpcError> {
        let requests = unfinished
            .get("inputRequests")
            .and_then(object)
            .unwrap_or_default();
        if requests.iter().count() > MOST_QUESTIONS {
            let text = format!(
                "the server sent more than {MOST_QUESTIONS} requests to the client at once"
            );
            return Err(RpcError::new(INTERNAL_ERROR, text));
        }
        let asked = requests.iter().map(|(key, request)| async move {
            let answer = self.ask_one(request).await?;
            Ok::<_, RpcError>((key.to_owned(), answer))
        });
        let mut answers = Object::default();
        for (key, answer) in try_join_all(asked).await? {
            answers.set(&key, answer);
        }
        Ok(answers)
    }

    async fn ask_one(&self, request: &RawValue) -> Result<Box<RawValue>, RpcError> {
        let request = object(request).unwrap_or_default();
        let method = request.text("method").unwrap_or_default();
        let capability = match method.as_str() {
            "sampling/createMessage" => "sampling",
            "elicitation/create" => "elicitation",
            "roots/list" => "roots",
            _ => "",
        };
        if self.capabilities.get(capability).is_none() {
            let method = shortened(&method);
            let text = format!("the server sent `{method}`, which the client does not support");
            return Err(RpcError::new(INTERNAL_ERROR, text));
        }
        let failed = |text: &str| RpcError::new(INTERNAL_ERROR, text);
        let params = request.get("params").map(ToOwned::to_owned);
        let question = Message::request(Box::default(), &method, params);
        let (responder, answer) = oneshot::channel();
        let asked = self.session.ask(&question, Responder::Call(responder));
        let id = asked.map_err(|_| failed(TOO_MANY_REQUESTS))?;
        let _asked = Asked {
            session: self.session,
            id,
        };
        let answer = answer.await.map_err(|_| failed("client disconnected"))?;
        match (answer.outcome(), answer.error_parts()) {
            (Some(result), _) => Ok(result.to_owned()),
            (None, _) if capability == "elicitation" => Ok(raw(&json!({ "action": "cancel" }))),
            (None, Some((code, text))) => Err(RpcError::new(code, text)),
            (None, None) => Err(failed("invalid response of the client")),
        }
    }
}

/// Cancels the request to the client on drop.
struct Asked<'a> {
    session: &'a ClientSession,
    id: Box<RawValue>,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if self.session.pending.take(&self.id).is_some() {
            self.session.tell(&cancellation(self.id.clone()));
        }
    }
}

fn unfinished(answer: &Message) -> Option<Object> {
    let result = answer.outcome()?;
    // Avoids parsing long results.
    if !result.get().contains("input_required") {
        return None;
    }
    let result = object(result)?;
    (result.text("resultType").as_deref() == Some("input_required")).then_some(result)
}

fn unreadable() -> RpcError {
    RpcError::new(
        INVALID_PARAMS,
        "`params` and `params._meta` must be objects without duplicate keys",
    )
}
