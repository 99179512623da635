//! The stdio transport: one client, one message per line.

use boxwood_agent::Agent;
use rmcp::service::{ServerInitializeError, serve_server_with_ct};
use rmcp::transport::stdio;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use super::conversation::DefaultConversation;
use super::tool_server::ToolServer;
use crate::session_activity::SessionActivity;

#[derive(Debug, thiserror::Error)]
pub enum StdioError {
    #[error("MCP initialization failed: {0}")]
    Opening(String),
    #[error("the server's task failed: {0}")]
    Task(#[from] tokio::task::JoinError),
}

/// Serves the client that started this process, until stdin is closed or `shutdown` resolves. Running calls then have
/// a few seconds to finish before they are killed.
pub async fn serve_stdio(
    agent: Agent,
    default_conversation: DefaultConversation,
    shutdown: impl Future<Output = ()>,
) -> Result<(), StdioError> {
    let (input, output) = stdio();
    serve_lines(agent, default_conversation, input, output, shutdown).await
}

/// The same for arbitrary streams.
pub async fn serve_lines(
    agent: Agent,
    default_conversation: DefaultConversation,
    input: impl AsyncRead + Send + Unpin + 'static,
    output: impl AsyncWrite + Send + Unpin + 'static,
    shutdown: impl Future<Output = ()>,
) -> Result<(), StdioError> {
    let server = ToolServer::new(agent, default_conversation, SessionActivity::default());
    let token = CancellationToken::new();
    let serving = async {
        match serve_server_with_ct(server, (input, output), token.clone()).await {
            Ok(running) => running.waiting().await.map(drop).map_err(StdioError::from),
            // The client disconnected before its first message.
            Err(ServerInitializeError::ConnectionClosed(_)) => Ok(()),
            Err(error) => Err(StdioError::Opening(error.to_string())),
        }
    };
    tokio::pin!(serving, shutdown);
    tokio::select! {
        ended = &mut serving => ended,
        () = shutdown => {
            token.cancel();
            serving.await
        }
    }
}
