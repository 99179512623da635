//! Live commands: input, output, signals and terminal size.
//!
//! Dropping the receiver before the exit stops the command.

use boxwood_api::{
    ExecExit, ExecInput, ExecOutput, STDERR_CHANNEL, STDOUT_CHANNEL, SessionId, Signal,
    SpecRequest, TtySize,
};
use bytes::Bytes;
use futures_util::SinkExt as _;
use tokio_tungstenite::tungstenite::Message;

use super::connection::start;
use super::{
    Control, Incoming, Input, Joined, LiveReceiver, LiveSender, Protocol, Since, first_text, join,
    parse, refused, text_frame,
};
use crate::http::target::Target;
use crate::http::websocket::Socket;
use crate::requests::{exec, session};
use crate::{Client, ClientError, Result};

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
}

/// A running command. The daemon keeps it for a while after a lost connection; the client reconnects
/// and continues.
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

impl LiveSender {
    /// Closes stdin, after the input that was sent before.
    pub async fn close_stdin(&mut self) -> Result<()> {
        self.queue(&self.inputs, Input::Close).await
    }

    /// Does not wait for pending input.
    pub async fn signal(&mut self, signal: Signal) -> Result<()> {
        self.frame(&ExecInput::Signal { signal }).await
    }

    pub async fn resize(&mut self, size: TtySize) -> Result<()> {
        self.frame(&ExecInput::Resize {
            rows: size.rows,
            cols: size.cols,
        })
        .await
    }

    /// Kills the command and waits until the daemon has been notified. Dropping the receiver does
    /// the same, but only while the runtime keeps running.
    pub async fn stop(&mut self) {
        self.leave(true).await;
    }

    async fn frame(&mut self, frame: &ExecInput) -> Result<()> {
        let frame = Control::Frame(text_frame(frame));
        self.queue(&self.controls, frame).await
    }
}

/// Frames of a live command.
struct ExecProtocol {
    session: SessionId,
    exec_id: u64,
}

impl ExecProtocol {
    fn target(&self, stdout: Since, stderr: Since) -> Target {
        exec(&self.session, self.exec_id)
            .fixed("ws")
            .query("stdout", &stdout.to_string())
            .query("stderr", &stderr.to_string())
    }
}

impl Protocol for ExecProtocol {
    type End = ExecExit;
    const OPERATION: &'static str = OPERATION;

    fn resume_target(&self, [stdout, stderr]: [u64; 2]) -> Target {
        self.target(Since::Offset(stdout), Since::Offset(stderr))
    }

    fn text(&self, text: &str) -> Result<Incoming<ExecExit>> {
        Ok(match parse(OPERATION, text)? {
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
            ExecOutput::Error { error } => Incoming::Error(refused(error)),
            ExecOutput::Started { .. } => {
                return Err(ClientError::unexpected(
                    OPERATION,
                    "the command was started twice",
                ));
            }
        })
    }

    fn binary(&self, frame: Bytes) -> Result<(usize, Bytes)> {
        match frame.first() {
            Some(&STDOUT_CHANNEL) => Ok((0, frame.slice(1..))),
            Some(&STDERR_CHANNEL) => Ok((1, frame.slice(1..))),
            Some(channel) => Err(ClientError::unexpected(
                OPERATION,
                format!("channel {channel} is unknown"),
            )),
            None => Err(ClientError::unexpected(
                OPERATION,
                "a binary frame is empty",
            )),
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

impl Client {
    /// Starts a command and returns once it runs. Creates the session if needed.
    pub async fn live_exec(&self, id: &SessionId, request: LiveRequest) -> Result<LiveExec> {
        let target = session(id).fixed("exec").fixed("ws");
        let mut socket = self.websocket(&target).await?;
        let frame = ExecInput::Start {
            spec: Box::new(request.spec),
            argv: request.argv,
            tty: request.tty,
            stdin: request.stdin,
            resumable: true,
        };
        socket
            .send(text_frame(&frame))
            .await
            .map_err(|error| ClientError::lost(OPERATION, error))?;
        match parse(OPERATION, &first_text(OPERATION, &mut socket).await?)? {
            ExecOutput::Started {
                session_id,
                exec_id,
                notices,
                stdin,
                timeout_sec,
            } => {
                let protocol = ExecProtocol {
                    session: id.clone(),
                    exec_id,
                };
                let read = [0; 2];
                let live = self.live(protocol, socket, Joined { read, stdin });
                Ok(LiveExec {
                    session_id,
                    notices,
                    timeout_sec,
                    ..live
                })
            }
            ExecOutput::Error { error } => Err(refused(error)),
            _ => {
                let reason = "the first frame does not say that the command was started";
                Err(ClientError::unexpected(OPERATION, reason))
            }
        }
    }

    /// Resumes a command. Disconnects the client that is attached to it.
    pub async fn resume_exec(
        &self,
        id: &SessionId,
        exec_id: u64,
        stdout: Since,
        stderr: Since,
    ) -> Result<LiveExec> {
        let protocol = ExecProtocol {
            session: id.clone(),
            exec_id,
        };
        let mut socket = self.websocket(&protocol.target(stdout, stderr)).await?;
        let joined = join(&protocol, &mut socket).await?;
        Ok(self.live(protocol, socket, joined))
    }

    fn live(&self, protocol: ExecProtocol, socket: Socket, joined: Joined) -> LiveExec {
        let (session_id, exec_id) = (protocol.session.clone(), protocol.exec_id);
        let (sender, receiver) = start(self.clone(), protocol, socket, joined);
        LiveExec {
            session_id,
            exec_id,
            notices: Vec::new(),
            timeout_sec: None,
            sender,
            receiver,
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
        let Ok(Incoming::Error(error)) = protocol().text(text) else {
            panic!("an error frame was taken for something else");
        };
        assert_eq!(error.code(), boxwood_api::ErrorCode::Capacity);
        assert_eq!(error.hint().as_deref(), Some("wait"));
    }

    #[test]
    fn a_command_resumes_at_the_last_offsets() {
        assert_eq!(
            protocol().resume_target([12, 3]).as_str(),
            "/v1/sessions/a%20b/execs/7/ws?stdout=12&stderr=3"
        );
    }
}
