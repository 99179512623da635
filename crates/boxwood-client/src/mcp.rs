//! Hosted MCP servers.

use boxwood_api::{
    CallMcpToolRequest, EditMcpServerRequest, ImportMcpRequest, ImportedMcp, McpErrorBody, McpLogs,
    McpPhase, McpProgress, McpServerInfo, McpServerList, McpServerName, McpServerSpec,
    McpTestResult, McpToolInfo, RemovedMcpServer,
};
use http_body_util::BodyExt as _;
use hyper::Method;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use serde_json::Value;

use crate::call::{OutBody, empty, operation, to_json, whole};
use crate::path::Target;
use crate::{Client, ClientError};

const JSON: &str = "application/json";
const LINES: &str = "application/x-ndjson";

/// Maximum length of a progress line.
const MAX_LINE_BYTES: usize = 16 << 20;

fn servers() -> Target {
    Target::new("/v1/mcp/servers")
}

fn server(name: &McpServerName) -> Target {
    servers().segment(name.as_str())
}

/// A failed tool call.
#[derive(Debug, thiserror::Error)]
#[error("the tool could not be called")]
pub struct McpCallError {
    #[source]
    pub error: ClientError,
    /// The phase in which the server failed.
    pub phase: Option<McpPhase>,
}

impl From<ClientError> for McpCallError {
    fn from(error: ClientError) -> Self {
        Self { error, phase: None }
    }
}

/// Progress of a server. Dropping it does not affect the server, but ends a test.
pub struct McpProgressStream {
    operation: String,
    body: Incoming,
    pending: Vec<u8>,
    /// The part of `pending` that contains no newline.
    searched: usize,
}

impl McpProgressStream {
    /// The next event; `None` after the last. Unknown kinds are skipped.
    pub async fn next(&mut self) -> Result<Option<McpProgress>, ClientError> {
        loop {
            while let Some(line) = self.line() {
                if let Ok(news) = serde_json::from_slice(&line) {
                    return Ok(Some(news));
                }
            }
            if self.pending.len() > MAX_LINE_BYTES {
                return Err(ClientError::unexpected(&self.operation, "an endless line"));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(ClientError::lost(&self.operation, error)),
                Some(Ok(frame)) => {
                    if let Some(bytes) = frame.data_ref() {
                        self.pending.extend_from_slice(bytes);
                    }
                }
            }
        }
    }

    fn line(&mut self) -> Option<Vec<u8>> {
        let rest = &self.pending[self.searched..];
        let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
            self.searched = self.pending.len();
            return None;
        };
        let end = self.searched + end;
        self.searched = 0;
        Some(self.pending.drain(..=end).collect())
    }
}

impl Client {
    /// Without tools; [`Client::mcp_server`] includes them.
    pub async fn mcp_servers(&self) -> Result<Vec<McpServerInfo>, ClientError> {
        let list: McpServerList = self.get(&servers()).await?;
        Ok(list.servers)
    }

    pub async fn mcp_server(&self, name: &McpServerName) -> Result<McpServerInfo, ClientError> {
        self.get(&server(name)).await
    }

    /// Returns once it is stored; it is then starting.
    pub async fn add_mcp_server(&self, spec: &McpServerSpec) -> Result<McpServerInfo, ClientError> {
        self.post(&servers(), spec).await
    }

    /// Replaces the server of that name, if it exists.
    pub async fn put_mcp_server(&self, spec: &McpServerSpec) -> Result<McpServerInfo, ClientError> {
        let target = server(&spec.name);
        let body = to_json(&Method::PUT, &target, spec)?;
        self.json(Method::PUT, &target, body, Some(JSON)).await
    }

    pub async fn edit_mcp_server(
        &self,
        name: &McpServerName,
        edit: &EditMcpServerRequest,
    ) -> Result<McpServerInfo, ClientError> {
        let target = server(name);
        let body = to_json(&Method::PATCH, &target, edit)?;
        self.json(Method::PATCH, &target, body, Some(JSON)).await
    }

    pub async fn remove_mcp_server(
        &self,
        name: &McpServerName,
    ) -> Result<RemovedMcpServer, ClientError> {
        self.delete(&server(name)).await
    }

    pub async fn import_mcp_servers(
        &self,
        request: &ImportMcpRequest,
    ) -> Result<ImportedMcp, ClientError> {
        self.post(&Target::new("/v1/mcp/import"), request).await
    }

