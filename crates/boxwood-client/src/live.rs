//! Live commands: input, output, signals and terminal size.
//!
//! Dropping the receiver before the exit stops the command.

use boxwood_api::{
    ErrorDetail, ExecExit, ExecInput, ExecOutput, STDERR_CHANNEL, STDOUT_CHANNEL, SessionId,
    Signal, SpecRequest, TtySize,
};
use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use tokio_tungstenite::tungstenite::Message;

use crate::path::Target;
use crate::resumable::{self, Event, Incoming, Joined, Protocol, Renew};
use crate::sessions::session;
use crate::websocket::Socket;
use crate::{Client, ClientError, Since};

const OPERATION: &str = "exec";

/// SIGKILL on every platform.
const KILL: i32 = 9;

/// The command and its streams.
#[derive(Clone, Debug, Default)]
pub struct LiveRequest {
    pub spec: SpecRequest,
    /// Program and arguments without a shell. `None`: `spec.cmd` is run by a shell.
    pub argv: Option<Vec<String>>,
    pub tty: Option<TtySize>,
    /// Whether input will be sent. A terminal always has input.
    pub stdin: bool,
    /// Keeps the command running after a lost connection. The client then reconnects automatically
    /// and continues.
    pub resumable: bool,
}

/// A running command.
pub struct LiveExec {
    pub session_id: SessionId,
    pub exec_id: u64,
    /// Changes that the profile made to the request.
    pub notices: Vec<String>,
    /// The daemon kills the command after this many seconds, if known.
    pub timeout_sec: Option<u64>,
    pub sender: LiveSender,
    pub receiver: LiveReceiver,
}

impl LiveExec {
    /// Detaches from a resumable command without stopping it. The daemon keeps it for a while.
    pub async fn detach(self) {
        self.sender.connection.leave(false).await;
    }
}

pub struct LiveSender {
    connection: resumable::Sender,
}

pub struct LiveReceiver {
    connection: resumable::Receiver<ExecExit>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum LiveEvent {
    Stdout(Bytes),
    Stderr(Bytes),
    /// The last event.
    Exit(ExecExit),
}

impl LiveSender {
    /// Waits while the command does not read.
    pub async fn stdin(&mut self, bytes: Bytes) -> Result<(), ClientError> {
        self.connection.input(bytes).await
    }

    /// Closes stdin.
    pub async fn close_stdin(&mut self) -> Result<(), ClientError> {
        self.connection.close_input().await
    }

    /// Does not wait for pending input.
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

    /// Kills the command and waits until the daemon has been notified. Dropping the receiver does
    /// the same, but only while the runtime keeps running.
    pub async fn stop(&mut self) {
        self.connection.leave(true).await;
    }

    /// Detaches from a resumable command without stopping it, while the receiver still has output.
    pub async fn detach(&mut self) {
        self.connection.leave(false).await;
    }

    async fn frame(&mut self, frame: &ExecInput) -> Result<(), ClientError> {
        self.connection.frame(text_frame(frame)).await
    }
}

impl LiveReceiver {
    /// The next event. Returns nothing after [`LiveEvent::Exit`].
    pub async fn next(&mut self) -> Result<LiveEvent, ClientError> {
        Ok(match self.connection.next().await? {
            Event::Output { channel: 0, bytes } => LiveEvent::Stdout(bytes),
            Event::Output { bytes, .. } => LiveEvent::Stderr(bytes),
            Event::End(exit) => LiveEvent::Exit(exit),
        })
    }
}

/// Frames of a live command.
struct ExecProtocol {
    session: SessionId,
    exec_id: u64,
}

impl ExecProtocol {
    fn target(&self, stdout: &str, stderr: &str) -> Target {
        exec(&self.session, self.exec_id)
            .fixed("ws")
            .query("stdout", stdout)
            .query("stderr", stderr)
    }
}

impl Protocol for ExecProtocol {
    type End = ExecExit;
    const OPERATION: &'static str = OPERATION;

