//! Upgrades a connection to WebSocket. A refusal is returned as the daemon's error.

use hyper::header::{AUTHORIZATION, USER_AGENT};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error as WsError, handshake::client::Request};
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use crate::connect::{Stream, connect};
use crate::path::Target;
use crate::{Client, ClientError};

/// A relayed line may be as long as the daemon keeps lines.
const MAX_MESSAGE_BYTES: usize = 80 << 20;

pub(crate) type Socket = WebSocketStream<Stream>;

impl Client {
    pub(crate) async fn websocket(&self, target: &Target) -> Result<Socket, ClientError> {
        let path = target.as_str();
        let operation = format!("GET {}", path.split('?').next().unwrap_or(path));
        let request = self
            .upgrade_request(target)
            .map_err(|error| ClientError::unexpected(&operation, error.to_string()))?;
        let stream = connect(self.endpoint())
            .await
            .map_err(|source| ClientError::Unreachable {
                endpoint: self.endpoint().to_string(),
                source: Box::new(source),
            })?;
        let config = WebSocketConfig::default()
            .max_message_size(Some(MAX_MESSAGE_BYTES))
            .max_frame_size(Some(MAX_MESSAGE_BYTES));
        match client_async_with_config(request, stream, Some(config)).await {
            Ok((socket, _)) => Ok(socket),
            Err(WsError::Http(answer)) => {
                let status = answer.status().as_u16();
                let body = answer.body().as_deref().unwrap_or_default();
                Err(ClientError::from_answer(&operation, status, body))
            }
            Err(error) => Err(ClientError::lost(&operation, error)),
        }
    }

    fn upgrade_request(&self, target: &Target) -> Result<Request, WsError> {
        let endpoint = self.endpoint();
        let mut request = format!(
            "ws://{}{}{}",
            endpoint.authority(),
            endpoint.prefix(),
            self.pinned(target).as_str()
        )
        .into_client_request()?;
        if let Some(token) = self.authorization() {
            request.headers_mut().insert(AUTHORIZATION, token.clone());
        }
        if let Some((name, value)) = self.operator() {
            request.headers_mut().insert(name, value);
        }
        request.headers_mut().insert(
            USER_AGENT,
            hyper::header::HeaderValue::from_static(concat!("boxwood/", env!("CARGO_PKG_VERSION"))),
        );
        Ok(request)
    }
}
