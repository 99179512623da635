//! Which conversation, and so which box, a request is about.
//!
//! Comes in: a request's `_meta`, its HTTP headers, and what the server was started with. Goes out: an
//! [`AgentQuery`]. Never here: the session's id itself; the agent's template makes that.

use boxwood_api::{AgentPipeline, AgentQuery, SessionId};
use http::request::Parts;
use rmcp::RoleServer;
use rmcp::model::{ErrorData, ProtocolVersion};
use rmcp::service::RequestContext;
use serde_json::Value;

/// The key in a request's `_meta` that names the box's session.
pub const SESSION_META: &str = "io.boxwood/session";
/// The same as an HTTP header.
pub const SESSION_HEADER: &str = "boxwood-session";

const MCP_SESSION_HEADER: &str = "mcp-session-id";
const LAUNCHER: &str = "mcp";
/// The variable that has a chosen name.
const NAME: &str = "mcp_session_name";
/// For clients of the stateless era that name nothing.
const SHARED: &str = "default";

/// The conversation of a request that does not name one itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Home {
    /// Somebody chose it: the session has this very name.
    Named(SessionId),
    /// Made up for a place, such as a directory.
    Derived(String),
    /// One for each MCP session, and one for all requests that have none.
    PerMcpSession,
}

impl Home {
    pub(crate) fn query(
        &self,
        context: &RequestContext<RoleServer>,
    ) -> Result<AgentQuery, ErrorData> {
        if let Some(value) = context.meta.get(SESSION_META) {
            let name = value.as_str().ok_or_else(|| {
                ErrorData::invalid_params(format!("`_meta.{SESSION_META}` is not a text"), None)
            })?;
            return named(name);
        }
        let parts = context.extensions.get::<Parts>();
        if let Some(value) = parts.and_then(|parts| parts.headers.get(SESSION_HEADER)) {
            let name = std::str::from_utf8(value.as_bytes()).map_err(|_| {
                ErrorData::invalid_params("the header Boxwood-Session is not UTF-8", None)
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

/// The id of the MCP session a request came in, where it is of the era that has sessions.
pub(crate) fn mcp_session(context: &RequestContext<RoleServer>) -> Option<&str> {
    let legacy = context
        .protocol_version()
        .is_some_and(|version| version.as_str() < ProtocolVersion::V_2026_07_28.as_str());
    let parts = context.extensions.get::<Parts>().filter(|_| legacy)?;
    parts.headers.get(MCP_SESSION_HEADER)?.to_str().ok()
}

/// A session of this very name, unless the operator's forced template says otherwise.
fn named(name: &str) -> Result<AgentQuery, ErrorData> {
    let id = SessionId::new(name).map_err(|error| {
        ErrorData::invalid_params(format!("`{name}` cannot name a session: {error}"), None)
    })?;
    // Where a template is forced, a name that a client chose must not pass for somebody's id.
    let mut query = derived(&format!("{LAUNCHER}-{id}"));
    query
        .variables
        .insert(NAME.to_owned(), Value::from(id.as_str()));
    query.pipeline = AgentPipeline {
        box_session_id_template: Some(format!("{{{NAME}}}")),
    };
    Ok(query)
}

// No query id: activated skills are then remembered for the session and not for one request.
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
    fn a_chosen_name_is_the_sessions_name() {
        let query = named("build").expect("query");
        assert_eq!(query.variables[NAME], Value::from("build"));
        assert_eq!(
            query.pipeline.box_session_id_template.as_deref(),
            Some("{mcp_session_name}")
        );
        // What a forced template would see.
        assert_eq!(query.launcher_id, Some(Value::from("mcp-build")));
        assert_eq!(query.query_id, None);
    }

    #[test]
    fn an_illegal_name_is_refused() {
        for name in ["", "a\nb", &"x".repeat(300)] {
            assert!(named(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn a_made_up_name_goes_through_the_usual_template() {
        let query = derived("0123");
        assert_eq!(query.launcher_type.as_deref(), Some("mcp"));
        assert_eq!(query.pipeline.box_session_id_template, None);
    }
}