    fn resume_target(&self, [stdout, stderr]: [u64; 2]) -> Target {
        self.target(&stdout.to_string(), &stderr.to_string())
    }

    fn text(&self, text: &str) -> Result<Incoming<ExecExit>, ClientError> {
        Ok(match answer(text)? {
            ExecOutput::Resumed {
                stdout,
                stderr,
                stdin,
                ..
            } => Incoming::Joined(Joined {
                read: [stdout, stderr],
                stdin,
            }),
            ExecOutput::Accepted { stdin } => Incoming::Accepted { stdin },
            ExecOutput::StdinClosed => Incoming::InputClosed,
            ExecOutput::Exit(exit) => Incoming::End(exit),
            ExecOutput::Error { error } => Incoming::Complaint(refused(error)),
            ExecOutput::Started { .. } => {
                return Err(ClientError::unexpected(OPERATION, "it was started twice"));
            }
        })
    }

    fn binary(&self, frame: Bytes) -> Result<(usize, Bytes), ClientError> {
        match frame.first() {
            Some(&STDOUT_CHANNEL) => Ok((0, frame.slice(1..))),
            Some(&STDERR_CHANNEL) => Ok((1, frame.slice(1..))),
            Some(channel) => Err(ClientError::unexpected(
                OPERATION,
                format!("channel {channel} is unknown"),
            )),
            None => Err(ClientError::unexpected(OPERATION, "an empty frame")),
        }
    }

    fn close_input(&self) -> Message {
        text_frame(&ExecInput::CloseStdin)
    }

    fn acknowledge(&self, [stdout, stderr]: [u64; 2]) -> Message {
        text_frame(&ExecInput::Ack { stdout, stderr })
    }

    fn stop_message(&self) -> Option<Message> {
        let signal = Signal::from_number(KILL)?;
        Some(text_frame(&ExecInput::Signal { signal }))
    }
}

fn text_frame(frame: &ExecInput) -> Message {
    // Cannot fail for these types; the daemon rejects an empty object.
    Message::text(serde_json::to_string(frame).unwrap_or_else(|_| "{}".to_owned()))
}

fn answer(text: &str) -> Result<ExecOutput, ClientError> {
    serde_json::from_str(text)
        .map_err(|error| ClientError::unexpected(OPERATION, error.to_string()))
}

/// The upgrade had succeeded, so there is no HTTP error status.
pub(crate) fn refused(error: ErrorDetail) -> ClientError {
    ClientError::Refused {
        status: 200,
        code: error.code,
        message: error.message,
        hint: error.hint,
    }
}

pub(crate) fn exec(id: &SessionId, exec_id: u64) -> Target {
    session(id).fixed("execs").segment(&exec_id.to_string())
}

impl Client {
    /// Starts a command and returns once it runs. Creates the session if needed.
    pub async fn live_exec(
        &self,
        id: &SessionId,
        request: LiveRequest,
    ) -> Result<LiveExec, ClientError> {
        let target = session(id).fixed("exec").fixed("ws");
        let mut socket = self.websocket(&target).await?;
        let resumable = request.resumable;
        let start = ExecInput::Start {
            spec: Box::new(request.spec),
            argv: request.argv,
            tty: request.tty,
            stdin: request.stdin,
            resumable: request.resumable,
        };
        socket
            .send(text_frame(&start))
            .await
            .map_err(|error| ClientError::lost(OPERATION, error))?;
        let Started {
            session_id,
            exec_id,
            notices,
            stdin,
            timeout_sec,
        } = started(&mut socket).await?;
        let protocol = ExecProtocol {
            session: id.clone(),
            exec_id,
        };
        let renew = if resumable {
            Renew::WhenLost(Joined {
                read: [0; 2],
                stdin,
            })
        } else {
            Renew::Never
        };
        let (sender, receiver) = resumable::start(self.clone(), protocol, socket, renew);
        Ok(LiveExec {
            session_id,
            exec_id,
            notices,
            timeout_sec,
            sender: LiveSender { connection: sender },
            receiver: LiveReceiver {
                connection: receiver,
            },
        })
    }

