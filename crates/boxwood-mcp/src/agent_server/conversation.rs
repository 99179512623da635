//! Determines which conversation, and therefore which box, a request belongs to.
//!
//! Uses the request's `_meta`, its HTTP headers and the server's default. The agent's template derives the session
//! id.

use boxwood_api::{AgentPipeline, AgentQuery, SessionId};
use http::request::Parts;
use rmcp::RoleServer;
use rmcp::model::ErrorData;
use rmcp::service::RequestContext;
use serde_json::Value;

use crate::protocol_versions::is_modern;

/// Key in a request's `_meta` that names the box's session.
pub const SESSION_META: &str = "io.boxwood/session";
/// HTTP header with the same meaning.
pub const SESSION_HEADER: &str = "boxwood-session";

const MCP_SESSION_HEADER: &str = "mcp-session-id";
const LAUNCHER: &str = "mcp";
/// Template variable with the requested name.
const NAME: &str = "mcp_session_name";
/// Conversation of stateless requests that name none.
const SHARED: &str = "default";

/// The conversation of requests that do not name one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DefaultConversation {
    /// Chosen explicitly. The session has exactly this name.
    Named(SessionId),
    /// Derived, for example from a directory.
    Derived(String),
    /// One per MCP session, and one for all requests without an MCP session.
    PerMcpSession,
}

impl DefaultConversation {
    pub(crate) fn query(
        &self,
        context: &RequestContext<RoleServer>,
    ) -> Result<AgentQuery, ErrorData> {
        if let Some(value) = context.meta.get(SESSION_META) {
            let name = value.as_str().ok_or_else(|| {
                ErrorData::invalid_params(format!("`_meta.{SESSION_META}` must be a string"), None)
            })?;
            return named(name);
        }
        let parts = context.extensions.get::<Parts>();
        if let Some(value) = parts.and_then(|parts| parts.headers.get(SESSION_HEADER)) {
            let name = std::str::from_utf8(value.as_bytes()).map_err(|_| {
                ErrorData::invalid_params("header `Boxwood-Session` must be UTF-8", None)
            })?;
            return named(name);
        }
        match self {
            Self::Named(id) => named(id.as_str()),
            Self::Derived(name) => Ok(derived(name)),
            Self::PerMcpSession => Ok(derived(mcp_session(context).unwrap_or(SHARED))),
        }
    }
}

/// The id of the request's MCP session. `None` for protocol versions without sessions.
pub(crate) fn mcp_session(context: &RequestContext<RoleServer>) -> Option<&str> {
    let legacy = context
        .protocol_version()
        .is_some_and(|version| !is_modern(version.as_str()));
    let parts = context.extensions.get::<Parts>().filter(|_| legacy)?;
    parts.headers.get(MCP_SESSION_HEADER)?.to_str().ok()
}

/// A session of this name, unless the operator forces a template.
fn named(name: &str) -> Result<AgentQuery, ErrorData> {
    let id = SessionId::new(name).map_err(|error| {
        ErrorData::invalid_params(format!("`{name}` cannot name a session: {error}"), None)
    })?;
    // With a forced template, a name chosen by a client must not look like another user's id.
    let mut query = derived(&format!("{LAUNCHER}-{id}"));
    query
        .variables
        .insert(NAME.to_owned(), Value::from(id.as_str()));
    query.pipeline = AgentPipeline {
        box_session_id_template: Some(format!("{{{NAME}}}")),
    };
    Ok(query)
}

// Without a query id, activated skills belong to the session instead of one request.
fn derived(name: &str) -> AgentQuery {
    AgentQuery {
        launcher_type: Some(LAUNCHER.to_owned()),
        launcher_id: Some(Value::from(name)),
        ..AgentQuery::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_conversation_uses_that_session_name() {
        let query = named("build").expect("query");
        assert_eq!(query.variables[NAME], Value::from("build"));
        assert_eq!(
            query.pipeline.box_session_id_template.as_deref(),
            Some("{mcp_session_name}")
        );
        // The value that a forced template sees.
        assert_eq!(query.launcher_id, Some(Value::from("mcp-build")));
        assert_eq!(query.query_id, None);
    }

    #[test]
    fn an_invalid_session_name_is_refused() {
        for name in ["", "a\nb", &"x".repeat(300)] {
            assert!(named(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn a_derived_name_uses_the_default_template() {
        let query = derived("0123");
        assert_eq!(query.launcher_type.as_deref(), Some("mcp"));
        assert_eq!(query.pipeline.box_session_id_template, None);
    }
}
