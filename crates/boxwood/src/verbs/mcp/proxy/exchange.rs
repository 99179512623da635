//! Requests and their responses, and the stream of messages from the server.

use std::time::Duration;

use boxwood_client::{GatewayAnswer, GatewayStream};
use bytes::Bytes;
use serde_json::{Value, json};

use super::bridge::{Bridge, PendingIds, one_line};
use super::error::BridgeError;
use super::message::Line;
use super::session::Session;

/// The headers do not match the body.
const HEADER_MISMATCH: i64 = -32020;
const LAST_EVENT: &str = "last-event-id";
/// Consecutive streams that break without a new event. A restart of the daemon is waited for elsewhere.
const MAX_BROKEN_STREAMS: u32 = 8;
const RETRY_DELAY: Duration = Duration::from_millis(500);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);
const MAX_TOOL_PAGES: usize = 100;
const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";

enum StreamEnd {
    Complete,
    /// With the id of the last event.
    Broken(Option<String>),
}

impl Bridge {
    /// Sends a request or a batch and writes the responses.
    pub(super) async fn exchange(
        &self,
        line: &Line,
        body: &Bytes,
        pending: &PendingIds,
    ) -> Result<(), BridgeError> {
        let name = line.description();
        let once = (!line.is_idempotent()).then_some(name);
        let is_legacy = line.modern_version().is_none();
        let (mut renewed, mut listed_tools, mut broken_streams) = (false, false, 0);
        loop {
            let session = self.session();
            let headers = self.headers(line, &session);
            match self.post(&headers, body.clone(), once).await? {
                GatewayAnswer::Message { body, .. } => {
                    let text = String::from_utf8_lossy(&body);
                    self.observe(line, &text);
                    self.write(one_line(&text)).await;
                    return Ok(());
                }
                GatewayAnswer::Stream { events, .. } => {
                    let is_repeated = broken_streams > 0;
                    match self.forward(line, pending, events, is_repeated).await {
                        StreamEnd::Complete => return Ok(()),
                        StreamEnd::Broken(Some(last)) if is_legacy => {
                            return self.resume(line, pending, &session, last).await;
                        }
                        StreamEnd::Broken(_) => {}
                    }
                    // A subscription has no end, so it is repeated without a limit.
                    let may_repeat =
                        line.is("subscriptions/listen") || broken_streams < MAX_BROKEN_STREAMS;
                    if is_legacy || once.is_some() || !may_repeat {
                        return Err(BridgeError::interrupted(name));
                    }
                    broken_streams += 1;
                    tokio::time::sleep(RETRY_DELAY).await;
                }
                GatewayAnswer::Accepted => return Err(BridgeError::interrupted(name)),
                GatewayAnswer::Refused { status: 404, .. }
                    if is_legacy && session.id.is_some() && !renewed =>
                {
                    renewed = true;
                    self.renew(&session).await?;
                }
                GatewayAnswer::Refused { status, body } => {
                    let refusal = BridgeError::Refused { status, body };
                    let is_mismatch = refusal.rpc_code() == Some(HEADER_MISMATCH);
                    if !is_mismatch || listed_tools || !line.is("tools/call") {
                        return Err(refusal);
                    }
                    listed_tools = true;
                    if !self.list_tools(line).await {
                        return Err(refusal);
                    }
                }
            }
        }
    }

    /// Writes the messages of a stream until all responses have arrived.
    async fn forward(
        &self,
        line: &Line,
        pending: &PendingIds,
        mut events: GatewayStream,
        is_repeated: bool,
    ) -> StreamEnd {
        let mut last = None;
        while !pending.is_empty() {
            let Ok(Some(event)) = events.next().await else {
                return StreamEnd::Broken(last);
            };
            last = event.id.or(last);
            if event.data.is_empty() {
                continue;
            }
            let message = Line::parse(event.data.as_bytes());
            if let Some(message) = &message {
                for id in message.response_ids() {
                    if pending.remove(id) {
                        self.observe(line, &event.data);
                    }
                }
            }
            // The client got the first acknowledgement.
            if !(is_repeated && message.is_some_and(|message| message.is(ACKNOWLEDGED))) {
                self.write(one_line(&event.data)).await;
            }
        }
        StreamEnd::Complete
    }

