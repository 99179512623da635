//! Requests and their responses, and the stream of messages from the server.

use std::time::Duration;

use boxwood_client::{GatewayAnswer, GatewayStream};
use bytes::Bytes;
use serde_json::Value;

use super::bridge::{Bridge, one_line};
use super::error::BridgeError;
use super::message::Message;
use super::session::Session;

const LAST_EVENT: &str = "last-event-id";
/// Consecutive streams that break without a new event. A restart of the daemon is waited for elsewhere.
const MAX_BROKEN_STREAMS: u32 = 8;
const RETRY_DELAY: Duration = Duration::from_millis(500);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);
const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";

enum StreamEnd {
    Complete,
    /// With the id of the last event.
    Broken(Option<String>),
}

impl Bridge {
    /// Sends a request and writes the messages of the response.
    pub(super) async fn exchange(
        &self,
        request: &Message,
        id: &Value,
        body: &Bytes,
    ) -> Result<(), BridgeError> {
        let name = request.description();
        let non_idempotent = (!request.is_idempotent()).then_some(name);
        let is_legacy = request.modern_version().is_none();
        let (mut renewed, mut broken_streams) = (false, 0);
        loop {
            let session = self.session();
            let headers = self.headers(request, &session);
            match self.post(&headers, body.clone(), non_idempotent).await? {
                GatewayAnswer::Message { body, .. } => {
                    let text = String::from_utf8_lossy(&body);
                    self.observe(request, &text);
                    self.write(one_line(&text)).await;
                    return Ok(());
                }
                GatewayAnswer::Stream { events, .. } => {
                    let is_repeated = broken_streams > 0;
                    match self.forward(request, id, events, is_repeated).await {
                        StreamEnd::Complete => return Ok(()),
                        StreamEnd::Broken(Some(last)) if is_legacy => {
                            return self.resume(request, id, &session, last).await;
                        }
                        StreamEnd::Broken(_) => {}
                    }
                    // A subscription has no end, so it is repeated without a limit.
                    let may_repeat =
                        request.is("subscriptions/listen") || broken_streams < MAX_BROKEN_STREAMS;
                    if is_legacy || non_idempotent.is_some() || !may_repeat {
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
                    return Err(BridgeError::Refused { status, body });
                }
            }
        }
    }

    /// Writes the messages of a stream until the response has arrived.
    async fn forward(
        &self,
        request: &Message,
        id: &Value,
        mut events: GatewayStream,
        is_repeated: bool,
    ) -> StreamEnd {
        let mut last = None;
        loop {
            let Ok(Some(event)) = events.next().await else {
                return StreamEnd::Broken(last);
            };
            last = event.id.or(last);
            if event.data.is_empty() {
                continue;
            }
            let message = Message::parse(event.data.as_bytes()).ok();
            let message = message.as_ref();
            let is_response = message.and_then(Message::response_id) == Some(id);
            if is_response {
                self.observe(request, &event.data);
            }
            // The client got the first acknowledgement.
            if !(is_repeated && message.is_some_and(|message| message.is(ACKNOWLEDGED))) {
                self.write(one_line(&event.data)).await;
            }
            if is_response {
                return StreamEnd::Complete;
            }
        }
    }

    /// Continues a broken stream of the same session. Event ids of another session have another meaning.
    async fn resume(
        &self,
        request: &Message,
        id: &Value,
        session: &Session,
        mut last: String,
    ) -> Result<(), BridgeError> {
        let interrupted = || BridgeError::interrupted(request.description());
        let mut broken_streams = 0;
        while broken_streams < MAX_BROKEN_STREAMS && self.session().id == session.id {
            let mut headers = session.headers();
            headers.push((LAST_EVENT.to_owned(), last.clone()));
            let listen = || self.client.gateway_listen(&self.server, &headers);
            let Ok(GatewayAnswer::Stream { events, .. }) = self.client.with_retries(listen).await
            else {
                return Err(interrupted());
            };
            match self.forward(request, id, events, false).await {
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
}
