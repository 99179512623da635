//! The MCP session with the gateway. After a restart of the daemon it is replaced without involving the client.

use boxwood_client::{GatewayAnswer, GatewayHeaders};
use bytes::Bytes;
use serde_json::{Value, json};

use super::bridge::{Bridge, locked, one_line};
use super::error::BridgeError;
use super::message::Message;

const INITIALIZED: &[u8] = br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// Empty before `initialize`, and always for modern clients.
#[derive(Clone, Debug, Default)]
pub(super) struct Session {
    pub(super) id: Option<String>,
    version: Option<String>,
    /// The client's `initialize` request, to create the next session.
    initialize: Option<Bytes>,
}

impl Session {
    pub(super) fn headers(&self) -> GatewayHeaders {
        let Some(id) = &self.id else {
            return GatewayHeaders::new();
        };
        let mut headers = vec![("mcp-session-id".to_owned(), id.clone())];
        let version = self.version.clone();
        headers.extend(version.map(|version| ("mcp-protocol-version".to_owned(), version)));
        headers
    }
}

impl Bridge {
    /// Forwards the client's `initialize` and all messages of the response.
    pub(super) async fn initialize(
        &self,
        request: &Message,
        body: &Bytes,
    ) -> Result<(), BridgeError> {
        let messages = self.create_session(request, body).await?;
        locked(&self.setup).clear();
        for message in messages {
            self.write(message).await;
        }
        Ok(())
    }

    /// Replaces a session that the gateway has lost, unless another task has already done so.
    pub(super) async fn renew(&self, lost: &Session) -> Result<(), BridgeError> {
        let _renewal = self.renewal.lock().await;
        let session = self.session();
        if session.id != lost.id {
            return Ok(());
        }
        let initialize = session.initialize;
        let initialize = initialize.ok_or_else(|| BridgeError::interrupted("initialize"))?;
        let request = Message::parse(&initialize)?;
        self.create_session(&request, &initialize).await?;
        let headers = self.session().headers();
        self.post(&headers, Bytes::from_static(INITIALIZED), None)
            .await?;
        let setup: Vec<Value> = locked(&self.setup).values().cloned().collect();
        for request in setup {
            if !self.repeat(&headers, &request).await {
                let (method, params) = (&request["method"], &request["params"]);
                eprintln!("boxwood: failed to repeat {method} in the new session: {params}");
            }
        }
        Ok(())
    }

    /// Returns the messages of the response. The last one is the result.
    async fn create_session(
        &self,
        request: &Message,
        body: &Bytes,
    ) -> Result<Vec<String>, BridgeError> {
        let no_headers = GatewayHeaders::new();
        let id = request.id.as_ref();
        let (messages, id) = self.request(&no_headers, body.clone(), id).await?;
        let version = messages.last().and_then(|result| {
            let result: Value = serde_json::from_str(result).ok()?;
            Some(result["result"]["protocolVersion"].as_str()?.to_owned())
        });
        *locked(&self.session) = Session {
            id,
            version,
            initialize: Some(body.clone()),
        };
        Ok(messages)
    }

    /// Repeats a request without involving the client. Returns true if it succeeded.
    async fn repeat(&self, headers: &GatewayHeaders, request: &Value) -> bool {
        let body = Bytes::from(request.to_string());
        let Ok((messages, _)) = self.request(headers, body, request.get("id")).await else {
            return false;
        };
        let response = messages.last().map(String::as_str).unwrap_or_default();
        serde_json::from_str(response).is_ok_and(|response: Value| response.get("result").is_some())
    }

    /// Returns the messages of the response, the result last, and the id of a new session.
    async fn request(
        &self,
        headers: &GatewayHeaders,
        body: Bytes,
        id: Option<&Value>,
    ) -> Result<(Vec<String>, Option<String>), BridgeError> {
        let interrupted = || BridgeError::interrupted("initialize");
        match self.post(headers, body, None).await? {
            GatewayAnswer::Message { body, session } => {
                let message = one_line(&String::from_utf8_lossy(&body));
                Ok((vec![message], session))
            }
            GatewayAnswer::Stream {
                mut events,
                session,
            } => {
                let mut messages = Vec::new();
                loop {
                    let event = events.next().await.map_err(BridgeError::Unreachable)?;
                    let event = event.ok_or_else(interrupted)?;
                    if !event.data.is_empty() {
                        messages.push(one_line(&event.data));
                    }
                    if is_response(&event.data, id) {
                        return Ok((messages, session));
                    }
                }
            }
            GatewayAnswer::Refused { status, body } => Err(BridgeError::Refused { status, body }),
            GatewayAnswer::Accepted => Err(interrupted()),
        }
    }

    /// Records what a later session needs: the log level, the subscriptions and the headers of tools.
    pub(super) fn observe(&self, request: &Message, response: &str) {
        let method = request.description();
        let is_setup = matches!(
            method,
            "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe"
        ) && request.modern_version().is_none();
        if !is_setup && method != "tools/list" {
            return;
        }
        let response: Value = serde_json::from_str(response).unwrap_or_default();
        let Some(result) = response.get("result") else {
            return;
        };
        if !is_setup {
            return self.param_headers.learn(result);
        }
        let uri = request.params["uri"].as_str().unwrap_or_default();
        let mut setup = locked(&self.setup);
        if method == "resources/unsubscribe" {
            setup.remove(uri);
        } else {
            let repeated = json!({
                "jsonrpc": "2.0", "id": "boxwood-setup", "method": method, "params": request.params,
            });
            setup.insert(uri.to_owned(), repeated);
        }
    }
}

fn is_response(message: &str, request: Option<&Value>) -> bool {
    let message = Message::parse(message.as_bytes());
    message.is_ok_and(|message| message.response_id().is_some_and(|id| Some(id) == request))
}
