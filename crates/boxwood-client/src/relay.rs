//! The stdio relay of a managed process: lines in, lines out.

use boxwood_api::{ProcessId, SessionId};
use futures_util::{SinkExt, StreamExt};
use tokio_tungstenite::tungstenite::Message;

use crate::sessions::session;
use crate::websocket::Socket;
use crate::{Client, ClientError};

const OPERATION: &str = "attach";

/// An attachment. One process has one at a time; a second one waits for the first to end.
pub struct Relay {
    socket: Socket,
}

impl Relay {
    /// The next line of the process's stdout, without its end; `None` when there will be no more.
    pub async fn next_line(&mut self) -> Result<Option<String>, ClientError> {
        loop {
            match self.socket.next().await {
                None | Some(Ok(Message::Close(_))) => return Ok(None),
                Some(Ok(Message::Text(line))) => return Ok(Some(line.to_string())),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(ClientError::lost(OPERATION, error)),
            }
        }
    }

    /// Writes one line to the process's stdin; the daemon adds the newline.
    pub async fn send_line(&mut self, line: &str) -> Result<(), ClientError> {
        self.socket
            .send(Message::text(line))
            .await
            .map_err(|error| ClientError::lost(OPERATION, error))
    }

    /// Lets go of the process, which lives on.
    pub async fn detach(mut self) -> Result<(), ClientError> {
        self.socket
            .close(None)
            .await
            .map_err(|error| ClientError::lost(OPERATION, error))
    }
}

impl Client {
    pub async fn attach(&self, id: &SessionId, process: &ProcessId) -> Result<Relay, ClientError> {
        let target = session(id)
            .fixed("managed-process")
            .segment(process.as_str())
            .fixed("ws");
        Ok(Relay {
            socket: self.websocket(&target).await?,
        })
    }
}
