//! The WebSocket session of a running command: input, signals and resizes in; output and exit out.

use std::collections::VecDeque;

use axum::extract::ws::{Message, WebSocket};
use boxwood_api::{ErrorCode, ExecInput, ExecOutput, STDERR_CHANNEL, STDOUT_CHANNEL};
use boxwood_session::{ExecEvent, SessionError, StreamedExec, TerminalSize};
use bytes::{BufMut as _, BytesMut};
use futures_util::stream::{SplitSink, SplitStream};

use super::start::Started;
use crate::http::error::{ApiError, ApiResult};
use crate::http::websocket::relay::{AttachedProgram, OutputFrame, Relay};
use crate::http::websocket::stdin::{Progress, StdinSender};
use crate::http::websocket::{self, CloseReason, LastSeen, text_frame};
use crate::http::{App, json};

/// Runs until the command exits or the client disconnects.
pub(crate) async fn follow(
    sink: &mut SplitSink<WebSocket, Message>,
    stream: &mut SplitStream<WebSocket>,
    started: Started,
    app: &App,
) -> CloseReason {
    let relay = Relay {
        sink,
        stream,
        heartbeat: websocket::heartbeat(app.ping_every()),
        first_frame: Some(text_frame(&started.first_frame)),
        request_stdin: started.request_stdin,
        early: VecDeque::new(),
    };
    let program = AttachedExec {
        exec: started.exec,
        resumable: started.resumable,
    };
    tokio::select! {
        reason = relay.run(&program) => reason,
        () = app.handover() => CloseReason::HandingOver,
    }
}

struct AttachedExec {
    exec: StreamedExec,
    resumable: bool,
}

impl AttachedProgram for AttachedExec {
    async fn accept_stdin(&self, bytes: &[u8]) -> Result<u64, SessionError> {
        self.exec.accept_stdin(bytes).await
    }

    fn close_stdin(&self) {
        self.exec.close_stdin();
    }

    async fn next_output(&self) -> OutputFrame {
        match self.exec.next().await {
            Some(ExecEvent::Stdout(bytes)) => {
                OutputFrame::Frame(output_frame(STDOUT_CHANNEL, &bytes))
            }
            Some(ExecEvent::Stderr(bytes)) => {
                OutputFrame::Frame(output_frame(STDERR_CHANNEL, &bytes))
            }
            Some(ExecEvent::Exited(exit)) => {
                let exit = text_frame(&ExecOutput::Exit(exit));
                OutputFrame::Last(Some(exit), CloseReason::Normal)
            }
            None => OutputFrame::Last(Some(error_frame(superseded())), CloseReason::Superseded),
        }
    }

    fn output_sent(&self) {}

    async fn handle(&self, text: &str, input: &StdinSender, last_seen: &LastSeen) -> ApiResult<()> {
        match json::parse(text.as_bytes())? {
            ExecInput::Start { .. } => {
                return Err(ApiError::validation("the command has already been started"));
            }
            ExecInput::Stdin { data } => input.send_data(data.into(), last_seen).await,
            ExecInput::CloseStdin => input.close(),
            ExecInput::Ack { stdout, stderr } => self.exec.acknowledge(stdout, stderr),
            ExecInput::Signal { signal } => self.exec.signal(signal.number()).await?,
            ExecInput::Resize { rows, cols } => self.exec.resize(terminal(rows, cols)?)?,
        }
        Ok(())
    }

    fn error_frame(&self, error: ApiError) -> Message {
        error_frame(error)
    }

    fn progress_frame(&self, progress: Progress) -> Option<Message> {
        self.resumable.then(|| {
            text_frame(&match progress {
                Progress::Accepted(stdin) => ExecOutput::Accepted { stdin },
                Progress::Closed => ExecOutput::StdinClosed,
            })
        })
    }
}

fn superseded() -> ApiError {
    ApiError::new(
        ErrorCode::SessionConflict,
        "another client has attached to the command",
    )
}

pub(crate) fn terminal(rows: u16, cols: u16) -> ApiResult<TerminalSize> {
    if rows == 0 || cols == 0 {
        return Err(ApiError::validation("rows and cols must be at least 1"));
    }
    Ok(TerminalSize { rows, cols })
}

fn output_frame(channel: u8, bytes: &[u8]) -> Message {
    let mut frame = BytesMut::with_capacity(bytes.len() + 1);
    frame.put_u8(channel);
    frame.extend_from_slice(bytes);
    Message::Binary(frame.freeze())
}

pub(crate) fn error_frame(error: ApiError) -> Message {
    text_frame(&ExecOutput::Error {
        error: error.detail(),
    })
}
