//! Which MCP client a configuration is for.

use boxwood_mcp::McpClient;

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ClientKind {
    /// Claude Desktop and Claude Code
    Claude,
    Cursor,
    /// Visual Studio Code
    Vscode,
}

impl From<ClientKind> for McpClient {
    fn from(client: ClientKind) -> Self {
        match client {
            ClientKind::Claude => Self::Claude,
            ClientKind::Cursor => Self::Cursor,
            ClientKind::Vscode => Self::Vscode,
        }
    }
}
