//! The stdio transport: one client, one message a line.

use boxwood_agent::Agent;
use rmcp::service::{ServerInitializeError, serve_server_with_ct};
use rmcp::transport::stdio;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use crate::attendance::Attendance;
use crate::conversation::Home;
use crate::tool_server::ToolServer;

#[derive(Debug, thiserror::Error)]
pub enum StdioError {
    #[error("the client did not begin as the protocol wants: {0}")]
    Opening(String),
    #[error("the server's task failed: {0}")]
    Task(#[from] tokio::task::JoinError),
}

/// Serves the client that started this process, until it closes standard input or `leave` ends. Calls
/// that are then going on have a few seconds to answer; what still runs is killed.
pub async fn serve_stdio(
    agent: Agent,
    home: Home,
    leave: impl Future<Output = ()>,
) -> Result<(), StdioError> {
    let (input, output) = stdio();
    serve_lines(agent, home, input, output, leave).await
}

/// The same for any two streams of bytes.
pub async fn serve_lines(
    agent: Agent,
    home: Home,
    input: impl AsyncRead + Send + Unpin + 'static,
    output: impl AsyncWrite + Send + Unpin + 'static,
    leave: impl Future<Output = ()>,
) -> Result<(), StdioError> {
    let server = ToolServer::new(agent, home, Attendance::default());
    let token = CancellationToken::new();
    let serving = async {
        match serve_server_with_ct(server, (input, output), token.clone()).await {
            Ok(running) => running.waiting().await.map(drop).map_err(StdioError::from),
            // A client that left before it said anything.
            Err(ServerInitializeError::ConnectionClosed(_)) => Ok(()),
            Err(error) => Err(StdioError::Opening(error.to_string())),
        }
    };
    tokio::pin!(serving, leave);
    tokio::select! {
        ended = &mut serving => ended,
        () = leave => {
            token.cancel();
            serving.await
        }
    }
}
