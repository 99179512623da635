//! WebSocket routes that start a command or resume one.
#![expect(
    unused_qualifications,
    reason = "the expansion of `utoipa::path` qualifies the parameter types"
)]

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use boxwood_api::{ErrorBody, ErrorCode, ExecInput, ExecOutput, SpecRequest, TtySize};
use boxwood_session::{Resume, Since, Stdio};
use futures_util::stream::SplitStream;
use futures_util::{SinkExt as _, StreamExt as _};
use serde::Deserialize;
use utoipa::IntoParams;

use super::ws_session::{Started, error_frame, follow, terminal};
use crate::http::error::{ApiError, ApiResult};
use crate::http::params::{InExec, InSession, Params};
use crate::http::websocket::{self, CloseReason};
use crate::http::{App, json, params, sessions, with_timeout};

/// Timeout for the start frame.
const START_WITHIN: Duration = Duration::from_secs(30);
const MAX_ARGV_BYTES: usize = 1024 * 1024;

#[utoipa::path(get, path = "/v1/sessions/{session_id}/exec/ws", tag = "live",
    params(("session_id" = String, Path,)),
    responses(
        (status = 101, description = "A live command; frames are `ExecInput` and `ExecOutput`", body = ExecOutput),
        (status = 400, body = ErrorBody, description = "Not a WebSocket upgrade")))]
pub(crate) async fn exec(
    State(app): State<Arc<App>>,
    session: InSession,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> ApiResult<Response> {
    let (upgrade, permit) = websocket::accept(&app, upgrade)?;
    Ok(upgrade.on_upgrade(async move |socket| {
        serve(socket, &app, session).await;
        drop(permit);
    }))
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
pub(crate) struct From {
    /// Offset in the command's stdout, or `now` for output that was not delivered yet.
    #[serde(default)]
    stdout: Option<String>,
    /// Offset in the command's stderr, or `now`.
    #[serde(default)]
    stderr: Option<String>,
}

impl From {
    pub(crate) fn read(&self) -> ApiResult<(Since, Since)> {
        let read = |what, text: &Option<String>| match text {
            Some(text) => params::offset(what, text),
            None => Ok(Since::Now),
        };
        Ok((read("stdout", &self.stdout)?, read("stderr", &self.stderr)?))
    }
}

#[utoipa::path(get, path = "/v1/sessions/{session_id}/execs/{exec_id}/ws", tag = "execs", operation_id = "resume_exec",
    params(("session_id" = String, Path,), ("exec_id" = u64, Path,), From),
    responses(
        (status = 101, description = "A command started with `resumable`, from the offsets on; \
            frames are `ExecInput` and `ExecOutput`", body = ExecOutput),
        (status = 400, body = ErrorBody, description = "Not a WebSocket upgrade, or an offset is invalid"),
        (status = 404, body = ErrorBody, description = "Unknown session or command"),
        (status = 410, body = ErrorBody, description = "The output is no longer kept: `replay_gone`")))]
pub(crate) async fn resume(
    State(app): State<Arc<App>>,
    InExec {
        id,
        exec_id,
        sessions,
    }: InExec,
    Params(from): Params<From>,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> ApiResult<Response> {
    let (stdout, stderr) = from.read()?;
    let (upgrade, permit) = websocket::accept(&app, upgrade)?;
    // Last, because it disconnects the client that is attached now.
    let exec = sessions.resume_exec(&id, exec_id, stdout, stderr)?;
    let first_frame = ExecOutput::Resumed {
        session_id: id,
        exec_id,
        stdout: exec.stdout_offset(),
        stderr: exec.stderr_offset(),
        stdin: exec.stdin_accepted(),
    };
    let started = Started {
        exec,
        first_frame,
        given_stdin: None,
        resumable: true,
    };
    Ok(upgrade.on_upgrade(async move |socket| {
        let (mut sink, mut stream) = socket.split();
        let reason = follow(&mut sink, &mut stream, started, &app).await;
        websocket::close_with(sink, stream, reason).await;
        drop(permit);
    }))
}

/// `None` if the client disconnected before the start frame.
async fn receive_start(
    stream: &mut SplitStream<WebSocket>,
    app: &App,
    session: InSession,
) -> ApiResult<Option<Started>> {
    let first = tokio::time::timeout(START_WITHIN, first_text(stream)).await;
    let text = match first {
        Ok(Some(text)) => text,
        Ok(None) => return Ok(None),
        Err(_) => {
            return Err(ApiError::new(
                ErrorCode::Timeout,
                "no start frame within 30 s",
            ));
        }
    };
    let ExecInput::Start {
        spec,
        argv,
        tty,
        stdin,
        resumable,
    } = json::parse(text.as_bytes())?
    else {
        return Err(ApiError::validation(
            "the first frame must be of type `start`",
        ));
    };
    let options = StartOptions {
        argv,
        tty,
        stdin,
        resume: if resumable {
            Resume::Allowed
        } else {
            Resume::Never
        },
    };
    start(app, session, *spec, options).await.map(Some)
}

/// The fields of a start frame besides the spec.
struct StartOptions {
    argv: Option<Vec<String>>,
    tty: Option<TtySize>,
    stdin: bool,
    resume: Resume,
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

async fn start(
    app: &App,
    InSession { id, sessions }: InSession,
    spec: SpecRequest,
    options: StartOptions,
) -> ApiResult<Started> {
    let argv = options.argv.map(checked_argv).transpose()?;
    let admission = match &argv {
        Some(_) => sessions::judge(app, id.clone(), spec).await?,
        None => sessions::judge_command(app, id.clone(), spec).await?,
    };
    let given_stdin = admission.exec.stdin().map(str::to_owned);
    let streams = match options.tty {
        Some(size) => Stdio::Terminal(terminal(size.rows, size.cols)?),
        None if options.stdin || given_stdin.is_some() => Stdio::Pipes,
        None => Stdio::Output,
    };
    let notices = admission.exec.notices().to_vec();
    let timeout = admission.exec.timeout();
    let resume = options.resume;
    let exec = if let Some(argv) = argv {
        let starting = sessions.stream_argv(admission, argv, streams, resume);
        with_timeout(app.start_timeout, starting).await?
    } else {
        let starting = sessions.stream(admission, streams, resume);
        with_timeout(app.start_timeout, starting).await?
    };
    let resumable = resume == Resume::Allowed;
    let first_frame = ExecOutput::Started {
        session_id: id,
        exec_id: exec.exec_id(),
        notices,
        stdin: exec.stdin_accepted().filter(|_| resumable),
        timeout_sec: Some(timeout.as_secs()),
    };
    Ok(Started {
        exec,
        first_frame,
        // With `stdin: true` the client sends the input itself.
        given_stdin: given_stdin.filter(|_| !options.stdin && options.tty.is_none()),
        resumable,
    })
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
