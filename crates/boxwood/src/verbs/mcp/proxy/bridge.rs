//! Dispatches the messages of the client and tracks the requests in flight.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use boxwood_client::{Client, ClientError, GatewayAnswer, GatewayHeaders};
use bytes::Bytes;
use serde_json::Value;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::AbortHandle;

use super::error::BridgeError;
use super::headers::ParamHeaders;
use super::message::Message;
use super::session::Session;

/// Further requests are not read until one is complete.
const MAX_REQUESTS: u32 = 256;
const DELETE_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) struct Bridge {
    pub(super) client: Client,
    pub(super) server: String,
    output: mpsc::Sender<String>,
    pub(super) session: Mutex<Session>,
    /// Held while a new session is created, so that concurrent requests create only one.
    pub(super) renewal: tokio::sync::Mutex<()>,
    /// Requests to repeat in a new session: subscriptions by URI, and the log level under the empty string.
    pub(super) setup: Mutex<BTreeMap<String, Value>>,
    pub(super) param_headers: ParamHeaders,
    requests: Mutex<Vec<Request>>,
    listener: Mutex<Option<AbortHandle>>,
    permits: Arc<Semaphore>,
}

struct Request {
    id: Value,
    task: AbortHandle,
    is_modern: bool,
}

pub(super) fn locked<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Bridge {
    pub(super) fn new(client: Client, server: String, output: mpsc::Sender<String>) -> Self {
        Self {
            client,
            server,
            output,
            session: Mutex::default(),
            renewal: tokio::sync::Mutex::new(()),
            setup: Mutex::default(),
            param_headers: ParamHeaders::default(),
            requests: Mutex::default(),
            listener: Mutex::default(),
            permits: Arc::new(Semaphore::new(MAX_REQUESTS as usize)),
        }
    }

    pub(super) fn session(&self) -> Session {
        locked(&self.session).clone()
    }

    /// Writes a line to the client. Fails only if the client is gone, which ends the bridge elsewhere.
    pub(super) async fn write(&self, line: String) {
        let _ = self.output.send(line).await;
    }

    /// Handles one line of the client. Returns when the next line may be read.
    pub(super) async fn handle(self: &Arc<Self>, body: Vec<u8>) {
        let message = match Message::parse(&body) {
            Ok(message) => message,
            Err(error) => return self.write(error.response(&Value::Null)).await,
        };
        let body = Bytes::from(body);
        let Some(id) = message.request_id().cloned() else {
            return self.notify(&message, body).await;
        };
        if message.is("initialize") && message.modern_version().is_none() {
            // Later messages need the session that this one creates.
            if let Err(error) = self.initialize(&message, &body).await {
                self.write(error.response(&id)).await;
            }
        } else {
            self.start_request(message, id, body).await;
        }
    }

    /// Requests run concurrently.
    async fn start_request(self: &Arc<Self>, message: Message, id: Value, body: Bytes) {
        // A subscription has no end to wait for, so it holds no permit.
        let permit = if message.is("subscriptions/listen") {
            None
        } else {
            Arc::clone(&self.permits).acquire_owned().await.ok()
        };
        let is_modern = message.modern_version().is_some();
        let (bridge, request_id) = (Arc::clone(self), id.clone());
        let task = tokio::spawn(async move {
            let _permit = permit;
            if let Err(error) = bridge.exchange(&message, &request_id, &body).await {
                bridge.write(error.response(&request_id)).await;
            }
        });
        let mut requests = locked(&self.requests);
        requests.retain(|request| !request.task.is_finished());
        requests.push(Request {
            id,
            task: task.abort_handle(),
            is_modern,
        });
    }

    /// Notifications and responses are sent in order.
    async fn notify(self: &Arc<Self>, message: &Message, body: Bytes) {
        // A modern request is cancelled by closing its connection, a legacy one by the notification.
        if self.cancel(message) {
            return;
        }
        if let Err(reason) = self.post_notification(message, body).await {
            eprintln!(
                "boxwood: failed to deliver `{}`: {reason}",
                message.description()
            );
        }
        if message.is("notifications/initialized") && self.session().id.is_some() {
            let bridge = Arc::clone(self);
            let listener = tokio::spawn(async move { bridge.listen().await });
            let previous = locked(&self.listener).replace(listener.abort_handle());
            if let Some(previous) = previous {
                previous.abort();
            }
        }
    }

    /// Stops waiting for the request that the notification cancels. Returns true if that was a modern request.
    fn cancel(&self, message: &Message) -> bool {
        let Some(id) = message.cancelled_id() else {
            return false;
        };
        let requests = locked(&self.requests);
        let mut running = requests
            .iter()
            .filter(|request| !request.task.is_finished());
        let Some(request) = running.find(|request| request.id == *id) else {
            return false;
        };
        request.task.abort();
        request.is_modern
    }

    async fn post_notification(&self, message: &Message, body: Bytes) -> Result<(), String> {
        let mut renewed = false;
        loop {
            let session = self.session();
            let headers = self.headers(message, &session);
            let name = message.description();
            match self.post(&headers, body.clone(), Some(name)).await {
                Ok(GatewayAnswer::Refused { status: 404, .. })
                    if session.id.is_some() && !renewed =>
                {
                    renewed = true;
                    let outcome = self.renew(&session).await;
                    outcome.map_err(|_| "the session is gone".to_owned())?;
                }
                Ok(GatewayAnswer::Refused { status, .. }) => {
                    return Err(format!("HTTP status {status}"));
                }
                Err(BridgeError::Unreachable(error)) => return Err(error.to_string()),
                Err(_) => return Err("the connection to the daemon was lost".to_owned()),
                Ok(_) => return Ok(()),
            }
        }
    }

    /// The headers of the session, or those that a modern message needs.
    pub(super) fn headers(&self, message: &Message, session: &Session) -> GatewayHeaders {
        match message.modern_version() {
            None => session.headers(),
            Some(version) => self.param_headers.headers(message, version),
        }
    }

    /// Waits for a daemon that is restarting. If the connection is lost after the message was sent, a message that is
    /// not idempotent is not sent again: `non_idempotent` is then its name.
    pub(super) async fn post(
        &self,
        headers: &GatewayHeaders,
        body: Bytes,
        non_idempotent: Option<&str>,
    ) -> Result<GatewayAnswer, BridgeError> {
        let post = || async {
            let answer = self
                .client
                .gateway_post(&self.server, headers, body.clone());
            match (answer.await, non_idempotent) {
                (Err(ClientError::Lost { .. }), Some(name)) => {
                    Ok(Err(BridgeError::interrupted(name)))
                }
                (answer, _) => answer.map(Ok),
            }
        };
        let answer = self.client.with_retries(post).await;
        answer.map_err(BridgeError::Unreachable)?
    }

    /// Waits for the requests in flight.
    pub(super) async fn finish(&self) {
        // Fails only if the semaphore is closed, which never happens.
        let _ = self.permits.acquire_many(MAX_REQUESTS).await;
    }

    /// Aborts the requests in flight and deletes the session.
    pub(super) async fn close(&self) {
        for request in locked(&self.requests).drain(..) {
            request.task.abort();
        }
        if let Some(listener) = locked(&self.listener).take() {
            listener.abort();
        }
        let session = self.session();
        if session.id.is_some() {
            let headers = session.headers();
            let delete = self.client.gateway_delete(&self.server, &headers);
            // Without the request, the gateway deletes the session when it has been idle for long enough.
            let _ = tokio::time::timeout(DELETE_TIMEOUT, delete).await;
        }
    }
}

/// A message on one line. Valid JSON contains line breaks only between tokens, so they can be replaced.
pub(super) fn one_line(text: &str) -> String {
    text.trim().replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_put_on_one_line_and_otherwise_unchanged() {
        assert_eq!(
            one_line("{\"a\": \"x\\n\",\r\n \"b\": 1.0}\n"),
            "{\"a\": \"x\\n\",   \"b\": 1.0}"
        );
        assert_eq!(one_line(" {\"a\":1} "), "{\"a\":1}");
    }
}
