//! Hosted MCP servers.

use boxwood_api::{
    CallMcpToolRequest, EditMcpServerRequest, ImportMcpRequest, ImportedMcp, McpLogs, McpProgress,
    McpServerInfo, McpServerList, McpServerName, McpServerSpec, McpTestResult, McpToolInfo,
    RemovedMcpServer,
};
use hyper::Method;
use serde_json::Value;

use crate::http::target::Target;
use crate::http::{Call, HttpResponse, Lines};
use crate::{Client, ClientError, Result};

const NDJSON: &str = "application/x-ndjson";

/// Maximum length of a progress line.
const MAX_LINE_BYTES: usize = 16 << 20;

fn servers() -> Target {
    Target::new("/v1/mcp/servers")
}

fn server(name: &McpServerName) -> Target {
    servers().segment(name.as_str())
}

/// The server to test in a temporary box.
#[derive(Clone, Copy, Debug)]
pub enum McpTest<'a> {
    Spec(&'a McpServerSpec),
    /// A stored server with its current definition and secrets. The running one is not affected.
    Stored(&'a McpServerName),
}

/// Progress of a server. Dropping it does not affect the server, but ends a test.
pub struct McpProgressStream {
    response: HttpResponse,
    lines: Lines,
}

impl McpProgressStream {
    fn new(response: HttpResponse) -> Self {
        Self {
            response,
            lines: Lines::default(),
        }
    }

    /// The next event; `None` after the last. Unknown kinds are skipped.
    pub async fn next(&mut self) -> Result<Option<McpProgress>> {
        loop {
            while let Some(line) = self.lines.next() {
                if let Ok(progress) = serde_json::from_slice(&line) {
                    return Ok(Some(progress));
                }
            }
            if self.lines.len() > MAX_LINE_BYTES {
                let reason = "a line is too long";
                return Err(ClientError::unexpected(&self.response.operation, reason));
            }
            let Some(bytes) = self.response.chunk().await? else {
                return Ok(None);
            };
            self.lines.push(&bytes);
        }
    }
}

impl Client {
    /// Without tools; [`Client::mcp_server`] includes them.
    pub async fn mcp_servers(&self) -> Result<Vec<McpServerInfo>> {
        let list: McpServerList = self.get(&servers()).await?;
        Ok(list.servers)
    }

    pub async fn mcp_server(&self, name: &McpServerName) -> Result<McpServerInfo> {
        self.get(&server(name)).await
    }

    /// Returns once it is stored; it is then starting.
    pub async fn add_mcp_server(&self, spec: &McpServerSpec) -> Result<McpServerInfo> {
        self.post(&servers(), spec).await
    }

    /// Replaces the server of that name, if it exists.
    pub async fn put_mcp_server(&self, spec: &McpServerSpec) -> Result<McpServerInfo> {
        let call = self.call(Method::PUT, &server(&spec.name));
        call.serialize(spec).json().await
    }

    pub async fn edit_mcp_server(
        &self,
        name: &McpServerName,
        edit: &EditMcpServerRequest,
    ) -> Result<McpServerInfo> {
        let call = self.call(Method::PATCH, &server(name));
        call.serialize(edit).json().await
    }

    pub async fn remove_mcp_server(&self, name: &McpServerName) -> Result<RemovedMcpServer> {
        self.delete(&server(name)).await
    }

    pub async fn import_mcp_servers(&self, request: &ImportMcpRequest) -> Result<ImportedMcp> {
        self.post(&Target::new("/v1/mcp/import"), request).await
    }

    /// Returns once it is starting.
    pub async fn start_mcp_server(&self, name: &McpServerName) -> Result<McpServerInfo> {
        let target = server(name).fixed("start");
        self.call(Method::POST, &target).json().await
    }

    pub async fn stop_mcp_server(&self, name: &McpServerName) -> Result<McpServerInfo> {
        let target = server(name).fixed("stop");
        self.call(Method::POST, &target).json().await
    }

    /// Returns once it is starting again, after an installation of its packages if `reinstall` is set.
    pub async fn restart_mcp_server(
        &self,
        name: &McpServerName,
        reinstall: bool,
    ) -> Result<McpServerInfo> {
        let target = server(name).fixed("restart");
        let target = target.maybe_query("reinstall", reinstall.then_some("true"));
        self.call(Method::POST, &target).json().await
    }

    pub async fn mcp_logs(&self, name: &McpServerName) -> Result<McpLogs> {
        self.get(&server(name).fixed("logs")).await
    }

    /// As of the last `tools/list`.
    pub async fn mcp_tools(&self, name: &McpServerName) -> Result<Vec<McpToolInfo>> {
        self.get(&server(name).fixed("tools")).await
    }

    /// The result as returned by the server. Dropping the future cancels the call.
    pub async fn call_mcp_tool(
        &self,
        name: &McpServerName,
        tool: &str,
        request: &CallMcpToolRequest,
    ) -> Result<Value> {
        let target = server(name).fixed("tools").segment(tool);
        self.post(&target, request).await
    }

    /// The phases of the last start so far, then further ones as they occur.
    pub async fn mcp_progress(&self, name: &McpServerName) -> Result<McpProgressStream> {
        let call = self.call(Method::GET, &server(name).fixed("progress"));
        Ok(McpProgressStream::new(call.accept(NDJSON).send().await?))
    }

    /// Tests a server in a temporary box.
    pub async fn test_mcp_server(&self, test: McpTest<'_>) -> Result<McpTestResult> {
        self.mcp_test(test).json().await
    }

    /// The same with progress events.
    pub async fn follow_mcp_test(&self, test: McpTest<'_>) -> Result<McpProgressStream> {
        let call = self.mcp_test(test).accept(NDJSON);
        Ok(McpProgressStream::new(call.send().await?))
    }

    fn mcp_test(&self, test: McpTest<'_>) -> Call<'_> {
        match test {
            McpTest::Spec(spec) => {
                let call = self.call(Method::POST, &Target::new("/v1/mcp/test"));
                call.serialize(spec)
            }
            McpTest::Stored(name) => self.call(Method::POST, &server(name).fixed("test")),
        }
    }
}
