//! Where live commands over a WebSocket begin: with a start frame, or where an earlier client was.
//!
//! Comes in: an upgrade, and what to run or to go on with. Goes out: a conversation. Never here: how
//! the command runs.
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

use super::error::{ApiError, ApiResult};
use super::exec_follow::{Started, error_frame, follow, terminal};
use super::ids::{InExec, InSession, Params};
use super::socket::{self, Goodbye};
use super::{App, json, sessions, since, within};

/// For a client to say what it wants.
const START_WITHIN: Duration = Duration::from_secs(30);
const MAX_ARGV_BYTES: usize = 1024 * 1024;

#[utoipa::path(get, path = "/v1/sessions/{session_id}/exec/ws", tag = "live",
    params(("session_id" = String, Path,)),
    responses(
        (status = 101, description = "A live command; frames are `ExecInput` and `ExecOutput`", body = ExecOutput),
        (status = 400, body = ErrorBody, description = "Not an upgrade to WebSocket")))]
pub(super) async fn exec(
    State(app): State<Arc<App>>,
    session: InSession,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> ApiResult<Response> {
    let (upgrade, permit) = socket::accept(&app, upgrade)?;
    Ok(upgrade.on_upgrade(async move |socket| {
        converse(socket, &app, session).await;
        drop(permit);
    }))
}

async fn converse(socket: WebSocket, app: &App, session: InSession) {
    let (mut sink, mut stream) = socket.split();
    let goodbye = match begin(&mut stream, app, session).await {
        Ok(Some(started)) => follow(&mut sink, &mut stream, started, app).await,
        Ok(None) => Goodbye::Done,
        Err(error) => {
            // The client may be gone, which the goodbye will notice too.
            let _ = sink.send(error_frame(error)).await;
            Goodbye::Done
        }
    };
    socket::close_with(sink, stream, goodbye).await;
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct From {
    /// An offset into all of its stdout, or `now` for what nobody has taken yet.
    #[serde(default)]
    stdout: Option<String>,
    /// The same for its stderr.
    #[serde(default)]
    stderr: Option<String>,
}

impl From {
    pub(super) fn read(&self) -> ApiResult<(Since, Since)> {
        let read = |what, text: &Option<String>| match text {
            Some(text) => since::read(what, text),
            None => Ok(Since::Now),
        };
        Ok((read("stdout", &self.stdout)?, read("stderr", &self.stderr)?))
    }
}

#[utoipa::path(get, path = "/v1/sessions/{session_id}/execs/{exec_id}/ws", tag = "execs", operation_id = "resume_exec",
    params(("session_id" = String, Path,), ("exec_id" = u64, Path,), From),
    responses(
        (status = 101, description = "A command that was started with `resumable`, from there on; \
            frames are `ExecInput` and `ExecOutput`", body = ExecOutput),
        (status = 400, body = ErrorBody, description = "Not an upgrade to WebSocket, or an offset makes no sense"),
        (status = 404, body = ErrorBody, description = "No such session, or no such command any more"),
        (status = 410, body = ErrorBody, description = "The output is no longer kept: `replay_gone`")))]
pub(super) async fn resume(
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
    let (upgrade, permit) = socket::accept(&app, upgrade)?;
    // Only now: whoever follows it so far is sent away by this.
    let live = sessions.resume_exec(&id, exec_id, stdout, stderr)?;
    let hello = ExecOutput::Resumed {
        session_id: id,
        exec_id,
        stdout: live.stdout_offset(),
        stderr: live.stderr_offset(),
        stdin: live.stdin_accepted(),
    };
    let started = Started {
        live,
        hello,
        given_stdin: None,
        resumable: true,
    };
    Ok(upgrade.on_upgrade(async move |socket| {
        let (mut sink, mut stream) = socket.split();
        let goodbye = follow(&mut sink, &mut stream, started, &app).await;
        socket::close_with(sink, stream, goodbye).await;
        drop(permit);
    }))
}

/// `None` when the client left without a word.
async fn begin(
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
                "no start frame came within 30 s",
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
            "the first frame must be of type start",
        ));
    };
    let wish = Wish {
        argv,
        tty,
        stdin,
        resume: if resumable {
            Resume::Allowed
        } else {
            Resume::Never
        },
    };
    start(app, session, *spec, wish).await.map(Some)
}

/// What a start frame says beside the spec.
struct Wish {
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
            // Answered as what it is: not a start frame.
            Message::Binary(_) => return Some(String::from("{}")),
            Message::Close(_) => return None,
        }
    }
}

async fn start(
    app: &App,
    InSession { id, sessions }: InSession,
    spec: SpecRequest,
    wish: Wish,
) -> ApiResult<Started> {
    let argv = wish.argv.map(checked_argv).transpose()?;
    let admission = match &argv {
        Some(_) => sessions::judge(app, id.clone(), spec).await?,
        None => sessions::judge_command(app, id.clone(), spec).await?,
    };
    let given_stdin = admission.exec.stdin().map(str::to_owned);
    let streams = match wish.tty {
        Some(size) => Stdio::Terminal(terminal(size.rows, size.cols)?),
        None if wish.stdin || given_stdin.is_some() => Stdio::Pipes,
        None => Stdio::Output,
    };
    let notices = admission.exec.notices().to_vec();
    let timeout = admission.exec.timeout();
    let resume = wish.resume;
    let live = if let Some(argv) = argv {
        let starting = sessions.stream_argv(admission, argv, streams, resume);
        within(app.start_patience, starting).await?
    } else {
        let starting = sessions.stream(admission, streams, resume);
        within(app.start_patience, starting).await?
    };
    let resumable = resume == Resume::Allowed;
    let hello = ExecOutput::Started {
        session_id: id,
        exec_id: live.exec_id(),
        notices,
        stdin: live.stdin_accepted().filter(|_| resumable),
        timeout_sec: Some(timeout.as_secs()),
    };
    Ok(Started {
        live,
        hello,
        // A client that streams input sends all of it itself.
        given_stdin: given_stdin.filter(|_| !wish.stdin && wish.tty.is_none()),
        resumable,
    })
}

fn checked_argv(argv: Vec<String>) -> ApiResult<Vec<String>> {
    if argv.first().is_none_or(String::is_empty) {
        return Err(ApiError::validation("argv must name a program"));
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
