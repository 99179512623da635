//! The session with the gateway, and how it is taken up again when the gateway has forgotten it.

use boxwood_client::{ClientError, GatewayAnswer, GatewayHeaders};
use bytes::Bytes;

use super::bridge::Bridge;
use super::peek::Peek;
use super::replies::one_line;

const SESSION: &str = "mcp-session-id";
const REVISION: &str = "mcp-protocol-version";
const INITIALIZED: &[u8] = br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// What was agreed with the gateway. Empty before the client's first word, and for good in the
/// stateless era.
#[derive(Clone, Debug, Default)]
pub(super) struct Session {
    pub(super) id: Option<String>,
    revision: Option<String>,
    /// The client's own `initialize`, to be said again.
    greeting: Option<Bytes>,
    /// Counts the sessions, so that two who find one gone do not both begin a new one.
    pub(super) generation: u64,
}

impl Session {
    pub(super) fn headers(&self) -> GatewayHeaders {
        let mut headers = GatewayHeaders::new();
        if let Some(id) = &self.id {
            headers.push((SESSION.to_owned(), id.clone()));
            let revision = self.revision.clone();
            headers.extend(revision.map(|revision| (REVISION.to_owned(), revision)));
        }
        headers
    }
}

/// Why no session could be had, as an answer to the `initialize` that asked for it.
pub(super) enum NoSession {
    Lost(ClientError),
    Refused {
        status: u16,
        body: Bytes,
    },
    /// The stream ended before the answer.
    BrokenOff,
}

impl Bridge {
    /// Says the client's `initialize` and remembers what comes of it. Every message of the answer is
    /// handed on.
    pub(super) async fn greet(&self, peek: &Peek, line: &Bytes) -> Result<(), NoSession> {
        let messages = self.begin(peek.id.as_deref(), line).await?;
        self.wishes.forget();
        for message in messages {
            self.say(message).await;
        }
        Ok(())
    }

    /// Begins anew with the client's own words, unless somebody else has done so since `generation`.
    /// The client knows nothing of it.
    pub(super) async fn renew(&self, generation: u64) -> Result<(), NoSession> {
        let _turn = self.renewing.lock().await;
        let session = self.session();
        if session.generation != generation {
            return Ok(());
        }
        let Some(greeting) = session.greeting else {
            return Err(NoSession::BrokenOff);
        };
        let id = Peek::at(&greeting).and_then(|peek| peek.id);
        self.begin(id.as_deref(), &greeting).await?;
        let headers = self.session().headers();
        self.post(&headers, Bytes::from_static(INITIALIZED), true)
            .await
            .map_err(NoSession::Lost)?;
        self.wish_again().await;
        Ok(())
    }

    /// The messages that came, the answer being the last.
    async fn begin(&self, id: Option<&str>, line: &Bytes) -> Result<Vec<String>, NoSession> {
        let answer = self
            .post(&GatewayHeaders::new(), line.clone(), true)
            .await
            .map_err(NoSession::Lost)?;
        let (messages, session) = match answer {
            GatewayAnswer::Message { body, session } => {
                (vec![one_line(&String::from_utf8_lossy(&body))], session)
            }
            GatewayAnswer::Stream {
                mut events,
                session,
            } => {
                let mut messages = Vec::new();
                let mut is_whole = false;
                while !is_whole {
                    match events.next().await {
                        Ok(Some(event)) if event.data.is_empty() => {}
                        Ok(Some(event)) => {
                            let peek = Peek::at(event.data.as_bytes()).unwrap_or_default();
                            is_whole = peek.answers(id);
                            messages.push(one_line(&event.data));
                        }
                        Ok(None) => return Err(NoSession::BrokenOff),
                        Err(error) => return Err(NoSession::Lost(error)),
                    }
                }
                (messages, session)
            }
            GatewayAnswer::Refused { status, body } => {
                return Err(NoSession::Refused { status, body });
            }
            GatewayAnswer::Accepted => return Err(NoSession::BrokenOff),
        };
        let revision = messages.last().and_then(|answer| agreed(answer));
        self.set_session(|before| Session {
            id: session,
            revision,
            greeting: Some(line.clone()),
            generation: before.generation + 1,
        });
        Ok(messages)
    }
}

/// The revision that an answer to `initialize` names.
fn agreed(answer: &str) -> Option<String> {
    let answer: serde_json::Value = serde_json::from_str(answer).ok()?;
    Some(answer["result"]["protocolVersion"].as_str()?.to_owned())
}
