//! A command while it runs: its input, its output, signals and the window's size.
//!
//! Comes in: a `start` frame and what follows it. Goes out: output as it is written and, last, how
//! the command ended. Dropping both halves before that end stops the command.

use boxwood_api::{
    ErrorDetail, ExecExit, ExecInput, ExecOutput, STDERR_CHANNEL, STDOUT_CHANNEL, SessionId,
    Signal, SpecRequest, TtySize,
};
use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use tokio_tungstenite::tungstenite::Message;

use crate::sessions::session;
use crate::websocket::Socket;
use crate::{Client, ClientError};

const OPERATION: &str = "exec";

/// What to run, and with which streams.
#[derive(Clone, Debug, Default)]
pub struct LiveRequest {
    pub spec: SpecRequest,
    /// Program and arguments without a shell; `spec.cmd` is run by one when this is `None`.
    pub argv: Option<Vec<String>>,
    pub tty: Option<TtySize>,
    /// Whether input will be sent; a terminal always has it.
    pub stdin: bool,
}

/// A command that has started.
pub struct LiveExec {
    pub session_id: SessionId,
    pub exec_id: u64,
    /// What the profile changed about the request, in words.
    pub notices: Vec<String>,
    pub sender: LiveSender,
    pub receiver: LiveReceiver,
}

pub struct LiveSender {
    sink: SplitSink<Socket, Message>,
}

pub struct LiveReceiver {
    stream: SplitStream<Socket>,
    /// What the daemon did not like about a frame of ours. Not the end of the command (a signal may
    /// just have come too late), unless nothing follows.
    complaint: Option<ClientError>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum LiveEvent {
    Stdout(Bytes),
    Stderr(Bytes),
    /// The last one.
    Exit(ExecExit),
}

impl LiveSender {
    pub async fn stdin(&mut self, bytes: Bytes) -> Result<(), ClientError> {
        self.send(Message::Binary(bytes)).await
    }

    /// End of input.
    pub async fn close_stdin(&mut self) -> Result<(), ClientError> {
        self.frame(&ExecInput::CloseStdin).await
    }

    pub async fn signal(&mut self, signal: Signal) -> Result<(), ClientError> {
        self.frame(&ExecInput::Signal { signal }).await
    }

    pub async fn resize(&mut self, size: TtySize) -> Result<(), ClientError> {
        self.frame(&ExecInput::Resize {
            rows: size.rows,
            cols: size.cols,
        })
        .await
    }

    /// Tells the daemon that we are still here. Needed only by those who stop receiving for a
    /// while: whoever receives answers the daemon's own questions without noticing.
    pub async fn still_here(&mut self) -> Result<(), ClientError> {
        self.send(Message::Pong(Bytes::new())).await
    }

    async fn frame(&mut self, frame: &ExecInput) -> Result<(), ClientError> {
        let text = serde_json::to_string(frame)
            .map_err(|error| ClientError::unexpected(OPERATION, error.to_string()))?;
        self.send(Message::text(text)).await
    }

    async fn send(&mut self, message: Message) -> Result<(), ClientError> {
        self.sink
            .send(message)
            .await
            .map_err(|error| ClientError::lost(OPERATION, error))
    }
}

enum Incoming {
    Started {
        session_id: SessionId,
        exec_id: u64,
        notices: Vec<String>,
    },
    Event(LiveEvent),
}

impl LiveReceiver {
    /// The next thing that happened. After [`LiveEvent::Exit`] there is nothing.
    pub async fn next(&mut self) -> Result<LiveEvent, ClientError> {
        loop {
            match self.receive().await {
                Ok(Incoming::Event(event)) => return Ok(event),
                Ok(Incoming::Started { .. }) => {
                    return Err(ClientError::unexpected(OPERATION, "it was started twice"));
                }
                Err(refused @ ClientError::Refused { .. }) => self.complaint = Some(refused),
                Err(error) => return Err(self.complaint.take().unwrap_or(error)),
            }
        }
    }

