//! The handshake with a server in the legacy and the modern protocol version, and `ping`.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::time::Instant;

use super::connection::{CallOptions, Connection};
use super::error::CallError;
use super::message::Message;
use super::message::object::{Object, raw};
use crate::protocol_versions::{
    CLIENT_CAPABILITIES, CLIENT_INFO, MODERN, NEWEST_LEGACY, SERVER_INFO, VERSION, is_modern,
};

/// Maximum size of the result, which is kept.
const MAX_RESULT_BYTES: usize = 1 << 20;

/// Maximum size of the server info that is shown. It may contain icons.
const MAX_INFO_BYTES: usize = 16 << 10;
const MAX_INFO_FIELD_BYTES: usize = 1 << 10;

/// Maximum size of an error message. It is shortened further after secrets are redacted.
const MAX_ERROR_BYTES: usize = 64 << 10;

const UNSUPPORTED_VERSION: i64 = -32022;
const METHOD_NOT_FOUND: i64 = -32601;
const INVALID_PARAMS: i64 = -32602;
const INVALID_REQUEST: i64 = -32600;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Protocol {
    /// Starts with `initialize`.
    Legacy,
    /// Starts with `server/discover`, and has no session.
    Modern,
}

/// The result of a handshake. Stored on disk for a daemon that adopts the running server.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Handshake {
    // The key in run records on disk.
    #[serde(rename = "era")]
    pub(crate) protocol: Protocol,
    pub(crate) protocol_version: String,
    /// The result of `initialize` or `server/discover`.
    pub(crate) result: Box<RawValue>,
    /// An object; empty if missing.
    pub(crate) capabilities: Box<RawValue>,
    pub(crate) server_info: Option<Box<RawValue>>,
    pub(crate) instructions: Option<String>,
}

impl Handshake {
    /// Returns true if the server has this capability.
    pub(crate) fn has(&self, capability: &str) -> bool {
        let capabilities = Object::parse(self.capabilities.get());
        let named = capabilities
            .as_ref()
            .ok()
            .and_then(|all| all.get(capability));
        named.is_some_and(|named| named.get() != "null")
    }

    /// The server info. If it is too long, only names and version.
    pub(crate) fn short_info(&self) -> Option<Box<RawValue>> {
        let info = self.server_info.as_ref()?;
        if info.get().len() <= MAX_INFO_BYTES {
            return Some(info.clone());
        }
        let fields = Object::parse(info.get()).ok()?;
        let mut short = Object::default();
        for key in ["name", "title", "version"] {
            let field = fields.get(key);
            let field = field.filter(|field| field.get().len() <= MAX_INFO_FIELD_BYTES);
            if let Some(field) = field {
                short.set(key, field.to_owned());
            }
        }
        Some(short.raw())
    }

    fn legacy(result: &RawValue) -> Option<Self> {
        let fields = Object::parse(result.get()).ok()?;
        let version = fields.text("protocolVersion")?;
        Some(Self::of(Protocol::Legacy, version, result, &fields))
    }

    fn modern(result: &RawValue) -> Option<Self> {
        let fields = Object::parse(result.get()).ok()?;
        let supported: Vec<String> =
            serde_json::from_str(fields.get("supportedVersions")?.get()).ok()?;
        let modern = supported.iter().filter(|version| is_modern(version));
        let version = match supported.iter().find(|version| *version == MODERN) {
            Some(known) => known.clone(),
            None => modern.max()?.clone(),
        };
        let mut handshake = Self::of(Protocol::Modern, version, result, &fields);
        if handshake.server_info.is_none() {
            let meta = super::message::meta(result);
            handshake.server_info = meta.and_then(|mut meta| meta.remove(SERVER_INFO));
        }
        Some(handshake)
    }

