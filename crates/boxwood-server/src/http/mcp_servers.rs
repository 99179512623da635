//! Routes about MCP servers that run in boxes: what there is, and what is to become of it.
//!
//! Comes in: descriptions of servers and orders about them. Goes out: how each is. Never here: how a
//! server is started and kept alive, and the protocol that its clients speak.

use std::sync::Arc;

use axum::extract::{FromRequestParts, RawPathParams, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::Response;
use boxwood_api::{
    CallMcpToolRequest, EditMcpServerRequest, ErrorBody, ErrorCode, ImportMcpRequest, ImportedMcp,
    McpErrorBody, McpLogs, McpServerInfo, McpServerList, McpServerName, McpServerSpec, McpToolInfo,
    RemovedMcpServer,
};
use boxwood_mcp::{Hosting, HostingError};
use serde::Deserialize;

use super::App;
use super::error::{ApiError, ApiResult};
use super::ids::Params;
use super::json::{self, JsonBody};

/// The server in the path, and those who look after it.
pub(super) struct OfServer {
    pub(super) name: McpServerName,
    pub(super) hosting: Hosting,
}

impl FromRequestParts<Arc<App>> for OfServer {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> ApiResult<Self> {
        let name = path_part(parts, app, "name").await?;
        let name = McpServerName::new(name).map_err(|error| {
            ApiError::validation(error.to_string()).hint("`GET /v1/mcp/servers` lists all servers")
        })?;
        let hosting = app.mcp.hosting()?.clone();
        Ok(Self { name, hosting })
    }
}

/// The tool in the path, whatever its server calls it.
pub(super) struct OfTool {
    server: OfServer,
    tool: String,
}

impl FromRequestParts<Arc<App>> for OfTool {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> ApiResult<Self> {
        let server = OfServer::from_request_parts(parts, app).await?;
        let tool = path_part(parts, app, "tool").await?;
        Ok(Self { server, tool })
    }
}

/// Decoded once, by the router.
pub(super) async fn path_part(
    parts: &mut Parts,
    app: &Arc<App>,
    wanted: &str,
) -> ApiResult<String> {
    let params = RawPathParams::from_request_parts(parts, app)
        .await
        .map_err(|_| ApiError::validation("the path is not valid UTF-8 once decoded"))?;
    let found = params.iter().find(|(name, _)| *name == wanted);
    Ok(found.map(|(_, value)| value.to_owned()).unwrap_or_default())
}

/// A refusal of hosting is told like any other.
impl From<HostingError> for ApiError {
    fn from(error: HostingError) -> Self {
        let told = match &error {
            HostingError::Storage { .. } => Self::internal(&error.to_string(), &error),
            // There is a server: it is the one that said no.
            HostingError::CallRefused { .. } if error.code() == ErrorCode::BackendUnavailable => {
                Self::new(error.code(), error.to_string()).status(StatusCode::BAD_GATEWAY)
            }
            _ => Self::new(error.code(), error.to_string()),
        };
        let told = told.phase(error.phase());
        match error.hint() {
            Some(hint) => told.hint(hint),
            None => told,
        }
    }
}

#[utoipa::path(get, path = "/v1/mcp/servers", tag = "mcp", operation_id = "list_mcp_servers",
    responses(
        (status = 200, description = "All servers by name, each with how it is, but not its tools; values of variables are never shown", body = McpServerList),
        (status = 503, body = ErrorBody, description = "This daemon hosts no servers")))]
pub(super) async fn list(State(app): State<Arc<App>>) -> ApiResult<Response> {
    let servers = app.mcp.hosting()?.list();
    Ok(json::ok(&McpServerList { servers }))
}

#[utoipa::path(post, path = "/v1/mcp/servers", tag = "mcp", operation_id = "add_mcp_server",
    request_body = McpServerSpec,
    responses(
        (status = 201, description = "Stored, and on its way unless it is disabled: see `progress`", body = McpServerInfo),
        (status = 400, body = ErrorBody, description = "The description makes no sense"),
        (status = 409, body = ErrorBody, description = "There is a server of that name"),
        (status = 503, body = ErrorBody, description = "This daemon hosts no servers, or has no room for another")))]