    async fn receive(&mut self) -> Result<Incoming, ClientError> {
        loop {
            match self.stream.next().await {
                Some(Ok(Message::Binary(bytes))) => return output(&bytes).map(Incoming::Event),
                Some(Ok(Message::Text(text))) => return answer(&text),
                Some(Ok(Message::Close(frame))) => {
                    let why = frame
                        .map(|frame| frame.reason.to_string())
                        .filter(|why| !why.is_empty())
                        .unwrap_or_else(|| "the daemon closed the connection".to_owned());
                    return Err(ClientError::lost(OPERATION, why));
                }
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(ClientError::lost(OPERATION, error)),
                None => return Err(ClientError::lost(OPERATION, "the connection ended")),
            }
        }
    }
}

fn output(bytes: &Bytes) -> Result<LiveEvent, ClientError> {
    match bytes.first() {
        Some(&STDOUT_CHANNEL) => Ok(LiveEvent::Stdout(bytes.slice(1..))),
        Some(&STDERR_CHANNEL) => Ok(LiveEvent::Stderr(bytes.slice(1..))),
        Some(channel) => Err(ClientError::unexpected(
            OPERATION,
            format!("channel {channel} is unknown"),
        )),
        None => Err(ClientError::unexpected(OPERATION, "an empty frame")),
    }
}

fn answer(text: &str) -> Result<Incoming, ClientError> {
    let frame = serde_json::from_str(text)
        .map_err(|error| ClientError::unexpected(OPERATION, error.to_string()))?;
    match frame {
        ExecOutput::Started {
            session_id,
            exec_id,
            notices,
        } => Ok(Incoming::Started {
            session_id,
            exec_id,
            notices,
        }),
        ExecOutput::Resumed { .. } | ExecOutput::Accepted { .. } => Err(ClientError::unexpected(
            OPERATION,
            "a frame for commands that were resumed",
        )),
        ExecOutput::Exit(exit) => Ok(Incoming::Event(LiveEvent::Exit(exit))),
        ExecOutput::Error { error } => Err(refused(error)),
    }
}

/// The socket was open already, so there is no status of HTTP's own; 200 is what it was.
fn refused(error: ErrorDetail) -> ClientError {
    ClientError::Refused {
        status: 200,
        code: error.code,
        message: error.message,
        hint: error.hint,
    }
}

impl Client {
    /// Starts a command and answers once it runs. Creates the session when missing.
    pub async fn live_exec(
        &self,
        id: &SessionId,
        request: LiveRequest,
    ) -> Result<LiveExec, ClientError> {
        let target = session(id).fixed("exec").fixed("ws");
        let (sink, stream) = self.websocket(&target).await?.split();
        let mut sender = LiveSender { sink };
        let mut receiver = LiveReceiver {
            stream,
            complaint: None,
        };
        sender
            .frame(&ExecInput::Start {
                spec: Box::new(request.spec),
                argv: request.argv,
                tty: request.tty,
                stdin: request.stdin,
                resumable: false,
            })
            .await?;
        match receiver.receive().await? {
            Incoming::Started {
                session_id,
                exec_id,
                notices,
            } => Ok(LiveExec {
                session_id,
                exec_id,
                notices,
                sender,
                receiver,
            }),
            Incoming::Event(_) => Err(ClientError::unexpected(
                OPERATION,
                "output came before the start",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_byte_of_output_is_its_channel() {
        let event = output(&Bytes::from_static(b"\x01hi")).unwrap();
        assert_eq!(event, LiveEvent::Stdout(Bytes::from_static(b"hi")));
        let event = output(&Bytes::from_static(b"\x02")).unwrap();
        assert_eq!(event, LiveEvent::Stderr(Bytes::new()));
        assert!(output(&Bytes::new()).is_err());
        assert!(output(&Bytes::from_static(b"\x09x")).is_err());
    }

    #[test]
    fn an_error_frame_carries_code_and_hint() {
        let text = r#"{"type":"error","error":{"code":"capacity","message":"full","hint":"wait"}}"#;
        let Err(error) = answer(text) else {
            panic!("an error frame was taken for something else");
        };
        assert_eq!(error.code(), boxwood_api::ErrorCode::Capacity);
        assert_eq!(error.hint().as_deref(), Some("wait"));
    }
}
