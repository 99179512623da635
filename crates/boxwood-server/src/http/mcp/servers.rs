//! Routes for hosted MCP servers: create, update, delete, start and stop.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Path, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use boxwood_api::{
    CallMcpToolRequest, EditMcpServerRequest, ErrorBody, ErrorCode, ImportMcpRequest, ImportedMcp,
    McpErrorBody, McpLogs, McpServerInfo, McpServerList, McpServerName, McpServerSpec, McpToolInfo,
    RemovedMcpServer,
};
use boxwood_mcp::{Hosting, HostingError};
use serde::Deserialize;

use crate::http::App;
use crate::http::error::{ApiError, ApiResult};
use crate::http::json::{self, JsonBody};
use crate::http::params::{Params, path_value};

/// The name of the server in the path, and the component that hosts it.
pub(crate) struct OfServer {
    pub(crate) name: McpServerName,
    pub(crate) hosting: Hosting,
}

impl FromRequestParts<Arc<App>> for OfServer {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> ApiResult<Self> {
        let name = path_value(parts, app, "name").await?.unwrap_or_default();
        let name = McpServerName::new(name).map_err(|error| {
            ApiError::validation(error.to_string()).hint("`GET /v1/mcp/servers` lists all servers")
        })?;
        let hosting = app.mcp.hosting()?.clone();
        Ok(Self { name, hosting })
    }
}

impl From<HostingError> for ApiError {
    fn from(error: HostingError) -> Self {
        let refusal = match &error {
            HostingError::Storage { .. } => Self::internal(&error.to_string(), &error),
            // The server itself refused the call.
            HostingError::CallRefused { .. } if error.code() == ErrorCode::BackendUnavailable => {
                Self::new(error.code(), error.to_string()).status(StatusCode::BAD_GATEWAY)
            }
            _ => Self::new(error.code(), error.to_string()),
        };
        refusal.phase(error.phase()).maybe_hint(error.hint())
    }
}

#[utoipa::path(get, path = "/v1/mcp/servers", tag = "mcp", operation_id = "list_mcp_servers",
    responses((status = 200, description = "All servers sorted by name, with their state but without tools; values of variables are never shown", body = McpServerList)))]
pub(crate) async fn list(State(app): State<Arc<App>>) -> ApiResult {
    let servers = app.mcp.hosting()?.list();
    Ok(json::ok(McpServerList { servers }))
}

#[utoipa::path(post, path = "/v1/mcp/servers", tag = "mcp", operation_id = "add_mcp_server",
    request_body = McpServerSpec,
    responses(
        (status = 201, description = "Stored, and starting unless it is disabled: see `progress`", body = McpServerInfo),
        (status = 409, body = ErrorBody, description = "A server with this name exists")))]
pub(crate) async fn add(
    State(app): State<Arc<App>>,
    JsonBody(spec): JsonBody<McpServerSpec>,
) -> ApiResult {
    Ok(json::created(app.mcp.hosting()?.add(spec, false).await?))
}

#[utoipa::path(post, path = "/v1/mcp/import", tag = "mcp", operation_id = "import_mcp_servers",
    request_body = ImportMcpRequest,
    responses((status = 200, description = "The result for every server of the document", body = ImportedMcp)))]
pub(crate) async fn import(
    State(app): State<Arc<App>>,
    JsonBody(request): JsonBody<ImportMcpRequest>,
) -> ApiResult {
    Ok(json::ok(app.mcp.hosting()?.import(request).await?))
}

#[utoipa::path(get, path = "/v1/mcp/servers/{name}", tag = "mcp", operation_id = "get_mcp_server",
    responses((status = 200, description = "The server with its state", body = McpServerInfo)))]
pub(crate) async fn detail(OfServer { name, hosting }: OfServer) -> ApiResult {
    Ok(json::ok(hosting.get(&name)?))
}

#[utoipa::path(put, path = "/v1/mcp/servers/{name}", tag = "mcp", operation_id = "put_mcp_server",
    request_body = McpServerSpec,
    responses(
        (status = 200, description = "The server was replaced", body = McpServerInfo),
        (status = 201, description = "The server was created", body = McpServerInfo)))]
pub(crate) async fn replace(
    OfServer { name, hosting }: OfServer,
    JsonBody(spec): JsonBody<McpServerSpec>,
) -> ApiResult {
    if spec.name != name {
        return Err(ApiError::validation(format!(
            "the name in the path is `{name}`, but in the body `{}`",
            spec.name
        ))
        .hint("servers cannot be renamed: add it under the new name, and delete the old one"));
    }
    let existed = hosting.get(&name).is_ok();
    let info = hosting.add(spec, true).await?;
    Ok(if existed {
        json::ok(info)
    } else {
        json::created(info)
    })
}