pub(super) async fn add(
    State(app): State<Arc<App>>,
    JsonBody(spec): JsonBody<McpServerSpec>,
) -> ApiResult<Response> {
    let info = app.mcp.hosting()?.add(spec, false).await?;
    Ok(json::created(&info))
}

#[utoipa::path(post, path = "/v1/mcp/import", tag = "mcp", operation_id = "import_mcp_servers",
    request_body = ImportMcpRequest,
    responses(
        (status = 200, description = "What became of every server of the document", body = ImportedMcp),
        (status = 400, body = ErrorBody, description = "There are no servers in the document"),
        (status = 503, body = ErrorBody, description = "This daemon hosts no servers")))]
pub(super) async fn import(
    State(app): State<Arc<App>>,
    JsonBody(request): JsonBody<ImportMcpRequest>,
) -> ApiResult<Response> {
    Ok(json::ok(&app.mcp.hosting()?.import(request).await?))
}

#[utoipa::path(get, path = "/v1/mcp/servers/{name}", tag = "mcp", operation_id = "get_mcp_server",
    params(("name" = String, Path,)),
    responses(
        (status = 200, description = "The server and how it is", body = McpServerInfo),
        (status = 404, body = ErrorBody, description = "No such server")))]
pub(super) async fn detail(OfServer { name, hosting }: OfServer) -> ApiResult<Response> {
    Ok(json::ok(&hosting.get(&name)?))
}

#[utoipa::path(put, path = "/v1/mcp/servers/{name}", tag = "mcp", operation_id = "put_mcp_server",
    params(("name" = String, Path,)),
    request_body = McpServerSpec,
    responses(
        (status = 200, description = "In the place of the one of that name", body = McpServerInfo),
        (status = 201, description = "There was none of that name", body = McpServerInfo),
        (status = 400, body = ErrorBody, description = "The description makes no sense, or is of another name"),
        (status = 503, body = ErrorBody, description = "This daemon hosts no servers, or has no room for another")))]
pub(super) async fn replace(
    OfServer { name, hosting }: OfServer,
    JsonBody(spec): JsonBody<McpServerSpec>,
) -> ApiResult<Response> {
    if spec.name != name {
        return Err(ApiError::validation(format!(
            "the path says `{name}` and the body `{}`",
            spec.name
        ))
        .hint("a server keeps its name: remove it, and add it under the new one"));
    }
    let was_there = hosting.get(&name).is_ok();
    let info = hosting.add(spec, true).await?;
    Ok(if was_there {
        json::ok(&info)
    } else {
        json::created(&info)
    })
}

#[utoipa::path(patch, path = "/v1/mcp/servers/{name}", tag = "mcp", operation_id = "edit_mcp_server",
    params(("name" = String, Path,)),
    request_body = EditMcpServerRequest,
    responses(
        (status = 200, description = "As it is from now on; it is started anew where that is needed", body = McpServerInfo),
        (status = 400, body = ErrorBody, description = "The description would make no sense"),
        (status = 404, body = ErrorBody, description = "No such server")))]
pub(super) async fn edit(
    OfServer { name, hosting }: OfServer,
    JsonBody(request): JsonBody<EditMcpServerRequest>,
) -> ApiResult<Response> {
    Ok(json::ok(&hosting.edit(&name, request).await?))
}

#[utoipa::path(delete, path = "/v1/mcp/servers/{name}", tag = "mcp", operation_id = "remove_mcp_server",
    params(("name" = String, Path,)),
    responses(
        (status = 200, description = "Its box, its copy of files and its secrets are gone", body = RemovedMcpServer),
        (status = 404, body = ErrorBody, description = "No such server")))]
pub(super) async fn remove(OfServer { name, hosting }: OfServer) -> ApiResult<Response> {
    hosting.remove(&name).await?;
    Ok(json::ok(&RemovedMcpServer { removed: name }))
}

