//! The first words with a server, in either era of the protocol, and whether it still listens.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::connection::{Ask, Connection};
use super::error::CallError;
use super::message::Message;
use super::object::{Object, raw_text};

/// The newest revision that begins with `initialize`.
pub(crate) const NEWEST_LEGACY: &str = "2025-11-25";
/// The first revision without sessions.
pub(crate) const FIRST_MODERN: &str = "2026-07-28";

const VERSION_META: &str = "io.modelcontextprotocol/protocolVersion";
const CLIENT_META: &str = "io.modelcontextprotocol/clientInfo";
const CAPABILITIES_META: &str = "io.modelcontextprotocol/clientCapabilities";
const SERVER_META: &str = "io.modelcontextprotocol/serverInfo";

/// It is kept, and shown to every client.
const LARGEST: usize = 1 << 20;

/// Of who a server says it is, where that is shown. Icons may stand in it.
const LONGEST_INFO: usize = 16 << 10;
const LONGEST_INFO_FIELD: usize = 1 << 10;

/// Of a server's reason for a refusal. Far more than anybody is shown: that is cut where secrets are known,
/// and after they are hidden.
const LONGEST_WORDS: usize = 64 << 10;

const UNSUPPORTED_VERSION: i64 = -32022;
const METHOD_NOT_FOUND: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;
const INVALID_REQUEST: i64 = -32600;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Era {
    /// Begins with `initialize`.
    Legacy,
    /// Every request stands for itself.
    Modern,
}

/// What a server said of itself. Kept beside the server, for a daemon that finds it running.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Greeting {
    pub(crate) era: Era,
    pub(crate) protocol_version: String,
    /// Of `initialize` or of `server/discover`, as it came.
    pub(crate) result: Box<RawValue>,
    /// An object; empty when it named none.
    pub(crate) capabilities: Box<RawValue>,
    pub(crate) server_info: Option<Box<RawValue>>,
    pub(crate) instructions: Option<String>,
}

impl Greeting {
    /// Whether it named this capability, whatever it said about it.
    pub(crate) fn has(&self, capability: &str) -> bool {
        let capabilities = Object::parse(self.capabilities.get());
        let named = capabilities
            .as_ref()
            .ok()
            .and_then(|all| all.get(capability));
        named.is_some_and(|named| named.get() != "null")
    }

    /// Who the server says it is. Of what is too long to be read, the names alone.
    pub(crate) fn short_info(&self) -> Option<Box<RawValue>> {
        let info = self.server_info.as_ref()?;
        if info.get().len() <= LONGEST_INFO {
            return Some(info.clone());
        }
        let fields = Object::parse(info.get()).ok()?;
        let mut short = Object::default();
        for key in ["name", "title", "version"] {
            let field = fields.get(key);
            let field = field.filter(|field| field.get().len() <= LONGEST_INFO_FIELD);
            if let Some(field) = field {
                short.set(key, field.to_owned());
            }
        }
        Some(short.raw())
    }

    fn legacy(result: &RawValue) -> Option<Self> {
        let fields = Object::parse(result.get()).ok()?;
        let version = fields.text("protocolVersion")?;
        Some(Self::of(Era::Legacy, version, result, &fields))
    }

    fn modern(result: &RawValue) -> Option<Self> {
        let fields = Object::parse(result.get()).ok()?;
        let supported: Vec<String> =
            serde_json::from_str(fields.get("supportedVersions")?.get()).ok()?;
        let modern = supported.iter().filter(|version| is_modern(version));
        let version = match supported.iter().find(|version| *version == FIRST_MODERN) {
            Some(known) => known.clone(),
            None => modern.max()?.clone(),
        };
        let mut greeting = Self::of(Era::Modern, version, result, &fields);
        if greeting.server_info.is_none() {
            let meta = super::message::meta(result);
            greeting.server_info = meta.and_then(|mut meta| meta.remove(SERVER_META));
        }
        Some(greeting)
    }

    fn of(era: Era, protocol_version: String, result: &RawValue, fields: &Object) -> Self {
        let capabilities = fields.get("capabilities");
        let capabilities = capabilities.filter(|raw| raw.get().starts_with('{'));
        let server_info = fields.get("serverInfo");
        Self {
            era,
            protocol_version,
            result: result.to_owned(),
            capabilities: capabilities.map_or_else(|| Object::default().raw(), ToOwned::to_owned),
            server_info: server_info
                .filter(|raw| raw.get().starts_with('{'))
                .map(ToOwned::to_owned),
            instructions: fields.text("instructions"),
        }
    }
}

/// Revisions are dates, so text order is their order.
pub(crate) fn is_modern(version: &str) -> bool {
    version >= FIRST_MODERN
}

/// In whose name a server is greeted.
#[derive(Clone, Debug)]
pub(crate) struct GreetAs {
    params: Box<RawValue>,
}

impl GreetAs {
    /// In our own. Nothing is offered, so the server has nothing to ask for.
    pub(crate) fn boxwood() -> Self {
        let mut client = Object::default();
        client.set("name", raw_text("boxwood"));
        client.set("version", raw_text(env!("CARGO_PKG_VERSION")));
        let mut params = Object::default();
        params.set("protocolVersion", raw_text(NEWEST_LEGACY));
        params.set("capabilities", Object::default().raw());
        params.set("clientInfo", client.raw());
        Self {
            params: params.raw(),
        }
    }

    /// In a client's, with the parameters of its own `initialize`.
    pub(crate) fn client(initialize: Box<RawValue>) -> Self {
        Self { params: initialize }
    }

    fn with_version(&self, version: &str) -> Option<Box<RawValue>> {
        let mut params = Object::parse(self.params.get()).ok()?;
        params.set("protocolVersion", raw_text(version));
        Some(params.raw())
    }