    /// Continues a broken stream of the same session. Event ids of another session have another meaning.
    async fn resume(
        &self,
        line: &Line,
        pending: &PendingIds,
        session: &Session,
        mut last: String,
    ) -> Result<(), BridgeError> {
        let interrupted = || BridgeError::interrupted(line.description());
        let mut broken_streams = 0;
        while broken_streams < MAX_BROKEN_STREAMS && self.session().id == session.id {
            let mut headers = session.headers();
            headers.push((LAST_EVENT.to_owned(), last.clone()));
            let listen = || self.client.gateway_listen(&self.server, &headers);
            let Ok(GatewayAnswer::Stream { events, .. }) = self.client.with_retries(listen).await
            else {
                return Err(interrupted());
            };
            match self.forward(line, pending, events, false).await {
                StreamEnd::Complete => return Ok(()),
                StreamEnd::Broken(Some(newer)) if newer != last => {
                    (last, broken_streams) = (newer, 0);
                }
                StreamEnd::Broken(_) => broken_streams += 1,
            }
            tokio::time::sleep(RETRY_DELAY).await;
        }
        Err(interrupted())
    }

    /// Writes the messages that the server sends on its own. Returns if the gateway has no such stream.
    pub(super) async fn listen(&self) {
        let mut delay = RETRY_DELAY;
        let mut last: Option<String> = None;
        let mut previous = self.session();
        loop {
            let session = self.session();
            if session.id != previous.id {
                last = None;
            }
            let mut headers = session.headers();
            headers.extend(last.clone().map(|last| (LAST_EVENT.to_owned(), last)));
            match self.client.gateway_listen(&self.server, &headers).await {
                Ok(GatewayAnswer::Stream { mut events, .. }) => {
                    delay = RETRY_DELAY;
                    while let Ok(Some(event)) = events.next().await {
                        last = event.id.or(last);
                        if !event.data.is_empty() {
                            self.write(one_line(&event.data)).await;
                        }
                    }
                    delay = events.retry().unwrap_or(delay).min(MAX_RETRY_DELAY);
                }
                Ok(GatewayAnswer::Refused { status: 405, .. }) => return,
                // The last event is unknown to the gateway.
                Ok(GatewayAnswer::Refused { status: 400, .. }) if last.is_some() => last = None,
                Ok(GatewayAnswer::Refused { status: 404, .. })
                    if self.renew(&session).await.is_ok() => {}
                // The daemon may be restarting, or the previous stream may still be open.
                Ok(_) | Err(_) => delay = (delay * 2).min(MAX_RETRY_DELAY),
            }
            previous = session;
            tokio::time::sleep(delay).await;
        }
    }

    /// Reads the list of tools, to learn which arguments of `call` belong into headers.
    async fn list_tools(&self, call: &Line) -> bool {
        let Some(call) = call.single() else {
            return false;
        };
        let mut cursor = Value::Null;
        for _ in 0..MAX_TOOL_PAGES {
            let mut params = json!({"_meta": call.params["_meta"]});
            if !cursor.is_null() {
                params["cursor"] = cursor;
            }
            let request = json!({
                "jsonrpc": "2.0", "id": "boxwood-tools", "method": "tools/list", "params": params,
            });
            let Some(line) = Line::parse(request.to_string().as_bytes()) else {
                return false;
            };
            let headers = self.headers(&line, &self.session());
            let Some(response) = self.call(headers, &request).await else {
                return false;
            };
            self.param_headers.learn(&response["result"]);
            cursor = response["result"]["nextCursor"].clone();
            if cursor.is_null() {
                break;
            }
        }
        true
    }
}
