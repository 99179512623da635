//! Handles `initialize`: selects the process of the session and negotiates the protocol version.

use std::sync::Arc;

use serde_json::json;
use serde_json::value::RawValue;

use crate::gateway::aggregate;
use crate::gateway::client_session::client_processes::ClientProcesses;
use crate::gateway::client_session::{ClientSession, Initialized};
use crate::gateway::error::{INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, RpcError};
use crate::gateway::json::raw;
use crate::gateway::notifications::membership::HubMemberships;
use crate::gateway::{Inner, Target};
use crate::hosting::HostingError;
use crate::protocol_versions::{self, ACCEPTS_REQUESTS, NEWEST_LEGACY, translate};
use crate::wire::{Message, Object, Protocol};

/// Maximum size of the parameters. They are kept for the whole session.
const MAX_INITIALIZE_BYTES: usize = 64 * 1024;

/// Returns the server's response with all its fields.
pub(crate) async fn initialize(
    inner: &Arc<Inner>,
    session: &Arc<ClientSession>,
    params: Option<&RawValue>,
) -> Result<Message, RpcError> {
    if session.initialized().is_some() {
        let text = "session is already initialized; omit `Mcp-Session-Id` to start a new one";
        return Err(RpcError::new(INVALID_REQUEST, text));
    }
    let bad = |text: &str| RpcError::new(INVALID_PARAMS, text);
    let params = params.ok_or_else(|| bad("`initialize` requires `params`"))?;
    if params.get().len() > MAX_INITIALIZE_BYTES {
        let text = format!("`params` of `initialize` exceed {MAX_INITIALIZE_BYTES} bytes");
        return Err(bad(&text));
    }
    let fields =
        Object::parse(params.get()).map_err(|error| bad(&format!("invalid `params`: {error}")))?;
    let requested = fields.text("protocolVersion");
    let requested = requested.ok_or_else(|| bad("`protocolVersion` must be a string"))?;
    let (initialized, result) = match &session.target {
        Target::One(name) => {
            let hosted = inner.registry.server(name).await?;
            let handshake = hosted.handshake();
            // A server with tasks expects a single client.
            let is_own = accepts_server_requests(&fields) || handshake.has("tasks");
            let is_own = is_own && handshake.protocol == Protocol::Legacy;
            let mut processes = is_own.then(|| ClientProcesses::new(session, params, false));
            let mut own_result = None;
            if let Some(own) = &processes {
                match own.of(hosted.as_ref()).await {
                    Ok(process) => {
                        let handshake = &process.handshake;
                        own_result =
                            Some((handshake.result.clone(), handshake.protocol_version.clone()));
                    }
                    // The shared process serves the session; server requests are refused.
                    Err(HostingError::Full { .. }) => processes = None,
                    Err(error) => return Err(error.into()),
                }
            }
            let (result, version) = match own_result {
                Some(own) => own,
                None => negotiated(&translate::initialized(&handshake), &requested)?,
            };
            let is_shared = processes.is_none();
            let initialized = Initialized {
                version,
                hubs: is_shared.then(|| HubMemberships::of(inner, session)),
                processes,
            };
            (initialized, result)
        }
        Target::All => {
            let (result, version) = negotiated(&all_servers(), &requested)?;
            let is_own = accepts_server_requests(&fields);
            let initialized = Initialized {
                version,
                hubs: Some(HubMemberships::of(inner, session)),
                processes: is_own.then(|| ClientProcesses::new(session, params, true)),
            };
            (initialized, result)
        }
    };
    if !session.set_initialized(initialized) {
        let text = "session is already initialized";
        return Err(RpcError::new(INVALID_REQUEST, text));
    }
    Ok(Message::result(Box::default(), result))
}

/// The handshake result of the aggregate.
fn all_servers() -> Box<RawValue> {
    let mut capabilities = aggregate::capabilities();
    capabilities["logging"] = json!({});
    raw(&json!({
        "protocolVersion": NEWEST_LEGACY,
        "capabilities": capabilities,
        "serverInfo": aggregate::server_info(),
        "instructions": aggregate::INSTRUCTIONS,
    }))
}

/// The handshake result of a shared process with the protocol version of this client.
fn negotiated(handshake: &RawValue, requested: &str) -> Result<(Box<RawValue>, String), RpcError> {
    let mut result = Object::parse(handshake.get()).map_err(|error| {
        RpcError::new(
            INTERNAL_ERROR,
            format!("invalid handshake result of the server: {error}"),
        )
    })?;
    let server_version = result.text("protocolVersion").unwrap_or_default();
    let version = protocol_versions::negotiated(requested, &server_version);
    result.set("protocolVersion", raw(&version));
    Ok((result.raw(), version))
}

fn accepts_server_requests(params: &Object) -> bool {
    let capabilities = params.get("capabilities");
    let capabilities = capabilities.and_then(|raw| Object::parse(raw.get()).ok());
    let is_declared = |key: &&str| {
        let value = capabilities.as_ref().and_then(|all| all.get(key));
        value.is_some_and(|value| value.get() != "null")
    };
    ACCEPTS_REQUESTS.iter().any(is_declared)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_clients_that_accept_server_requests_need_a_dedicated_process() {
        let cases = [
            (r#"{"capabilities":{}}"#, false),
            (r#"{"capabilities":{"experimental":{}}}"#, false),
            (r#"{"capabilities":{"roots":null}}"#, false),
            (r#"{"capabilities":{"roots":{"listChanged":true}}}"#, true),
            (r#"{"capabilities":{"elicitation":{}}}"#, true),
            (r#"{"capabilities":{"sampling":{}}}"#, true),
            ("{}", false),
        ];
        for (text, expected) in cases {
            let params = Object::parse(text).expect("an object");
            assert_eq!(accepts_server_requests(&params), expected, "{text}");
        }
    }
}