    /// For requests that stand for themselves: who asks, in `_meta`.
    pub(crate) fn stateless(&self) -> Box<RawValue> {
        let params = Object::parse(self.params.get()).unwrap_or_default();
        let empty = || Object::default().raw();
        let mut meta = Object::default();
        meta.set(VERSION_META, raw_text(FIRST_MODERN));
        if let Some(client) = params.get("clientInfo") {
            meta.set(CLIENT_META, client.to_owned());
        }
        let capabilities = params.get("capabilities");
        meta.set(
            CAPABILITIES_META,
            capabilities.map_or_else(empty, ToOwned::to_owned),
        );
        let mut params = Object::default();
        params.set("_meta", meta.raw());
        params.raw()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GreetError {
    #[error(transparent)]
    Call(CallError),
    #[error("the server refused `{method}` ({code}): {message}")]
    Refused {
        method: &'static str,
        code: i64,
        message: String,
    },
    #[error("the server's answer to `{method}` is not one: {what}")]
    Unreadable {
        method: &'static str,
        what: &'static str,
    },
}

/// `initialize` first, which every server in use knows; some end on anything else. A server that refuses it
/// as unknown is asked in the modern way.
pub(crate) async fn greet(
    connection: &Connection,
    client: &GreetAs,
    within: Duration,
) -> Result<Greeting, GreetError> {
    let deadline = Instant::now() + within;
    let answer = initialize(connection, client.params.clone(), deadline).await?;
    let Some((code, _)) = answer.error_words() else {
        return welcome(connection, &answer).await;
    };
    let refused = refusal("initialize", &answer);
    if let Some(version) = offered_legacy(&answer) {
        let Some(params) = client.with_version(&version) else {
            return Err(refused);
        };
        let answer = initialize(connection, params, deadline).await?;
        return welcome(connection, &answer).await;
    }
    let may_be_modern = [
        UNSUPPORTED_VERSION,
        METHOD_NOT_FOUND,
        INVALID_PARAMS,
        INVALID_REQUEST,
    ];
    if !may_be_modern.contains(&code) {
        return Err(refused);
    }
    let left = deadline.saturating_duration_since(Instant::now());
    match discover(connection, client, left).await {
        // It knows neither: what it said first tells more.
        Err(GreetError::Refused { .. }) => Err(refused),
        greeted => greeted,
    }
}

/// For a server that may know the modern way.
pub(crate) async fn discover(
    connection: &Connection,
    client: &GreetAs,
    within: Duration,
) -> Result<Greeting, GreetError> {
    const METHOD: &str = "server/discover";
    let params = Some(client.stateless());
    let asked = connection.request(METHOD, params, Ask::ours(within));
    let answer = asked.await.map_err(GreetError::Call)?;
    let Some(result) = answer.outcome() else {
        return Err(refusal(METHOD, &answer));
    };
    check_size(METHOD, result)?;
    Greeting::modern(result).ok_or(GreetError::Unreadable {
        method: METHOD,
        what: "no modern revision in `supportedVersions`",
    })
}

/// Whether it still answers. An error is an answer too.
pub(crate) async fn ping(
    connection: &Connection,
    era: Era,
    within: Duration,
) -> Result<(), CallError> {
    let (method, params) = match era {
        Era::Legacy => ("ping", None),
        Era::Modern => ("server/discover", Some(GreetAs::boxwood().stateless())),
    };
    let asked = connection.request(method, params, Ask::ours(within));
    asked.await.map(drop)
}

async fn initialize(
    connection: &Connection,
    params: Box<RawValue>,
    deadline: Instant,
) -> Result<Message, GreetError> {
    let left = deadline.saturating_duration_since(Instant::now());
    let asked = connection.request("initialize", Some(params), Ask::ours(left));
    asked.await.map_err(GreetError::Call)
}

async fn welcome(connection: &Connection, answer: &Message) -> Result<Greeting, GreetError> {
    let Some(result) = answer.outcome() else {
        return Err(refusal("initialize", answer));
    };
    check_size("initialize", result)?;
    let greeting = Greeting::legacy(result).ok_or(GreetError::Unreadable {
        method: "initialize",
        what: "no `protocolVersion` in the result",
    })?;
    let initialized = Message::notification("notifications/initialized", None);
    let said = connection.notify(initialized).await;
    said.map_err(GreetError::Call)?;
    Ok(greeting)
}

fn check_size(method: &'static str, result: &RawValue) -> Result<(), GreetError> {
    if result.get().len() > LARGEST {
        let what = "longer than 1 MiB";
        return Err(GreetError::Unreadable { method, what });
    }
    Ok(())
}

/// Some servers refuse a revision instead of naming theirs in the result.
fn offered_legacy(answer: &Message) -> Option<String> {
    let supported = supported(answer)?;
    let legacy = supported.into_iter().filter(|version| !is_modern(version));
    legacy
        .filter(|version| version.as_str() < NEWEST_LEGACY)
        .max()
}

fn supported(answer: &Message) -> Option<Vec<String>> {
    let error = answer.error().filter(|raw| raw.get().len() <= LARGEST)?;
    let error = Object::parse(error.get()).ok()?;
    let data = Object::parse(error.get("data")?.get()).ok()?;
    serde_json::from_str(data.get("supported")?.get()).ok()
}

fn refusal(method: &'static str, answer: &Message) -> GreetError {
    let (code, mut message) = answer.error_words().unwrap_or_default();
    message.truncate(message.floor_char_boundary(LONGEST_WORDS));
    GreetError::Refused {
        method,
        code,
        message,
    }
}
