//! Attaches to stdin and stdout of a managed process, across daemon restarts.
//!
//! Dropping the receiver detaches; the process keeps running.

use std::sync::OnceLock;

use boxwood_api::{
    ErrorCode, ErrorDetail, ProcessExit, ProcessId, RelayControl, RelayNews, SessionId,
};
use bytes::Bytes;
use jiff::Timestamp;
use tokio_tungstenite::tungstenite::Message;

use super::connection::start;
use super::{
    Incoming, Joined, LiveEvent, LiveReceiver, LiveSender, Protocol, Since, join, parse, refused,
    text_frame,
};
use crate::http::target::Target;
use crate::requests::processes::process;
use crate::{Client, ClientError, Result};

const OPERATION: &str = "attach";

/// An attachment. A process has one at a time; a second one waits until the first ends.
pub struct Attached {
    /// The offset at which the output starts.
    pub stdout: u64,
    pub sender: AttachedSender,
    pub receiver: AttachedReceiver,
}

pub type AttachedEvent = LiveEvent<ProcessExit>;
pub type AttachedSender = LiveSender<ProcessExit>;
pub type AttachedReceiver = LiveReceiver<ProcessExit>;

/// Frames of the relay.
struct AttachProtocol {
    session: SessionId,
    process: ProcessId,
    /// Start time of the process, to detect another process with the same id.
    started_at: OnceLock<Timestamp>,
}

impl AttachProtocol {
    fn target(&self, since: Since) -> Target {
        process(&self.session, &self.process)
            .fixed("ws")
            .query("since", &since.to_string())
    }

    fn replaced(&self) -> ClientError {
        refused(ErrorDetail {
            code: ErrorCode::ManagedProcessConflict,
            message: format!("managed process {} was replaced by another", self.process),
            hint: Some("attach again to connect to the new one".to_owned()),
        })
    }
}

impl Protocol for AttachProtocol {
    type End = ProcessExit;
    const OPERATION: &'static str = OPERATION;

    fn resume_target(&self, [stdout, _]: [u64; 2]) -> Target {
        self.target(Since::Offset(stdout))
    }

    fn text(&self, text: &str) -> Result<Incoming<ProcessExit>> {
        Ok(match parse(OPERATION, text)? {
            RelayNews::Joined {
                stdout,
                stdin,
                started_at,
            } => {
                if *self.started_at.get_or_init(|| started_at) != started_at {
                    return Err(self.replaced());
                }
                Incoming::Joined(Joined {
                    read: [stdout, 0],
                    stdin: Some(stdin),
                })
            }
            RelayNews::Accepted { stdin } => Incoming::Accepted { stdin },
            RelayNews::StdinClosed { .. } => Incoming::InputClosed,
            RelayNews::Exited { exited } => Incoming::End(exited),
            RelayNews::Error { error } => Incoming::Error(refused(error)),
        })
    }

    fn binary(&self, frame: Bytes) -> Result<(usize, Bytes)> {
        Ok((0, frame))
    }

    fn close_input(&self) -> Message {
        text_frame(&RelayControl::CloseStdin)
    }

    fn acknowledge(&self, [stdout, _]: [u64; 2]) -> Message {
        text_frame(&RelayControl::Ack { stdout })
    }

    fn stop_message(&self) -> Option<Message> {
        None
    }
}

impl Client {
    /// Attaches to a managed process and reconnects after a daemon restart: output written
    /// meanwhile is delivered, and unacknowledged input is resent.
    pub async fn attach_from(
        &self,
        id: &SessionId,
        process: &ProcessId,
        since: Since,
    ) -> Result<Attached> {
        // The next daemon must not attach to another box with the same session id.
        let incarnation = self.session(id).await?.session.incarnation;
        let client = self.of_incarnation(incarnation);
        let protocol = AttachProtocol {
            session: id.clone(),
            process: process.clone(),
            started_at: OnceLock::new(),
        };
        let mut socket = client.websocket(&protocol.target(since)).await?;
        let joined = join(&protocol, &mut socket).await?;
        let (sender, receiver) = start(client, protocol, socket, joined);
        Ok(Attached {
            stdout: joined.read[0],
            sender,
            receiver,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn protocol() -> AttachProtocol {
        AttachProtocol {
            session: SessionId::new("s").unwrap(),
            process: ProcessId::default(),
            started_at: OnceLock::new(),
        }
    }

    #[test]
    fn a_replaced_process_is_detected() {
        let protocol = protocol();
        let first = r#"{"stdout":7,"stdin":3,"started_at":"2026-06-09T11:30:17Z"}"#;
        let joined = Joined {
            read: [7, 0],
            stdin: Some(3),
        };
        for _ in 0..2 {
            let Ok(Incoming::Joined(got)) = protocol.text(first) else {
                panic!("not parsed as the first frame");
            };
            assert_eq!(got, joined);
        }
        let other = r#"{"stdout":7,"stdin":3,"started_at":"2026-06-09T11:30:18Z"}"#;
        let Err(error) = protocol.text(other) else {
            panic!("taken for the same process");
        };
        assert_eq!(error.code(), ErrorCode::ManagedProcessConflict);
    }

    #[test]
    fn an_attachment_resumes_at_the_last_offset() {
        assert_eq!(
            protocol().resume_target([9, 0]).as_str(),
            "/v1/sessions/s/managed-process/default/ws?since=9"
        );
    }
}
