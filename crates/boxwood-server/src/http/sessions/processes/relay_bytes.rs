//! Relays stdin and stdout of a managed process as bytes, resumable from an offset.

use axum::extract::ws::Message;
use boxwood_api::{RelayControl, RelayNews};
use boxwood_session::{Attachment, SessionError};

use crate::http::error::{ApiError, ApiResult};
use crate::http::json;
use crate::http::websocket::relay::{AttachedProgram, OutputFrame};
use crate::http::websocket::stdin::{Progress, StdinSender};
use crate::http::websocket::{CloseReason, LastSeen, text_frame};

/// Maximum output per frame.
const CHUNK_BYTES: usize = 64 * 1024;

/// The first frame of an attached client.
pub(super) fn joined(attachment: &Attachment) -> Message {
    text_frame(&RelayNews::Joined {
        stdout: attachment.stdout_offset(),
        stdin: attachment.stdin_accepted(),
        started_at: attachment.started_at(),
    })
}

impl AttachedProgram for Attachment {
    async fn accept_stdin(&self, bytes: &[u8]) -> Result<u64, SessionError> {
        self.accept(bytes).await
    }

    fn close_stdin(&self) {
        Attachment::close_stdin(self);
    }

    async fn next_output(&self) -> OutputFrame {
        if let Some((_, bytes)) = self.next_bytes(CHUNK_BYTES).await {
            return OutputFrame::Frame(Message::Binary(bytes));
        }
        let exited = self.exited().await;
        let exited = text_frame(&RelayNews::Exited { exited });
        OutputFrame::Last(Some(exited), CloseReason::Normal)
    }

    fn output_sent(&self) {}

    async fn handle(&self, text: &str, input: &StdinSender, _: &LastSeen) -> ApiResult<()> {
        match json::parse(text.as_bytes())? {
            RelayControl::CloseStdin => input.close(),
            RelayControl::Ack { stdout } => self.acknowledge(stdout),
        }
        Ok(())
    }

    fn error_frame(&self, error: ApiError) -> Message {
        error_frame(error)
    }

    fn progress_frame(&self, progress: Progress) -> Option<Message> {
        Some(text_frame(&match progress {
            Progress::Accepted(stdin) => RelayNews::Accepted { stdin },
            Progress::Closed => RelayNews::StdinClosed { stdin_closed: true },
        }))
    }
}

pub(super) fn error_frame(error: ApiError) -> Message {
    text_frame(&RelayNews::Error {
        error: error.detail(),
    })
}
