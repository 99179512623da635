//! Relays stdin and stdout of a managed process as lines, one per text frame. Binary frames are ignored.

use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::ws::Message;
use boxwood_session::{Attachment, SessionError};

use crate::http::error::{ApiError, ApiResult};
use crate::http::websocket::relay::{AttachedProgram, OutputFrame};
use crate::http::websocket::stdin::{Progress, StdinSender};
use crate::http::websocket::{CloseReason, LastSeen};

pub(super) struct LineAttachment {
    attachment: Attachment,
    /// Appended to each frame.
    line_end: &'static str,
    /// A line has been read whose frame is not sent yet.
    has_unsent: AtomicBool,
}

impl LineAttachment {
    pub(super) fn new(attachment: Attachment, line_end: &'static str) -> Self {
        Self {
            attachment,
            line_end,
            has_unsent: AtomicBool::new(false),
        }
    }
}

impl Drop for LineAttachment {
    fn drop(&mut self) {
        // The next client gets the line.
        if *self.has_unsent.get_mut() {
            self.attachment.put_back();
        }
    }
}

impl AttachedProgram for LineAttachment {
    /// Only called for binary frames.
    async fn accept_stdin(&self, _: &[u8]) -> Result<u64, SessionError> {
        Ok(0)
    }

    fn close_stdin(&self) {}

    async fn next_output(&self) -> OutputFrame {
        let Some(line) = self.attachment.next_line().await else {
            return OutputFrame::Last(None, CloseReason::Normal);
        };
        self.has_unsent.store(true, Ordering::Relaxed);
        let mut text = String::from_utf8_lossy(&line).into_owned();
        text.push_str(self.line_end);
        OutputFrame::Frame(Message::text(text))
    }

    fn output_sent(&self) {
        self.has_unsent.store(false, Ordering::Relaxed);
    }

    /// Sends the line without the queue of [`StdinSender`], so that it is not lost if the client disconnects.
    async fn handle(&self, text: &str, _: &StdinSender, last_seen: &LastSeen) -> ApiResult<()> {
        let line = [text, "\n"].concat();
        let sending = self.attachment.send(line.as_bytes());
        if last_seen.while_blocked(sending).await.is_err() {
            tracing::debug!("discarding a line: stdin of the process is closed");
        }
        Ok(())
    }

    fn error_frame(&self, error: ApiError) -> Message {
        super::relay_bytes::error_frame(error)
    }

    fn progress_frame(&self, _: Progress) -> Option<Message> {
        None
    }
}
