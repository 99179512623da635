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
use super::message::Line;
use super::session::Session;

/// Further requests are not read until one is complete.
const MAX_REQUESTS: u32 = 256;
const DELETE_TIMEOUT: Duration = Duration::from_secs(2);

pub(super) struct Bridge {
    pub(super) client: Client,
    pub(super) server: String,
    output: mpsc::Sender<String>,
    pub(super) session: Mutex<Session>,
    pub(super) renewal: tokio::sync::Mutex<()>,
    /// Requests to repeat in a new session: subscriptions by URI, and the log level under the empty string.
    pub(super) setup: Mutex<BTreeMap<String, Value>>,
    pub(super) param_headers: ParamHeaders,
    requests: Mutex<Vec<Request>>,
    listener: Mutex<Option<AbortHandle>>,
    permits: Arc<Semaphore>,
}

struct Request {
    task: AbortHandle,
    pending: Arc<PendingIds>,
    is_modern: bool,
}

/// Ids without a response. A batch has several, and may contain an id twice.
pub(super) struct PendingIds(Mutex<Vec<Value>>);

impl PendingIds {
    /// Returns true if the id was pending.
    pub(super) fn remove(&self, id: &Value) -> bool {
        let mut ids = locked(&self.0);
        let position = ids.iter().position(|pending| pending == id);
        position.map(|position| ids.swap_remove(position)).is_some()
    }

    pub(super) fn is_empty(&self) -> bool {
        locked(&self.0).is_empty()
    }
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
        let Some(line) = Line::parse(&body) else {
            let response = BridgeError::NotJsonRpc.response(&Value::Null);
            return self.write(response).await;
        };
        let body = Bytes::from(body);
        let ids = line.request_ids();
        if ids.is_empty() {
            self.notify(&line, body).await;
        } else if line.is("initialize") && line.modern_version().is_none() {
            // Later messages need the session that this one creates.
            if let Err(error) = self.initialize(&line, &body).await {
                self.write(error.response(&ids[0])).await;
            }
        } else {
            self.start_request(line, body, ids).await;
        }
    }

    /// Requests run concurrently.
    async fn start_request(self: &Arc<Self>, line: Line, body: Bytes, ids: Vec<Value>) {
        // A subscription has no end to wait for, so it holds no permit.
        let permit = if line.is("subscriptions/listen") {
            None
        } else {
            Arc::clone(&self.permits).acquire_owned().await.ok()
        };
        let pending = Arc::new(PendingIds(Mutex::new(ids)));
        let is_modern = line.modern_version().is_some();
        let (bridge, ids) = (Arc::clone(self), Arc::clone(&pending));
        let task = tokio::spawn(async move {
            let _permit = permit;
            if let Err(error) = bridge.exchange(&line, &body, &ids).await {
                let ids = std::mem::take(&mut *locked(&ids.0));
                for id in ids {
                    bridge.write(error.response(&id)).await;
                }
            }
        });
        let mut requests = locked(&self.requests);
        requests.retain(|request| !request.task.is_finished());
        requests.push(Request {
            task: task.abort_handle(),
            pending,
            is_modern,
        });
    }

    /// Notifications and responses are sent in order.
    async fn notify(self: &Arc<Self>, line: &Line, body: Bytes) {
        // A modern request is cancelled by closing its connection, a legacy one by the notification.
        if self.cancel(line) {
            return;
        }
        if let Err(reason) = self.post_notification(line, body).await {
            eprintln!(
                "boxwood: failed to deliver `{}`: {reason}",
                line.description()
            );
        }
        if line.is("notifications/initialized") && self.session().id.is_some() {
            let bridge = Arc::clone(self);
            let listener = tokio::spawn(async move { bridge.listen().await });
            let previous = locked(&self.listener).replace(listener.abort_handle());
            if let Some(previous) = previous {
                previous.abort();
            }
        }
    }

    /// Stops waiting for the request that the notification cancels. Returns true if that was a modern request.
    fn cancel(&self, line: &Line) -> bool {
        let Some(id) = line.cancelled_id() else {
            return false;
        };
        let requests = locked(&self.requests);
        let mut running = requests.iter().filter(|it| !it.task.is_finished());
        let Some(request) = running.find(|request| request.pending.remove(id)) else {
            return false;
        };
        // The other requests of a batch continue.
        if request.pending.is_empty() {
            request.task.abort();
        }
        request.is_modern
    }

    async fn post_notification(&self, line: &Line, body: Bytes) -> Result<(), String> {
        let mut renewed = false;
        loop {
            let session = self.session();
            let headers = self.headers(line, &session);
            let name = line.description();
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
    pub(super) fn headers(&self, line: &Line, session: &Session) -> GatewayHeaders {
        match line.modern_version() {
            None => session.headers(),
            Some(version) => self.param_headers.headers(line, version),
        }
    }

    /// Waits for a daemon that is restarting. If the connection is lost after the message was sent, a message that is
    /// not idempotent is not sent again: `once` is then its name.
    pub(super) async fn post(
        &self,
        headers: &GatewayHeaders,
        body: Bytes,
        once: Option<&str>,
    ) -> Result<GatewayAnswer, BridgeError> {
        let post = || async {
            let answer = self
                .client
                .gateway_post(&self.server, headers, body.clone());
            match (answer.await, once) {
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

/// A message on one line. JSON has raw line breaks only between tokens.
pub(super) fn one_line(text: &str) -> String {
    text.trim().replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_id_is_removed_once() {
        let pending = PendingIds(Mutex::new(vec![json!(1), json!("1"), json!(1)]));
        assert!(pending.remove(&json!(1)) && pending.remove(&json!("1")));
        assert!(!pending.remove(&json!("1")) && !pending.is_empty());
        assert!(pending.remove(&json!(1)) && pending.is_empty());
    }

    #[test]
    fn a_message_is_put_on_one_line_and_otherwise_unchanged() {
        assert_eq!(
            one_line("{\"a\": \"x\\n\",\r\n \"b\": 1.0}\n"),
            "{\"a\": \"x\\n\",   \"b\": 1.0}"
        );
        assert_eq!(one_line(" {\"a\":1} "), "{\"a\":1}");
    }
}
