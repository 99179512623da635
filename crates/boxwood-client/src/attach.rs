//! The stdin and stdout of a managed process as they are, across restarts of the daemon.
//!
//! Comes in: a process, and from where on its output is wanted. Goes out: its output, byte for byte,
//! and its end. Dropping the receiver lets go of the process, which lives on.

use std::fmt;
use std::sync::OnceLock;

use boxwood_api::{
    ErrorCode, ErrorDetail, ProcessExit, ProcessId, RelayControl, RelayNews, SessionId,
};
use bytes::Bytes;
use jiff::Timestamp;
use tokio_tungstenite::tungstenite::Message;

use crate::lifeline::{self, Dialect, Happening, Incoming, Joined, Renew};
use crate::live::refused;
use crate::path::Target;
use crate::processes::process;
use crate::{Client, ClientError};

const OPERATION: &str = "attach";

/// From where on output is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// What nobody has taken yet.
    Now,
    /// After so many bytes of everything the process ever wrote to its stdout.
    Offset(u64),
}

impl fmt::Display for Since {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Now => f.write_str("now"),
            Self::Offset(offset) => offset.fmt(f),
        }
    }
}

/// An attachment. One process has one at a time; a second one waits for the first to end.
pub struct Attached {
    /// Where the output begins.
    pub stdout: u64,
    pub sender: AttachedSender,
    pub receiver: AttachedReceiver,
}

pub struct AttachedSender {
    line: lifeline::Sender,
}

pub struct AttachedReceiver {
    line: lifeline::Receiver<ProcessExit>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum AttachedEvent {
    Stdout(Bytes),
    /// The last one.
    Exited(ProcessExit),
}

impl AttachedSender {
    /// Waits while the process is slow to read. No newline is added.
    pub async fn stdin(&mut self, bytes: Bytes) -> Result<(), ClientError> {
        self.line.input(bytes).await
    }

    /// End of input, for whoever attaches later as well.
    pub async fn close_stdin(&mut self) -> Result<(), ClientError> {
        self.line.close_input().await
    }

    /// Lets go of the process, which lives on, and waits until the daemon has been told.
    pub async fn detach(&mut self) {
        self.line.leave(false).await;
    }
}

impl AttachedReceiver {
    /// After [`AttachedEvent::Exited`] there is nothing.
    pub async fn next(&mut self) -> Result<AttachedEvent, ClientError> {
        Ok(match self.line.next().await? {
            Happening::Output { bytes, .. } => AttachedEvent::Stdout(bytes),
            Happening::End(exit) => AttachedEvent::Exited(exit),
        })
    }
}

/// The frames of one process.
struct Words {
    session: SessionId,
    process: ProcessId,
    /// Of the process that was found first: another one may take its name.
    started_at: OnceLock<Timestamp>,
}

impl Words {
    fn target(&self, since: Since) -> Target {
        process(&self.session, &self.process)
            .fixed("ws")
            .query("since", &since.to_string())
    }

    fn replaced(&self) -> ClientError {
        refused(ErrorDetail {
            code: ErrorCode::ManagedProcessConflict,
            message: format!("managed process {} was replaced by another", self.process),
            hint: Some("attach again to speak to the new one".to_owned()),
        })
    }
}

impl Dialect for Words {
    type End = ProcessExit;
    const OPERATION: &'static str = OPERATION;

    fn again(&self, [stdout, _]: [u64; 2]) -> Target {
        self.target(Since::Offset(stdout))
    }

    fn text(&self, text: &str) -> Result<Incoming<ProcessExit>, ClientError> {
        let news = serde_json::from_str(text)
            .map_err(|error| ClientError::unexpected(OPERATION, error.to_string()))?;
        Ok(match news {
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
            RelayNews::Error { error } => Incoming::Complaint(refused(error)),
        })
    }

    fn binary(&self, frame: Bytes) -> Result<(usize, Bytes), ClientError> {
        Ok((0, frame))
    }

    fn close_input(&self) -> Message {
        text_frame(&RelayControl::CloseStdin)
    }

    fn acknowledge(&self, [stdout, _]: [u64; 2]) -> Message {
        text_frame(&RelayControl::Ack { stdout })
    }

    fn farewell(&self) -> Option<Message> {
        None
    }
}

fn text_frame(frame: &RelayControl) -> Message {
    // These types always serialise; an empty object is what a daemon would complain about.
    Message::text(serde_json::to_string(frame).unwrap_or_else(|_| "{}".to_owned()))
}

impl Client {
    /// Attaches to a managed process, and stays attached to it while the daemon is restarted: what it
    /// writes meanwhile is told afterwards, and input that was on its way is sent again.
    pub async fn attach_from(
        &self,
        id: &SessionId,
        process: &ProcessId,
        since: Since,
    ) -> Result<Attached, ClientError> {
        // The next daemon must not take us to another box of the same name.
        let incarnation = self.session(id).await?.session.incarnation;
        let client = self.of_incarnation(incarnation);
        let words = Words {
            session: id.clone(),
            process: process.clone(),
            started_at: OnceLock::new(),
        };
        let mut socket = client.websocket(&words.target(since)).await?;
        let joined = lifeline::join(&words, &mut socket).await?;
        let (sender, receiver) = lifeline::hold(client, words, socket, Renew::WhenLost(joined));
        Ok(Attached {
            stdout: joined.read[0],
            sender: AttachedSender { line: sender },
            receiver: AttachedReceiver { line: receiver },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words() -> Words {
        Words {
            session: SessionId::new("s").unwrap(),
            process: ProcessId::default(),
            started_at: OnceLock::new(),
        }
    }

    #[test]
    fn another_process_of_the_same_name_is_noticed() {
        let words = words();
        let first = r#"{"stdout":7,"stdin":3,"started_at":"2026-06-09T11:30:17Z"}"#;
        let joined = Joined {
            read: [7, 0],
            stdin: Some(3),
        };
        for _ in 0..2 {
            let Ok(Incoming::Joined(got)) = words.text(first) else {
                panic!("not taken for a beginning");
            };
            assert_eq!(got, joined);
        }
        let other = r#"{"stdout":7,"stdin":3,"started_at":"2026-06-09T11:30:18Z"}"#;
        let Err(error) = words.text(other) else {
            panic!("taken for the same process");
        };
        assert_eq!(error.code(), ErrorCode::ManagedProcessConflict);
    }

    #[test]
    fn an_attachment_goes_on_where_it_was() {
        assert_eq!(
            words().again([9, 0]).as_str(),
            "/v1/sessions/s/managed-process/default/ws?since=9"
        );
    }
}
