//! The MCP session with the gateway. After a restart of the daemon it is replaced without involving the client.

use boxwood_client::{GatewayAnswer, GatewayHeaders};
use bytes::Bytes;
use serde_json::{Value, json};

use super::bridge::{Bridge, locked, one_line};
use super::error::BridgeError;
use super::message::Line;

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
    pub(super) async fn initialize(&self, line: &Line, body: &Bytes) -> Result<(), BridgeError> {
        let messages = self.create_session(line, body).await?;
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
        let interrupted = || BridgeError::interrupted("initialize");
        let initialize = session.initialize.ok_or_else(interrupted)?;
        let line = Line::parse(&initialize).ok_or_else(interrupted)?;
        self.create_session(&line, &initialize).await?;
        let headers = self.session().headers();
        self.post(&headers, Bytes::from_static(INITIALIZED), None)
            .await?;
        let setup: Vec<Value> = locked(&self.setup).values().cloned().collect();
        for request in setup {
            let response = self.call(headers.clone(), &request).await;
            if response.is_none_or(|response| response.get("result").is_none()) {
                let (method, params) = (&request["method"], &request["params"]);
                eprintln!("boxwood: failed to repeat {method} in the new session: {params}");
            }
        }
        Ok(())
    }

    /// Returns the messages of the response. The last one is the result.
    async fn create_session(&self, line: &Line, body: &Bytes) -> Result<Vec<String>, BridgeError> {
        let no_headers = GatewayHeaders::new();
        let (messages, id) = match self.post(&no_headers, body.clone(), None).await? {
            GatewayAnswer::Message { body, session } => {
                (vec![one_line(&String::from_utf8_lossy(&body))], session)
            }
            GatewayAnswer::Stream {
                mut events,
                session,
            } => {
                let request = line.single().and_then(|message| message.id.as_ref());
                let mut messages = Vec::new();
                let mut complete = false;
                while !complete {
                    let event = events.next().await.map_err(BridgeError::Unreachable)?;
                    let event = event.ok_or_else(|| BridgeError::interrupted("initialize"))?;
                    if !event.data.is_empty() {
                        complete = is_response(&event.data, request);
                        messages.push(one_line(&event.data));
                    }
                }
                (messages, session)
            }
            GatewayAnswer::Refused { status, body } => {
                return Err(BridgeError::Refused { status, body });
            }
            GatewayAnswer::Accepted => return Err(BridgeError::interrupted("initialize")),
        };
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

    /// Sends a request of the bridge itself. The client sees nothing of it.
    pub(super) async fn call(&self, headers: GatewayHeaders, request: &Value) -> Option<Value> {
        let body = Bytes::from(request.to_string());
        match self.post(&headers, body, None).await.ok()? {
            GatewayAnswer::Message { body, .. } => serde_json::from_slice(&body).ok(),
            GatewayAnswer::Stream { mut events, .. } => {
                while let Ok(Some(event)) = events.next().await {
                    if is_response(&event.data, request.get("id")) {
                        return serde_json::from_str(&event.data).ok();
                    }
                }
                None
            }
            GatewayAnswer::Accepted | GatewayAnswer::Refused { .. } => None,
        }
    }

    /// Records what a later session needs: the log level, the subscriptions and the headers of tools.
    pub(super) fn observe(&self, line: &Line, response: &str) {
        let is_relevant = line.messages.iter().any(|message| {
            matches!(
                message.method.as_deref(),
                Some(
                    "tools/list"
                        | "logging/setLevel"
                        | "resources/subscribe"
                        | "resources/unsubscribe"
                )
            )
        });
        if !is_relevant {
            return;
        }
        let responses = match serde_json::from_str(response).unwrap_or_default() {
            Value::Array(responses) => responses,
            response => vec![response],
        };
        for response in responses {
            let Some(result) = response.get("result") else {
                continue;
            };
            let id = response.get("id");
            let Some(request) = line.messages.iter().find(|one| one.id.as_ref() == id) else {
                continue;
            };
            let method = request.method.as_deref().unwrap_or_default();
            let uri = request.params["uri"].as_str().unwrap_or_default();
            let repeated = json!({
                "jsonrpc": "2.0", "id": "boxwood-setup", "method": method, "params": request.params,
            });
            let mut setup = locked(&self.setup);
            match method {
                "tools/list" => self.param_headers.learn(result),
                _ if line.modern_version().is_some() => {}
                "logging/setLevel" => {
                    setup.insert(String::new(), repeated);
                }
                "resources/subscribe" => {
                    setup.insert(uri.to_owned(), repeated);
                }
                "resources/unsubscribe" => {
                    setup.remove(uri);
                }
                _ => {}
            }
        }
    }
}

fn is_response(message: &str, request: Option<&Value>) -> bool {
    let line = Line::parse(message.as_bytes());
    line.is_some_and(|line| line.response_ids().any(|id| Some(id) == request))
}
