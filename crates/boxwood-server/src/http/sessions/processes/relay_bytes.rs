//! Relays stdin and stdout of a managed process as bytes, resumable from an offset.

use std::collections::VecDeque;

use axum::extract::ws::{Message, WebSocket};
use boxwood_api::{RelayControl, RelayNews};
use boxwood_session::{Attachable, Attachment, SessionError, Since};
use futures_util::{SinkExt as _, StreamExt as _};

use super::relay::wait_for_turn;
use crate::http::error::{ApiError, ApiResult};
use crate::http::websocket::relay::{AttachedProgram, OutputFrame, Relay};
use crate::http::websocket::stdin::{Progress, StdinSender};
use crate::http::websocket::{self, CloseReason, Heartbeat, LastSeen};
use crate::http::{App, json};

/// Maximum output per frame.
const CHUNK_BYTES: usize = 64 * 1024;

pub(crate) async fn relay(socket: WebSocket, attachable: Attachable, since: Since, app: &App) {
    let (mut sink, mut stream) = socket.split();
    let mut heartbeat = Heartbeat::new(app.ping_every());
    let mut early = VecDeque::new();
    let turn = Box::pin(attachable.attach_at(since));
    let waiting = wait_for_turn(&mut sink, &mut stream, &mut heartbeat, &mut early, turn);
    let turn = tokio::select! {
        turn = waiting => turn,
        () = websocket::handover_started(&app.handing_over) => {
            websocket::close_with(sink, stream, CloseReason::HandingOver).await;
            return;
        }
    };
    let reason = match turn {
        Some(Ok(attachment)) => {
            let joined = RelayNews::Joined {
                stdout: attachment.stdout_offset(),
                stdin: attachment.stdin_accepted(),
                started_at: attachment.started_at(),
            };
            let relay = Relay {
                sink: &mut sink,
                stream: &mut stream,
                heartbeat,
                first_frame: text_frame(&joined),
                given_stdin: None,
                early,
            };
            tokio::select! {
                reason = relay.run(&attachment) => reason,
                () = websocket::handover_started(&app.handing_over) => CloseReason::HandingOver,
            }
        }
        Some(Err(error)) => {
            // Fails if the client is gone, which closing detects as well.
            let _ = sink.send(error_frame(error.into())).await;
            CloseReason::Normal
        }
        None => CloseReason::Normal,
    };
    websocket::close_with(sink, stream, reason).await;
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
        OutputFrame::Last(exited, CloseReason::Normal)
    }

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

fn text_frame(news: &RelayNews) -> Message {
    // Cannot fail for these types; clients ignore an empty object.
    Message::text(serde_json::to_string(news).unwrap_or_else(|_| "{}".to_owned()))
}

fn error_frame(error: ApiError) -> Message {
    text_frame(&RelayNews::Error {
        error: error.detail(),
    })
}