#[utoipa::path(post, path = "/v1/mcp/servers/{name}/start", tag = "mcp", operation_id = "start_mcp_server",
    params(("name" = String, Path,)),
    responses(
        (status = 200, description = "On its way: see `progress`", body = McpServerInfo),
        (status = 400, body = ErrorBody, description = "It is disabled"),
        (status = 404, body = ErrorBody, description = "No such server")))]
pub(super) async fn start(OfServer { name, hosting }: OfServer) -> ApiResult<Response> {
    Ok(json::ok(&hosting.start(&name).await?))
}

#[utoipa::path(post, path = "/v1/mcp/servers/{name}/stop", tag = "mcp", operation_id = "stop_mcp_server",
    params(("name" = String, Path,)),
    responses(
        (status = 200, description = "Stopped, until somebody starts it", body = McpServerInfo),
        (status = 404, body = ErrorBody, description = "No such server")))]
pub(super) async fn stop(OfServer { name, hosting }: OfServer) -> ApiResult<Response> {
    Ok(json::ok(&hosting.stop(&name).await?))
}

#[utoipa::path(post, path = "/v1/mcp/servers/{name}/restart", tag = "mcp", operation_id = "restart_mcp_server",
    params(("name" = String, Path,), Anew),
    responses(
        (status = 200, description = "Stopped, and on its way again: see `progress`", body = McpServerInfo),
        (status = 400, body = ErrorBody, description = "It is disabled"),
        (status = 404, body = ErrorBody, description = "No such server")))]
pub(super) async fn restart(
    OfServer { name, hosting }: OfServer,
    Params(anew): Params<Anew>,
) -> ApiResult<Response> {
    let info = if anew.reinstall {
        hosting.reinstall(&name).await?
    } else {
        hosting.restart(&name).await?
    };
    Ok(json::ok(&info))
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Anew {
    /// Install its packages anew, in the versions that there are today.
    #[serde(default)]
    reinstall: bool,
}

#[utoipa::path(get, path = "/v1/mcp/servers/{name}/logs", tag = "mcp", operation_id = "mcp_server_logs",
    params(("name" = String, Path,)),
    responses(
        (status = 200, description = "What it said and heard lately", body = McpLogs),
        (status = 404, body = ErrorBody, description = "No such server")))]
pub(super) async fn logs(OfServer { name, hosting }: OfServer) -> ApiResult<Response> {
    Ok(json::ok(&hosting.logs(&name).await?))
}

#[utoipa::path(get, path = "/v1/mcp/servers/{name}/tools", tag = "mcp", operation_id = "list_mcp_tools",
    params(("name" = String, Path,)),
    responses(
        (status = 200, description = "The tools that its clients see, as of the last time it was asked", body = Vec<McpToolInfo>),
        (status = 404, body = ErrorBody, description = "No such server")))]
pub(super) async fn tools(OfServer { name, hosting }: OfServer) -> ApiResult<Response> {
    Ok(json::ok(&hosting.get(&name)?.runtime.tools))
}

#[utoipa::path(post, path = "/v1/mcp/servers/{name}/tools/{tool}", tag = "mcp", operation_id = "call_mcp_tool",
    params(("name" = String, Path,), ("tool" = String, Path,)),
    request_body = CallMcpToolRequest,
    responses(
        (status = 200, description = "The result as the server gave it; `isError` in it says whether the tool failed", body = serde_json::Value),
        (status = 400, body = McpErrorBody, description = "The server is disabled or stopped, or says that the arguments are wrong"),
        (status = 404, body = McpErrorBody, description = "No such server, or a tool that its filter keeps back"),
        (status = 502, body = McpErrorBody, description = "The server refused the call"),
        (status = 503, body = McpErrorBody, description = "The server cannot be had now"),
        (status = 504, body = McpErrorBody, description = "The server did not answer in time")))]
pub(super) async fn call(
    OfTool {
        server: OfServer { name, hosting },
        tool,
    }: OfTool,
    JsonBody(request): JsonBody<CallMcpToolRequest>,
) -> ApiResult<Response> {
    // A caller that leaves takes the call back: dropping it tells the server.
    let result = hosting.call(&name, &tool, request.arguments).await?;
    Ok(json::ok(&result))
}
