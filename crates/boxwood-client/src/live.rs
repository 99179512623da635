//! A command while it runs: its input, its output, signals and the window's size.
//!
//! Comes in: a `start` frame and what follows it. Goes out: output as it is written and, last, how
//! the command ended. Dropping the receiver before that end stops the command.

use boxwood_api::{
    ErrorDetail, ExecExit, ExecInput, ExecOutput, STDERR_CHANNEL, STDOUT_CHANNEL, SessionId,
    Signal, SpecRequest, TtySize,
};
use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use tokio_tungstenite::tungstenite::Message;

use crate::lifeline::{self, Dialect, Happening, Incoming, Joined, Renew};
use crate::path::Target;
use crate::sessions::session;
use crate::websocket::Socket;
use crate::{Client, ClientError, Since};

const OPERATION: &str = "exec";

/// SIGKILL, wherever it is sent from.
const KILL: i32 = 9;

/// What to run, and with which streams.
#[derive(Clone, Debug, Default)]
pub struct LiveRequest {
    pub spec: SpecRequest,
    /// Program and arguments without a shell; `spec.cmd` is run by one when this is `None`.
    pub argv: Option<Vec<String>>,
    pub tty: Option<TtySize>,
    /// Whether input will be sent; a terminal always has it.
    pub stdin: bool,
    /// Whether the command outlives a lost connection for a while. The client then connects again by
    /// itself, and goes on where it was.
    pub resumable: bool,
}

/// A command that runs.
pub struct LiveExec {
    pub session_id: SessionId,
    pub exec_id: u64,
    /// What the profile changed about the request, in words.
    pub notices: Vec<String>,
    /// After so many seconds the daemon kills it, where the daemon has said so.
    pub timeout_sec: Option<u64>,
    pub sender: LiveSender,
    pub receiver: LiveReceiver,
}

impl LiveExec {
    /// Lets go of a resumable command without stopping it. The daemon keeps it for a while.
    pub async fn detach(self) {
        self.sender.line.leave(false).await;
    }
}

pub struct LiveSender {
    line: lifeline::Sender,
}

pub struct LiveReceiver {
    line: lifeline::Receiver<ExecExit>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum LiveEvent {
    Stdout(Bytes),
    Stderr(Bytes),
    /// The last one.
    Exit(ExecExit),
}

impl LiveSender {
    /// Waits while the command is slow to read.
    pub async fn stdin(&mut self, bytes: Bytes) -> Result<(), ClientError> {
        self.line.input(bytes).await
    }

    /// End of input.
    pub async fn close_stdin(&mut self) -> Result<(), ClientError> {
        self.line.close_input().await
    }

    /// Never waits behind input.
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

    /// Kills the command and waits until the daemon has been told. What dropping the receiver does as
    /// well, but only for as long as the program goes on.
    pub async fn stop(&mut self) {
        self.line.leave(true).await;
    }

    /// Lets go of a resumable command without stopping it, while the receiver still has output to give.
    pub async fn detach(&mut self) {
        self.line.leave(false).await;
    }

    async fn frame(&mut self, frame: &ExecInput) -> Result<(), ClientError> {
        self.line.frame(text_frame(frame)).await
    }
}

impl LiveReceiver {
    /// The next thing that happened. After [`LiveEvent::Exit`] there is nothing.
    pub async fn next(&mut self) -> Result<LiveEvent, ClientError> {
        Ok(match self.line.next().await? {
            Happening::Output { channel: 0, bytes } => LiveEvent::Stdout(bytes),
            Happening::Output { bytes, .. } => LiveEvent::Stderr(bytes),
            Happening::End(exit) => LiveEvent::Exit(exit),
        })
    }
}

/// The frames of one command.
struct Words {
    session: SessionId,
    exec_id: u64,
}

impl Words {
    fn target(&self, stdout: &str, stderr: &str) -> Target {
        exec(&self.session, self.exec_id)
            .fixed("ws")
            .query("stdout", stdout)
            .query("stderr", stderr)
    }
}

impl Dialect for Words {
    type End = ExecExit;
    const OPERATION: &'static str = OPERATION;

    fn again(&self, [stdout, stderr]: [u64; 2]) -> Target {
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

    fn farewell(&self) -> Option<Message> {
        let signal = Signal::from_number(KILL)?;
        Some(text_frame(&ExecInput::Signal { signal }))
    }
}

fn text_frame(frame: &ExecInput) -> Message {
    // These types always serialise; an empty object is what a daemon would complain about.
    Message::text(serde_json::to_string(frame).unwrap_or_else(|_| "{}".to_owned()))
}

fn answer(text: &str) -> Result<ExecOutput, ClientError> {
    serde_json::from_str(text)
        .map_err(|error| ClientError::unexpected(OPERATION, error.to_string()))
}

/// The socket was open already, so there is no status of HTTP's own; 200 is what it was.
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
    /// Starts a command and answers once it runs. Creates the session when missing.
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
        let words = Words {
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
        let (sender, receiver) = lifeline::hold(self.clone(), words, socket, renew);
        Ok(LiveExec {
            session_id,
            exec_id,
            notices,
            timeout_sec,
            sender: LiveSender { line: sender },
            receiver: LiveReceiver { line: receiver },
        })
    }

    /// Goes on with a resumable command. Whoever followed it before is sent away.
    pub async fn resume_exec(
        &self,
        id: &SessionId,
        exec_id: u64,
        stdout: Since,
        stderr: Since,
    ) -> Result<LiveExec, ClientError> {
        let words = Words {
            session: id.clone(),
            exec_id,
        };
        let target = words.target(&stdout.to_string(), &stderr.to_string());
        let mut socket = self.websocket(&target).await?;
        let renew = Renew::WhenLost(lifeline::join(&words, &mut socket).await?);
        let (sender, receiver) = lifeline::hold(self.clone(), words, socket, renew);
        Ok(LiveExec {
            session_id: id.clone(),
            exec_id,
            notices: Vec::new(),
            timeout_sec: None,
            sender: LiveSender { line: sender },
            receiver: LiveReceiver { line: receiver },
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

    fn words() -> Words {
        Words {
            session: SessionId::new("a b").unwrap(),
            exec_id: 7,
        }
    }

    #[test]
    fn the_first_byte_of_output_is_its_channel() {
        let read = |frame: &'static [u8]| words().binary(Bytes::from_static(frame));
        assert_eq!(read(b"\x01hi").unwrap(), (0, Bytes::from_static(b"hi")));
        assert_eq!(read(b"\x02").unwrap(), (1, Bytes::new()));
        assert!(read(b"").is_err());
        assert!(read(b"\x09x").is_err());
    }

    #[test]
    fn an_error_frame_carries_code_and_hint() {
        let text = r#"{"type":"error","error":{"code":"capacity","message":"full","hint":"wait"}}"#;
        let Ok(Incoming::Complaint(error)) = words().text(text) else {
            panic!("an error frame was taken for something else");
        };
        assert_eq!(error.code(), boxwood_api::ErrorCode::Capacity);
        assert_eq!(error.hint().as_deref(), Some("wait"));
    }

    #[test]
    fn a_command_goes_on_where_it_was() {
        assert_eq!(
            words().again([12, 3]).as_str(),
            "/v1/sessions/a%20b/execs/7/ws?stdout=12&stderr=3"
        );
    }
}
