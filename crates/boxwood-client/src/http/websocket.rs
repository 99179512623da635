//! Upgrades a connection to WebSocket. A refusal is returned as the daemon's error.

use hyper::Method;
use tokio_tungstenite::tungstenite::Error as WsError;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use super::connect::{Stream, connect};
use super::target::Target;
use crate::{Client, ClientError, Result};

/// Must allow the longest line of a managed process that the daemon relays.
const MAX_MESSAGE_BYTES: usize = 80 << 20;

pub(crate) type Socket = WebSocketStream<Stream>;

impl Client {
    pub(crate) async fn websocket(&self, target: &Target) -> Result<Socket> {
        let operation = target.operation(&Method::GET);
        let mut request = self
            .url("ws", target)
            .into_client_request()
            .map_err(|error| ClientError::unexpected(&operation, error))?;
        request.headers_mut().extend(self.headers());
        let stream = connect(&self.endpoint)
            .await
            .map_err(|source| ClientError::Unreachable {
                endpoint: self.endpoint.to_string(),
                source: Box::new(source),
            })?;
        let config = WebSocketConfig::default()
            .max_message_size(Some(MAX_MESSAGE_BYTES))
            .max_frame_size(Some(MAX_MESSAGE_BYTES));
        match client_async_with_config(request, stream, Some(config)).await {
            Ok((socket, _)) => Ok(socket),
            Err(WsError::Http(response)) => {
                let status = response.status().as_u16();
                let body = response.body().as_deref().unwrap_or_default();
                Err(ClientError::from_response(&operation, status, body))
            }
            Err(error) => Err(ClientError::lost(&operation, error)),
        }
    }
}