    /// Returns once it is starting.
    pub async fn start_mcp_server(
        &self,
        name: &McpServerName,
    ) -> Result<McpServerInfo, ClientError> {
        self.order(&server(name).fixed("start")).await
    }

    pub async fn stop_mcp_server(
        &self,
        name: &McpServerName,
    ) -> Result<McpServerInfo, ClientError> {
        self.order(&server(name).fixed("stop")).await
    }

    /// Returns once it is starting again.
    pub async fn restart_mcp_server(
        &self,
        name: &McpServerName,
    ) -> Result<McpServerInfo, ClientError> {
        self.order(&server(name).fixed("restart")).await
    }

    /// Also reinstalls its packages.
    pub async fn reinstall_mcp_server(
        &self,
        name: &McpServerName,
    ) -> Result<McpServerInfo, ClientError> {
        let target = server(name).fixed("restart").query("reinstall", "true");
        self.order(&target).await
    }

    async fn order(&self, target: &Target) -> Result<McpServerInfo, ClientError> {
        self.json(Method::POST, target, empty(), None).await
    }

    pub async fn mcp_logs(&self, name: &McpServerName) -> Result<McpLogs, ClientError> {
        self.get(&server(name).fixed("logs")).await
    }

    /// As of the last `tools/list`.
    pub async fn mcp_tools(&self, name: &McpServerName) -> Result<Vec<McpToolInfo>, ClientError> {
        self.get(&server(name).fixed("tools")).await
    }

    /// The result as returned by the server. Dropping the future cancels the call.
    pub async fn call_mcp_tool(
        &self,
        name: &McpServerName,
        tool: &str,
        request: &CallMcpToolRequest,
    ) -> Result<Value, McpCallError> {
        let target = server(name).fixed("tools").segment(tool);
        let operation = operation(&Method::POST, &target);
        let body = to_json(&Method::POST, &target, request)?;
        let content_type = (CONTENT_TYPE, HeaderValue::from_static(JSON));
        let response = self
            .respond(Method::POST, &target, body, JSON, [content_type])
            .await?;
        let status = response.status().as_u16();
        let bytes = whole(&operation, response).await?;
        if status >= 400 {
            let body = serde_json::from_slice::<McpErrorBody>(&bytes);
            return Err(McpCallError {
                error: ClientError::from_answer(&operation, status, &bytes),
                phase: body.ok().and_then(|body| body.error.phase),
            });
        }
        let result = serde_json::from_slice(&bytes);
        Ok(result.map_err(|error| ClientError::unexpected(&operation, error.to_string()))?)
    }

    /// The phases of the last start so far, then further ones as they occur.
    pub async fn mcp_progress(
        &self,
        name: &McpServerName,
    ) -> Result<McpProgressStream, ClientError> {
        self.lines(Method::GET, &server(name).fixed("progress"), empty(), None)
            .await
    }

    /// Tests a server in a temporary box.
    pub async fn test_mcp_server(
        &self,
        spec: &McpServerSpec,
    ) -> Result<McpTestResult, ClientError> {
        self.post(&Target::new("/v1/mcp/test"), spec).await
    }

    /// With progress events.
    pub async fn follow_mcp_test(
        &self,
        spec: &McpServerSpec,
    ) -> Result<McpProgressStream, ClientError> {
        let target = Target::new("/v1/mcp/test");
        let body = to_json(&Method::POST, &target, spec)?;
        self.lines(Method::POST, &target, body, Some(JSON)).await
    }

    /// Tests a stored server with its current definition and secrets, independently of the running
    /// one.
    pub async fn test_stored_mcp_server(
        &self,
        name: &McpServerName,
    ) -> Result<McpTestResult, ClientError> {
        let target = server(name).fixed("test");
        self.json(Method::POST, &target, empty(), None).await
    }

    /// With progress events.
    pub async fn follow_stored_mcp_test(
        &self,
        name: &McpServerName,
    ) -> Result<McpProgressStream, ClientError> {
        self.lines(Method::POST, &server(name).fixed("test"), empty(), None)
            .await
    }

    async fn lines(
        &self,
        method: Method,
        target: &Target,
        body: OutBody,
        content_type: Option<&'static str>,
    ) -> Result<McpProgressStream, ClientError> {
        let operation = operation(&method, target);
        let response = self.send(method, target, body, content_type, LINES).await?;
        Ok(McpProgressStream {
            operation,
            body: response.into_body(),
            pending: Vec::new(),
            searched: 0,
        })
    }
}
