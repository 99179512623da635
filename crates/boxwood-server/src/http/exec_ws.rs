//! A live command over a WebSocket.
//!
//! Comes in: a start frame, then input, signals and sizes. Goes out: output as it is written and an
//! exit frame. Never here: how the command runs. Each direction waits on its own, so that a command
//! that does not read can still be interrupted.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use boxwood_api::{
    ErrorBody, ErrorCode, ExecExit, ExecInput, ExecOutput, STDERR_CHANNEL, STDOUT_CHANNEL,
    SessionId, SpecRequest, TtySize,
};
use boxwood_session::{LiveControl, LiveEvent, LiveExec, Stdio, TerminalSize};
use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::{Semaphore, mpsc};

use super::error::{ApiError, ApiResult};
use super::ids::InSession;
use super::socket::{self, Heard, Heartbeat};
use super::{App, json, sessions, within};

/// For a client to say what it wants.
const START_WITHIN: Duration = Duration::from_secs(30);
/// Input under way to a command that is slow to read; beyond it the client waits.
const INPUT_BYTES: usize = 1024 * 1024;
const MAX_ARGV_BYTES: usize = 1024 * 1024;

#[utoipa::path(get, path = "/v1/sessions/{session_id}/exec/ws", tag = "live",
    params(("session_id" = String, Path,)),
    responses(
        (status = 101, description = "A live command; frames are `ExecInput` and `ExecOutput`", body = ExecOutput),
        (status = 400, body = ErrorBody, description = "Not an upgrade to WebSocket")))]
