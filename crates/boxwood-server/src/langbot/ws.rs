//! Action RPC over a WebSocket: `/rpc/ws`.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::http::HeaderMap;
use axum::response::{IntoResponse as _, Response};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::sync::mpsc;

use super::assembly::{Assembly, Heard};
use super::conversation::Conversation;
use super::{Speaker, today};
use crate::http::App;
use crate::http::socket::{self, Goodbye, Heartbeat};

/// What an unread answer may take before the client is given up.
const SEND_WITHIN: Duration = Duration::from_mins(1);

pub(crate) async fn connect(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Response {
    let speaker = match today::greet(&app, &headers) {
        Ok(Some(caller)) => Speaker::Today(caller),
        Ok(None) => Speaker::June,
        Err(refusal) => return *refusal,
    };
    let (upgrade, permit) = match socket::accept(&app, upgrade) {
        Ok(accepted) => accepted,
        Err(error) => return error.into_response(),
    };
    upgrade
        .on_upgrade(async move |socket| {
            converse(socket, app, speaker).await;
            drop(permit);
        })
        .into_response()
}

async fn converse(socket: WebSocket, app: Arc<App>, speaker: Speaker) {
    let (mut sink, mut stream) = socket.split();
    let mut stopping = app.stopping.clone();
    let heartbeat = Heartbeat::new(app.ping_every());
    let (mut conversation, answers) = Conversation::new(Arc::clone(&app), speaker);
    let heard = heartbeat.heard();
    let goodbye = {
        let mut send = std::pin::pin!(send(&mut sink, answers, heartbeat));
        let listen = listen(&mut stream, &mut conversation, || heard.now());
        let goodbye = tokio::select! {
            // First, so that it is what a client hears. Gone when the daemon itself is.
            biased;
            _ = stopping.wait_for(|stopping| *stopping) => Goodbye::ShuttingDown,
            () = &mut send => Goodbye::Done,
            () = listen => Goodbye::Done,
            () = heard.silence() => Goodbye::Done,
        };
        if goodbye == Goodbye::ShuttingDown {
            // Nothing new is heard, and what was asked is answered as long as there is time.
            let finish = async {
                conversation.finish().await;
                drop(conversation);
                std::future::pending::<()>().await;
            };
            let drain = Duration::from_secs(app.http.drain_sec);
            let answering = async {
                tokio::select! {
                    () = send => {}
                    () = finish => {}
                }
            };
            // What takes longer is cut off.
            let _ = tokio::time::timeout(drain, answering).await;
        }
        goodbye
    };
    socket::close_with(sink, stream, goodbye).await;
}

async fn listen(
    stream: &mut SplitStream<WebSocket>,
    conversation: &mut Conversation,
    heard: impl Fn(),
) {
    let mut assembly = Assembly::default();
    while let Some(Ok(message)) = stream.next().await {
        heard();
        match message {
            Message::Text(text) => match assembly.push(&text) {
                Heard::Message(message) => conversation.hear(message).await,
                Heard::Nothing => {}
                // Its sender waits for an answer that cannot be given: better it learns at once.
                Heard::TooLong => return,
            },
            Message::Ping(_) | Message::Pong(_) => {}
            Message::Binary(_) | Message::Close(_) => return,
        }
    }
}

async fn send(
    sink: &mut SplitSink<WebSocket, Message>,
    mut answers: mpsc::Receiver<String>,
    mut heartbeat: Heartbeat,
) {
    loop {
        let message = tokio::select! {
            answer = answers.recv() => match answer {
                Some(answer) => Message::Text(answer.into()),
                None => return,
            },
            () = heartbeat.tick() => Message::Ping(bytes::Bytes::new()),
        };
        match tokio::time::timeout(SEND_WITHIN, sink.send(message)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => return,
        }
    }
}
