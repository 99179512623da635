//! The smallest MCP client over HTTP that can keep a session and a connection.

use std::net::SocketAddr;

use anyhow::{Result, ensure};

use crate::bench::clients::http::Connection;

const ACCEPT: &str = "Accept: application/json, text/event-stream\r\n";

pub(super) const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}"#;
pub(super) const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// One call of the tool `echo`, and what its answer holds.
pub(super) fn call(id: u64) -> (String, String) {
    let word = format!("hello-{id}");
    let message = format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"echo","arguments":{{"text":"{word}"}}}}}}"#
    );
    (message, word)
}

pub(super) struct McpClient {
    connection: Connection,
    path: String,
    /// What goes with every request.
    headers: String,
    next_id: u64,
}

impl McpClient {
    /// Connects and performs the handshake.
    pub(super) fn open(address: SocketAddr, path: &str) -> Result<Self> {
        let mut client = Self {
            connection: Connection::open(address)?,
            path: path.to_owned(),
            headers: ACCEPT.to_owned(),
            next_id: 1,
        };
        let answer = client.post(INITIALIZE)?;
        ensure!(
            answer.contains("serverInfo"),
            "`initialize` was answered with {answer}"
        );
        client.post(INITIALIZED)?;
        Ok(client)
    }

    pub(super) fn echo(&mut self) -> Result<()> {
        let (message, word) = call(self.next_id);
        self.next_id += 1;
        let answer = self.post(&message)?;
        ensure!(
            answer.contains(&word),
            "an answer without `{word}`: {answer}"
        );
        Ok(())
    }

    fn post(&mut self, message: &str) -> Result<String> {
        let answer = self
            .connection
            .request_with("POST", &self.path, &self.headers, message)?;
        ensure!(
            (200..300).contains(&answer.status),
            "{} answered {}: {}",
            self.path,
            answer.status,
            answer.body
        );
        if let Some(session) = answer.mcp_session {
            self.headers = format!(
                "{ACCEPT}Mcp-Session-Id: {session}\r\nMCP-Protocol-Version: 2025-11-25\r\n"
            );
        }
        Ok(answer.body)
    }
}