pub(super) async fn exec(
    State(app): State<Arc<App>>,
    InSession(id): InSession,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> ApiResult<Response> {
    let (upgrade, permit) = socket::accept(&app, upgrade)?;
    Ok(upgrade.on_upgrade(async move |socket| {
        converse(socket, app, id).await;
        drop(permit);
    }))
}

async fn converse(socket: WebSocket, app: Arc<App>, id: SessionId) {
    let (mut sink, mut stream) = socket.split();
    match begin(&mut stream, &app, id).await {
        Ok(Some(started)) => {
            follow(&mut sink, &mut stream, started, app.ping_every()).await;
        }
        Ok(None) => {}
        Err(error) => {
            let frame = error_frame(error);
            // The client may be gone, which the goodbye will notice too.
            let _ = sink.send(frame).await;
        }
    }
    socket::close(sink, stream).await;
}

struct Started {
    live: LiveExec,
    hello: ExecOutput,
    /// Standard input that came with the request, and is all there will be.
    given_stdin: Option<String>,
}

/// `None` when the client left without a word.
async fn begin(
    stream: &mut SplitStream<WebSocket>,
    app: &App,
    id: SessionId,
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
        ..
    } = json::parse(text.as_bytes())?
    else {
        return Err(ApiError::validation(
            "the first frame must be of type start",
        ));
    };
    start(app, id, *spec, argv, tty, stdin).await.map(Some)
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
    id: SessionId,
    spec: SpecRequest,
    argv: Option<Vec<String>>,
    tty: Option<TtySize>,
    stdin: bool,
) -> ApiResult<Started> {
    let argv = argv.map(checked_argv).transpose()?;
    let admission = match &argv {
        Some(_) => sessions::judge(app, id.clone(), spec).await?,
        None => sessions::judge_command(app, id.clone(), spec).await?,
    };
    let given_stdin = admission.exec.stdin().map(str::to_owned);
    let streams = match tty {
        Some(size) => Stdio::Terminal(terminal(size.rows, size.cols)?),
        None if stdin || given_stdin.is_some() => Stdio::Pipes,
        None => Stdio::Output,
    };
    let notices = admission.exec.notices().to_vec();
    let live = match argv {
        Some(argv) => {
            within(
                app.start_patience,
                app.sessions.stream_argv(admission, argv, streams),
            )
            .await?
        }
        None => within(app.start_patience, app.sessions.stream(admission, streams)).await?,
    };
    let hello = ExecOutput::Started {
        session_id: id,
        exec_id: live.exec_id(),
        notices,
    };
    Ok(Started {
        live,
        hello,
        // A client that streams input sends all of it itself.
        given_stdin: given_stdin.filter(|_| !stdin && tty.is_none()),
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

fn terminal(rows: u16, cols: u16) -> ApiResult<TerminalSize> {
    if rows == 0 || cols == 0 {
        return Err(ApiError::validation(
            "a terminal has at least one row and one column",
        ));
    }
    Ok(TerminalSize { rows, cols })
}

async fn follow(
    sink: &mut SplitSink<WebSocket, Message>,
    stream: &mut SplitStream<WebSocket>,
    started: Started,
    every: Duration,
) {
    let Started {
        live,
        hello,
        given_stdin,
    } = started;
    let (mut control, mut events) = live.split();
    let (input, inputs) = mpsc::unbounded_channel();
    let room = Semaphore::new(INPUT_BYTES);
    if let Some(text) = given_stdin {
        // The receiver lives as long as this function.
        let _ = input.send(Input::Given(text.into()));
        let _ = input.send(Input::Close);
    }
    let pump = pump(control.take_stdin(), inputs, &room);
    let mut heartbeat = Heartbeat::new(every);
    let heard = heartbeat.heard();
    let (reply, mut replies) = mpsc::channel(1);
    let inward = listen(stream, &mut control, &input, &room, &heard, &reply);
    let outward = async {
        sink.send(text_frame(&hello)).await.ok()?;
        loop {
            tokio::select! {
                biased;
                event = events.recv() => match event? {
                    LiveEvent::Stdout(bytes) => {
                        sink.send(output_frame(STDOUT_CHANNEL, &bytes)).await.ok()?;
                    }
                    LiveEvent::Stderr(bytes) => {
                        sink.send(output_frame(STDERR_CHANNEL, &bytes)).await.ok()?;
                    }
                    LiveEvent::Exited { exit_code, status, reason, duration_ms } => {
                        let exit = ExecOutput::Exit(ExecExit { exit_code, status, reason, duration_ms });
                        return sink.send(text_frame(&exit)).await.ok();
                    }
                },
                Some(error) = replies.recv() => sink.send(error_frame(error)).await.ok()?,
                () = heartbeat.tick() => sink.send(Message::Ping(Bytes::new())).await.ok()?,
            }
        }
    };
    // Whichever way this ends, dropping `events` ends the command if it still runs.
    tokio::select! {
        _ = outward => {}
        () = inward => {}
        () = heard.silence() => tracing::debug!("a client stopped answering; its command is ended"),
        () = pump => {}
    }
}

enum Input {
    /// Counted against the room until it is written.
    Data(Bytes),
    /// Was bounded when it came.
    Given(Bytes),
    Close,
}

/// Carries input to the command, and never ends before it: the command's end is the outward half's.
async fn pump(
    stdin: Option<Box<dyn boxwood_session::Input>>,
    mut inputs: mpsc::UnboundedReceiver<Input>,
    room: &Semaphore,
) {
    let mut stdin = stdin;
    while let Some(input) = inputs.recv().await {
        let (bytes, counted) = match input {
            Input::Data(bytes) => {
                let counted = permits(bytes.len());
                (bytes, counted)
            }
            Input::Given(bytes) => (bytes, 0),
            Input::Close => {
                stdin = None;
                continue;
            }
        };
        if let Some(writer) = &mut stdin {
            let written = async {
                writer.write_all(&bytes).await?;
                writer.flush().await
            };
            if written.await.is_err() {
                // The command has closed its input; what else comes for it is let go.
                stdin = None;
            }
        }
        room.add_permits(counted as usize);
    }
    std::future::pending::<()>().await;
}

fn permits(bytes: usize) -> u32 {
    u32::try_from(bytes.min(INPUT_BYTES)).unwrap_or(u32::MAX)
}

/// Reads frames until the client goes.
async fn listen(
    stream: &mut SplitStream<WebSocket>,
    control: &mut LiveControl,
    input: &mpsc::UnboundedSender<Input>,
    room: &Semaphore,
    heard: &Heard,
    reply: &mpsc::Sender<ApiError>,
) {
    while let Some(Ok(message)) = stream.next().await {
        heard.now();
        let outcome = match message {
            Message::Binary(bytes) => queue(bytes, input, room, heard).await,
            Message::Text(text) => match json::parse(text.as_str().as_bytes()) {
                Ok(frame) => obey(frame, control, input, room, heard).await,
                Err(error) => Err(error),
            },
            Message::Close(_) => return,
            Message::Ping(_) | Message::Pong(_) => Ok(()),
        };
        if let Err(error) = outcome {
            // Fails only when the outward half has ended, and then so does this one.
            let _ = heard.while_deaf(reply.send(error)).await;
        }
    }
}

async fn queue(
    bytes: Bytes,
    input: &mpsc::UnboundedSender<Input>,
    room: &Semaphore,
    heard: &Heard,
) -> ApiResult<()> {
    // The channel is bounded by this: waiting here is what makes the client wait.
    if let Ok(permit) = heard
        .while_deaf(room.acquire_many(permits(bytes.len())))
        .await
    {
        permit.forget();
        let _ = input.send(Input::Data(bytes));
    }
    Ok(())
}

async fn obey(
    frame: ExecInput,
    control: &mut LiveControl,
    input: &mpsc::UnboundedSender<Input>,
    room: &Semaphore,
    heard: &Heard,
) -> ApiResult<()> {
    match frame {
        ExecInput::Start { .. } => {
            Err(ApiError::validation("the command has been started already"))
        }
        ExecInput::Stdin { data } => queue(data.into(), input, room, heard).await,
        ExecInput::CloseStdin => {
            let _ = input.send(Input::Close);
            Ok(())
        }
        ExecInput::Signal { signal } => Ok(control.signal(signal.number()).await?),
        ExecInput::Resize { rows, cols } => Ok(control.resize(terminal(rows, cols)?)?),
    }
}

fn output_frame(channel: u8, bytes: &[u8]) -> Message {
    let mut frame = BytesMut::with_capacity(bytes.len() + 1);
    frame.put_u8(channel);
    frame.extend_from_slice(bytes);
    Message::Binary(frame.freeze())
}

fn text_frame(frame: &ExecOutput) -> Message {
    // These types always serialise; an empty object is what a client would ignore.
    Message::text(serde_json::to_string(frame).unwrap_or_else(|_| "{}".to_owned()))
}

fn error_frame(error: ApiError) -> Message {
    text_frame(&ExecOutput::Error {
        error: error.detail(),
    })
}