#[utoipa::path(patch, path = "/v1/mcp/servers/{name}", tag = "mcp", operation_id = "edit_mcp_server",
    request_body = EditMcpServerRequest,
    responses((status = 200, description = "The updated server; restarted if necessary", body = McpServerInfo)))]
pub(crate) async fn edit(
    OfServer { name, hosting }: OfServer,
    JsonBody(request): JsonBody<EditMcpServerRequest>,
) -> ApiResult {
    Ok(json::ok(hosting.edit(&name, request).await?))
}

#[utoipa::path(delete, path = "/v1/mcp/servers/{name}", tag = "mcp", operation_id = "remove_mcp_server",
    responses((status = 200, description = "The server, its box, files and secrets were deleted", body = RemovedMcpServer)))]
pub(crate) async fn remove(OfServer { name, hosting }: OfServer) -> ApiResult {
    hosting.remove(&name).await?;
    Ok(json::ok(RemovedMcpServer { removed: name }))
}

#[utoipa::path(post, path = "/v1/mcp/servers/{name}/start", tag = "mcp", operation_id = "start_mcp_server",
    responses((status = 200, description = "Starting: see `progress`", body = McpServerInfo)))]
pub(crate) async fn start(OfServer { name, hosting }: OfServer) -> ApiResult {
    Ok(json::ok(hosting.start(&name).await?))
}

#[utoipa::path(post, path = "/v1/mcp/servers/{name}/stop", tag = "mcp", operation_id = "stop_mcp_server",
    responses((status = 200, description = "Stopped, until it is started manually", body = McpServerInfo)))]
pub(crate) async fn stop(OfServer { name, hosting }: OfServer) -> ApiResult {
    Ok(json::ok(hosting.stop(&name).await?))
}

#[utoipa::path(post, path = "/v1/mcp/servers/{name}/restart", tag = "mcp", operation_id = "restart_mcp_server",
    params(RestartParams),
    responses((status = 200, description = "Restarting: see `progress`", body = McpServerInfo)))]
pub(crate) async fn restart(
    OfServer { name, hosting }: OfServer,
    Params(params): Params<RestartParams>,
) -> ApiResult {
    let info = if params.reinstall {
        hosting.reinstall(&name).await?
    } else {
        hosting.restart(&name).await?
    };
    Ok(json::ok(info))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct RestartParams {
    /// Reinstall its packages with the current versions.
    #[serde(default)]
    reinstall: bool,
}

#[utoipa::path(get, path = "/v1/mcp/servers/{name}/logs", tag = "mcp", operation_id = "mcp_server_logs",
    responses((status = 200, description = "Recent messages and stderr", body = McpLogs)))]
pub(crate) async fn logs(OfServer { name, hosting }: OfServer) -> ApiResult {
    Ok(json::ok(hosting.logs(&name).await?))
}

#[utoipa::path(get, path = "/v1/mcp/servers/{name}/tools", tag = "mcp", operation_id = "list_mcp_tools",
    responses((status = 200, description = "The visible tools, as of the last `tools/list`", body = Vec<McpToolInfo>)))]
pub(crate) async fn tools(OfServer { name, hosting }: OfServer) -> ApiResult {
    Ok(json::ok(hosting.get(&name)?.runtime.tools))
}

#[utoipa::path(post, path = "/v1/mcp/servers/{name}/tools/{tool}", tag = "mcp", operation_id = "call_mcp_tool",
    request_body = CallMcpToolRequest,
    responses(
        (status = 200, description = "The result of the server; `isError` is true if the tool failed", body = serde_json::Value),
        (status = 400, body = McpErrorBody, description = "The server is disabled or stopped, or rejected the arguments"),
        (status = 404, body = McpErrorBody, description = "Unknown server, or the tool is hidden by the filter"),
        (status = 502, body = McpErrorBody, description = "The server refused the call"),
        (status = 503, body = McpErrorBody, description = "The server is not available"),
        (status = 504, body = McpErrorBody, description = "The server did not respond in time")))]
pub(crate) async fn call(
    OfServer { name, hosting }: OfServer,
    Path((_, tool)): Path<(String, String)>,
    JsonBody(request): JsonBody<CallMcpToolRequest>,
) -> ApiResult {
    // If the client disconnects, this future is dropped, which cancels the call at the server.
    Ok(json::ok(
        hosting.call(&name, &tool, request.arguments).await?,
    ))
}