    fn of(
        protocol: Protocol,
        protocol_version: String,
        result: &RawValue,
        fields: &Object,
    ) -> Self {
        let capabilities = fields.get("capabilities");
        let capabilities = capabilities.filter(|raw| raw.get().starts_with('{'));
        let server_info = fields.get("serverInfo");
        Self {
            protocol,
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

/// The client parameters of a handshake.
#[derive(Clone, Debug)]
pub(crate) struct ClientIdentity {
    params: Box<RawValue>,
}

impl ClientIdentity {
    /// The daemon itself, without capabilities, so that the server sends no requests.
    pub(crate) fn boxwood() -> Self {
        let client = [
            ("name", raw("boxwood")),
            ("version", raw(env!("CARGO_PKG_VERSION"))),
        ];
        let params = Object::of([
            ("protocolVersion", raw(NEWEST_LEGACY)),
            ("capabilities", Object::default().raw()),
            ("clientInfo", Object::of(client).raw()),
        ]);
        Self {
            params: params.raw(),
        }
    }

    /// The parameters of a client's `initialize`.
    pub(crate) fn client(initialize: Box<RawValue>) -> Self {
        Self { params: initialize }
    }

    /// The parameters as `_meta` of a modern request.
    pub(crate) fn stateless(&self) -> Box<RawValue> {
        let params = Object::parse(self.params.get()).unwrap_or_default();
        let mut meta = Object::of([(VERSION, raw(MODERN))]);
        if let Some(client) = params.get("clientInfo") {
            meta.set(CLIENT_INFO, client.to_owned());
        }
        let capabilities = params.get("capabilities").map(ToOwned::to_owned);
        let none = || Object::default().raw();
        meta.set(CLIENT_CAPABILITIES, capabilities.unwrap_or_else(none));
        Object::of([("_meta", meta.raw())]).raw()
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HandshakeError {
    #[error(transparent)]
    Call(CallError),
    #[error("the server refused `{method}` ({code}): {message}")]
    Refused {
        method: &'static str,
        code: i64,
        message: String,
    },
    #[error("invalid response to `{method}`: {what}")]
    Unreadable {
        method: &'static str,
        what: &'static str,
    },
}

/// Starts with `initialize`: some servers exit on other methods. Falls back to the modern version if the
/// server refuses it.
pub(crate) async fn handshake(
    connection: &Connection,
    client: &ClientIdentity,
    timeout: Duration,
) -> Result<Handshake, HandshakeError> {
    let deadline = Instant::now() + timeout;
    let params = Some(client.params.clone());
    let request = connection.request("initialize", params, CallOptions::internal(timeout));
    let response = request.await.map_err(HandshakeError::Call)?;
    let Some((code, _)) = response.error_parts() else {
        return complete_legacy(connection, &response).await;
    };
    let refused = refusal("initialize", &response);
    let may_be_modern = [
        UNSUPPORTED_VERSION,
        METHOD_NOT_FOUND,
        INVALID_PARAMS,
        INVALID_REQUEST,
    ];
    if !may_be_modern.contains(&code) {
        return Err(refused);
    }
    let remaining = deadline.saturating_duration_since(Instant::now());
    match discover(connection, client, remaining).await {
        // The server supports neither; the first error is more useful.
        Err(HandshakeError::Refused { .. }) => Err(refused),
        result => result,
    }
}

/// Handshake of the modern protocol version.
pub(crate) async fn discover(
    connection: &Connection,
    client: &ClientIdentity,
    timeout: Duration,
) -> Result<Handshake, HandshakeError> {
    const METHOD: &str = "server/discover";
    let params = Some(client.stateless());
    let request = connection.request(METHOD, params, CallOptions::internal(timeout));
    let response = request.await.map_err(HandshakeError::Call)?;
    let Some(result) = response.outcome() else {
        return Err(refusal(METHOD, &response));
    };
    check_size(METHOD, result)?;
    Handshake::modern(result).ok_or(HandshakeError::Unreadable {
        method: METHOD,
        what: "no modern protocol version in `supportedVersions`",
    })
}

/// Checks that the server responds. An error is a response too.
pub(crate) async fn ping(
    connection: &Connection,
    protocol: Protocol,
    timeout: Duration,
) -> Result<(), CallError> {
    let (method, params) = match protocol {
        Protocol::Legacy => ("ping", None),
        Protocol::Modern => (
            "server/discover",
            Some(ClientIdentity::boxwood().stateless()),
        ),
    };
    let request = connection.request(method, params, CallOptions::internal(timeout));
    request.await.map(drop)
}

async fn complete_legacy(
    connection: &Connection,
    response: &Message,
) -> Result<Handshake, HandshakeError> {
    let Some(result) = response.outcome() else {
        return Err(refusal("initialize", response));
    };
    check_size("initialize", result)?;
    let handshake = Handshake::legacy(result).ok_or(HandshakeError::Unreadable {
        method: "initialize",
        what: "no `protocolVersion` in the result",
    })?;
    let initialized = Message::notification("notifications/initialized", None);
    let sent = connection.notify(initialized).await;
    sent.map_err(HandshakeError::Call)?;
    Ok(handshake)
}

fn check_size(method: &'static str, result: &RawValue) -> Result<(), HandshakeError> {
    if result.get().len() > MAX_RESULT_BYTES {
        let what = "longer than 1 MiB";
        return Err(HandshakeError::Unreadable { method, what });
    }
    Ok(())
}

fn refusal(method: &'static str, response: &Message) -> HandshakeError {
    let (code, mut message) = response.error_parts().unwrap_or_default();
    message.truncate(message.floor_char_boundary(MAX_ERROR_BYTES));
    HandshakeError::Refused {
        method,
        code,
        message,
    }
}