    /// Resumes a command. Disconnects the client that is attached to it.
    pub async fn resume_exec(
        &self,
        id: &SessionId,
        exec_id: u64,
        stdout: Since,
        stderr: Since,
    ) -> Result<LiveExec, ClientError> {
        let protocol = ExecProtocol {
            session: id.clone(),
            exec_id,
        };
        let target = protocol.target(&stdout.to_string(), &stderr.to_string());
        let mut socket = self.websocket(&target).await?;
        let renew = Renew::WhenLost(resumable::join(&protocol, &mut socket).await?);
        let (sender, receiver) = resumable::start(self.clone(), protocol, socket, renew);
        Ok(LiveExec {
            session_id: id.clone(),
            exec_id,
            notices: Vec::new(),
            timeout_sec: None,
            sender: LiveSender { connection: sender },
            receiver: LiveReceiver {
                connection: receiver,
            },
        })
    }
}

struct Started {
    session_id: SessionId,
    exec_id: u64,
    notices: Vec<String>,
    stdin: Option<u64>,
    timeout_sec: Option<u64>,
}

async fn started(socket: &mut Socket) -> Result<Started, ClientError> {
    loop {
        match socket.next().await {
            Some(Ok(Message::Text(text))) => {
                return match answer(&text)? {
                    ExecOutput::Started {
                        session_id,
                        exec_id,
                        notices,
                        stdin,
                        timeout_sec,
                    } => Ok(Started {
                        session_id,
                        exec_id,
                        notices,
                        stdin,
                        timeout_sec,
                    }),
                    ExecOutput::Error { error } => Err(refused(error)),
                    ExecOutput::Resumed { .. }
                    | ExecOutput::Accepted { .. }
                    | ExecOutput::StdinClosed
                    | ExecOutput::Exit(_) => Err(ClientError::unexpected(
                        OPERATION,
                        "it did not begin with its start",
                    )),
                };
            }
            Some(Ok(Message::Binary(_))) => {
                let why = "output came before the start";
                return Err(ClientError::unexpected(OPERATION, why));
            }
            Some(Ok(Message::Close(_))) | None => {
                let why = "the daemon closed the connection";
                return Err(ClientError::lost(OPERATION, why));
            }
            Some(Ok(_)) => {}
            Some(Err(error)) => return Err(ClientError::lost(OPERATION, error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn protocol() -> ExecProtocol {
        ExecProtocol {
            session: SessionId::new("a b").unwrap(),
            exec_id: 7,
        }
    }

    #[test]
    fn the_first_byte_of_output_is_its_channel() {
        let read = |frame: &'static [u8]| protocol().binary(Bytes::from_static(frame));
        assert_eq!(read(b"\x01hi").unwrap(), (0, Bytes::from_static(b"hi")));
        assert_eq!(read(b"\x02").unwrap(), (1, Bytes::new()));
        assert!(read(b"").is_err());
        assert!(read(b"\x09x").is_err());
    }

    #[test]
    fn an_error_frame_carries_code_and_hint() {
        let text = r#"{"type":"error","error":{"code":"capacity","message":"full","hint":"wait"}}"#;
        let Ok(Incoming::Complaint(error)) = protocol().text(text) else {
            panic!("an error frame was taken for something else");
        };
        assert_eq!(error.code(), boxwood_api::ErrorCode::Capacity);
        assert_eq!(error.hint().as_deref(), Some("wait"));
    }

    #[test]
    fn a_command_goes_on_where_it_was() {
        assert_eq!(
            protocol().resume_target([12, 3]).as_str(),
            "/v1/sessions/a%20b/execs/7/ws?stdout=12&stderr=3"
        );
    }
}
