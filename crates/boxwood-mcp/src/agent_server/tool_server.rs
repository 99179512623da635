//! The agent as an MCP server, independent of the transport.

use std::time::Duration;

use boxwood_agent::Agent;
use boxwood_api::{AgentQuery, ToolCall};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CompleteRequestMethod, CompleteRequestParams,
    CompleteResult, DiscoverResult, ErrorData, Implementation, InitializeRequestParams,
    InitializeResult, ListPromptsRequestMethod, ListPromptsResult, ListResourceTemplatesResult,
    ListResourcesResult, ListToolsResult, PaginatedRequestParams, ReadResourceRequestParams,
    ReadResourceResponse, ServerCapabilities, ServerConfig,
};
use rmcp::service::RequestContext;
use rmcp::{RoleServer, ServerHandler};
use serde_json::json;

use super::conversation::{DefaultConversation, mcp_session};
use super::progress::{LatestProgress, report};
use super::resources;
use super::tool_result::{answered, meta, refused, tool};
use crate::session_activity::{Kind, SessionActivity};

/// Key in the `_meta` of a tool list with the reason why the tools are unavailable.
const UNAVAILABLE_META: &str = "io.boxwood/unavailable";
/// Limit for building the instructions while a client connects.
const GUIDANCE_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Clone)]
pub(crate) struct ToolServer {
    agent: Agent,
    default_conversation: DefaultConversation,
    activity: SessionActivity,
}

impl ToolServer {
    pub(crate) fn new(
        agent: Agent,
        default_conversation: DefaultConversation,
        activity: SessionActivity,
    ) -> Self {
        Self {
            agent,
            default_conversation,
            activity,
        }
    }

    /// Describes the box to the model, or why there is none.
    async fn instructions(&self, query: &AgentQuery) -> Option<String> {
        let guidance = async {
            let text = self.agent.guidance(query).await.text;
            if !text.is_empty() {
                return text;
            }
            match self.agent.tools().await.unavailable {
                Some(unavailable) => format!(
                    "The sandbox is unavailable: {} ({}).",
                    unavailable.reason, unavailable.fix
                ),
                None => text,
            }
        };
        let text = tokio::time::timeout(GUIDANCE_TIMEOUT, guidance)
            .await
            .ok()?;
        (!text.is_empty()).then_some(text)
    }
}

impl ServerHandler for ToolServer {
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_tools()
            .enable_resources()
            .build();
        let mut server = Implementation::new("boxwood", env!("CARGO_PKG_VERSION"));
        server.title = Some("Boxwood".to_owned());
        ServerConfig::new(capabilities).with_server_info(server)
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        context.peer.set_peer_info(request.clone());
        let mut result = self.negotiate_initialize(&request)?;
        result.instructions = self
            .instructions(&self.default_conversation.query(&context)?)
            .await;
        Ok(result)
    }

    async fn discover(
        &self,
        context: RequestContext<RoleServer>,
    ) -> Result<DiscoverResult, ErrorData> {
        let versions = self.supported_protocol_versions().into_owned();
        let mut result = DiscoverResult::from_server_info(versions, self.get_info());
        result.instructions = self
            .instructions(&self.default_conversation.query(&context)?)
            .await;
        Ok(result)
    }

    /// The SDK's default is an empty list, which a server without prompts must not return.
    async fn list_prompts(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        Err(ErrorData::method_not_found::<ListPromptsRequestMethod>())
    }

    /// The same applies to completions.
    async fn complete(
        &self,
        _request: CompleteRequestParams,
        _context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        Err(ErrorData::method_not_found::<CompleteRequestMethod>())
    }

    /// Lists all tools even if unavailable, because clients list them once and the runtime may recover.
    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let tools = self.agent.schemas().into_iter().map(tool).collect();
        let mut result = ListToolsResult::with_all_items(tools);
        if let Some(unavailable) = self.agent.tools().await.unavailable {
            result.meta = Some(meta(UNAVAILABLE_META, json!(unavailable)));
        }
        Ok(result)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let name = request.name;
        if !boxwood_agent::tools().iter().any(|tool| tool.name == name) {
            return Err(ErrorData::invalid_params(
                format!("unknown tool `{name}`; see tools/list"),
                None,
            ));
        }
        let call = ToolCall {
            arguments: request.arguments.unwrap_or_default(),
            query: self.default_conversation.query(&context)?,
        };
        let _in_use = mcp_session(&context).map(|id| self.activity.hold(id, Kind::Call));
        let progress = LatestProgress::default();
        let result = tokio::select! {
            outcome = self.agent.call(&name, call, &progress) => match outcome {
                Ok(answer) => answered(answer),
                Err(error) => refused(&error),
            },
            // Dropping the call kills its command.
            () = context.ct.cancelled() => {
                return Err(ErrorData::internal_error("the call was cancelled", None));
            }
            () = report(&progress, context.meta.get_progress_token(), &context.peer) => {
                return Err(ErrorData::internal_error("progress ended before its call", None));
            }
        };
        Ok(result.into())
    }

    async fn list_resources(
        &self,
        request: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let cursor = request.and_then(|request| request.cursor);
        let query = self.default_conversation.query(&context)?;
        resources::list(&self.agent, &query, cursor.as_deref()).await
    }

    async fn list_resource_templates(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        Ok(resources::templates())
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let query = self.default_conversation.query(&context)?;
        let result = resources::read(&self.agent, &query, &request.uri).await?;
        Ok(result.into())
    }
}
