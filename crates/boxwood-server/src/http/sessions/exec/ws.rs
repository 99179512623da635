//! WebSocket routes that start a command or resume one.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::extract::ws::{Message, WebSocket};
use boxwood_api::{ErrorBody, ErrorCode, ExecInput, ExecOutput};
use boxwood_session::Since;
use futures_util::stream::SplitStream;
use futures_util::{SinkExt as _, StreamExt as _};
use serde::Deserialize;
use utoipa::IntoParams;

use super::start::{StartOptions, Started};
use super::ws_session::{error_frame, follow, terminal};
use crate::http::error::{ApiError, ApiResult};
use crate::http::params::{InExec, InSession, Params};
use crate::http::websocket::{self, CloseReason, Upgrade};
use crate::http::{App, json, params};

/// Timeout for the start frame.
const START_FRAME_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_ARGV_BYTES: usize = 1024 * 1024;

#[utoipa::path(get, path = "/v1/sessions/{session_id}/exec/ws", tag = "live",
    responses((status = 101, description = "A live command; frames are `ExecInput` and `ExecOutput`", body = ExecOutput)))]
pub(crate) async fn exec(
    State(app): State<Arc<App>>,
    session: InSession,
    upgrade: Upgrade,
) -> ApiResult {
    let accepted = upgrade.accept(&app)?;
    Ok(accepted.serve(async move |socket| serve(socket, &app, session).await))
}

async fn serve(socket: WebSocket, app: &App, session: InSession) {
    let (mut sink, mut stream) = socket.split();
    let reason = match receive_start(&mut stream, app, session).await {
        Ok(Some(started)) => follow(&mut sink, &mut stream, started, app).await,
        Ok(None) => CloseReason::Normal,
        Err(error) => {
            // Fails if the client is gone, which closing detects as well.
            let _ = sink.send(error_frame(error)).await;
            CloseReason::Normal
        }
    };
    websocket::close_with(sink, stream, reason).await;
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ResumeOffsets {
    /// Offset in the command's stdout, or `now` for output that was not delivered yet.
    stdout: Option<String>,
    /// Offset in the command's stderr, or `now`.
    stderr: Option<String>,
}

impl ResumeOffsets {
    pub(crate) fn read(&self) -> ApiResult<(Since, Since)> {
        let read = |name, text: &Option<String>| match text {
            Some(text) => params::offset(name, text),
            None => Ok(Since::Now),
        };
        Ok((read("stdout", &self.stdout)?, read("stderr", &self.stderr)?))
    }
}

#[utoipa::path(get, path = "/v1/sessions/{session_id}/execs/{exec_id}/ws", tag = "execs", operation_id = "resume_exec",
    params(ResumeOffsets),
    responses(
        (status = 101, description = "A command started with `resumable`, from the offsets on; \
            frames are `ExecInput` and `ExecOutput`", body = ExecOutput),
        (status = 410, body = ErrorBody, description = "The output is no longer kept: `replay_gone`")))]
pub(crate) async fn resume(
    State(app): State<Arc<App>>,
    InExec(sessions, id, exec_id): InExec,
    Params(from): Params<ResumeOffsets>,
    upgrade: Upgrade,
) -> ApiResult {
    let since = from.read()?;
    let accepted = upgrade.accept(&app)?;
    // Last, because it disconnects the client that is attached now.
    let started = Started::resume(&sessions, id, exec_id, since)?;
    Ok(accepted.serve(async move |socket| {
        let (mut sink, mut stream) = socket.split();
        let reason = follow(&mut sink, &mut stream, started, &app).await;
        websocket::close_with(sink, stream, reason).await;
    }))
}

/// `None` if the client disconnected before the start frame.
async fn receive_start(
    stream: &mut SplitStream<WebSocket>,
    app: &App,
    session: InSession,
) -> ApiResult<Option<Started>> {
    let first = tokio::time::timeout(START_FRAME_TIMEOUT, first_text(stream)).await;
    let timed_out = |_| ApiError::new(ErrorCode::Timeout, "no start frame within 30 s");
    let Some(text) = first.map_err(timed_out)? else {
        return Ok(None);
    };
    match json::parse(text.as_bytes())? {
        ExecInput::Start {
            spec,
            argv,
            tty,
            stdin,
            resumable,
        } => {
            let options = StartOptions {
                argv: argv.map(checked_argv).transpose()?,
                terminal: tty.map(|size| terminal(size.rows, size.cols)).transpose()?,
                stdin,
                resumable,
            };
            Started::start(app, session, *spec, options).await.map(Some)
        }
        _ => Err(ApiError::validation(
            "the first frame must be of type `start`",
        )),
    }
}

async fn first_text(stream: &mut SplitStream<WebSocket>) -> Option<String> {
    loop {
        match stream.next().await?.ok()? {
            Message::Text(text) => return Some(text.as_str().to_owned()),
            Message::Ping(_) | Message::Pong(_) => {}
            // Rejected as an invalid start frame.
            Message::Binary(_) => return Some(String::from("{}")),
            Message::Close(_) => return None,
        }
    }
}

fn checked_argv(argv: Vec<String>) -> ApiResult<Vec<String>> {
    if argv.first().is_none_or(String::is_empty) {
        return Err(ApiError::validation(
            "argv must not be empty: its first element is the program",
        ));
    }
    if argv.iter().any(|argument| argument.contains('\0')) {
        return Err(ApiError::validation("argv must not contain NUL bytes"));
    }
    if argv.iter().map(String::len).sum::<usize>() > MAX_ARGV_BYTES {
        return Err(ApiError::validation(format!(
            "argv must be at most {MAX_ARGV_BYTES} bytes"
        )));
    }
    Ok(argv)
}
