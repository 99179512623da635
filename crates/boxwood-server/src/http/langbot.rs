//! LangBot's action RPC over a WebSocket (`/rpc/ws`), and relay errors in LangBot's format.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::extract::ws::{Message, WebSocket};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use boxwood_langbot::{ActionError, Assembled, Client, Connection, MessageAssembler, RelayRefusal};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Interval;

use super::App;
use super::websocket::{self, CloseReason, Upgrade};

/// Time limit for sending a response to a client that does not read.
const SEND_TIMEOUT: Duration = Duration::from_mins(1);

pub(super) async fn connect(
    State(app): State<Arc<App>>,
    headers: HeaderMap,
    upgrade: Upgrade,
) -> Response {
    let Ok(client) = Client::from_headers(&app.langbot, &headers) else {
        return unauthorized();
    };
    match upgrade.accept(&app) {
        Ok(accepted) => accepted.serve(|socket| serve(socket, app, client)),
        Err(error) => error.into_response(),
    }
}

async fn serve(socket: WebSocket, app: Arc<App>, client: Client) {
    let (mut sink, mut stream) = socket.split();
    let (pings, last_seen) = websocket::heartbeat(app.ping_every());
    let (mut connection, responses) = Connection::new(Arc::clone(&app.langbot), client);
    let reason = {
        let mut send = std::pin::pin!(send(&mut sink, responses, pings));
        let receive = receive(&mut stream, &mut connection, || last_seen.touch());
        let reason = tokio::select! {
            // First, so that the shutdown is the close reason if several branches are ready.
            biased;
            () = app.stopped() => CloseReason::ShuttingDown,
            () = &mut send => CloseReason::Normal,
            () = receive => CloseReason::Normal,
            () = last_seen.timeout() => CloseReason::Normal,
        };
        if reason == CloseReason::ShuttingDown {
            // No further message is read; running requests may complete within the drain time.
            let finish = async {
                connection.finish().await;
                drop(connection);
                std::future::pending::<()>().await;
            };
            let drain = Duration::from_secs(app.http.drain_sec);
            let sending = async {
                tokio::select! {
                    () = send => {}
                    () = finish => {}
                }
            };
            let _ = tokio::time::timeout(drain, sending).await;
        }
        reason
    };
    websocket::close_with(sink, stream, reason).await;
}

async fn receive(
    stream: &mut SplitStream<WebSocket>,
    connection: &mut Connection,
    on_message: impl Fn(),
) {
    let mut assembler = MessageAssembler::default();
    while let Some(Ok(message)) = stream.next().await {
        on_message();
        match message {
            Message::Text(text) => match assembler.push(&text) {
                Assembled::Message(message) => connection.handle(message).await,
                Assembled::Nothing => {}
                // The request cannot be answered, so closing tells the client at once.
                Assembled::TooLong => return,
            },
            Message::Ping(_) | Message::Pong(_) => {}
            Message::Binary(_) | Message::Close(_) => return,
        }
    }
}

async fn send(
    sink: &mut SplitSink<WebSocket, Message>,
    mut responses: mpsc::Receiver<String>,
    mut pings: Interval,
) {
    loop {
        let message = tokio::select! {
            response = responses.recv() => match response {
                Some(response) => Message::Text(response.into()),
                None => return,
            },
            _ = pings.tick() => Message::Ping(bytes::Bytes::new()),
        };
        match tokio::time::timeout(SEND_TIMEOUT, sink.send(message)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => return,
        }
    }
}

/// Returns true for MCP clients, as LangBot's relay clients are.
pub(super) fn asks_for_mcp(headers: &HeaderMap) -> bool {
    headers
        .get_all(header::SEC_WEBSOCKET_PROTOCOL)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .any(|protocol| protocol.trim() == "mcp")
}

pub(super) fn relay_refusal(refusal: &RelayRefusal) -> Response {
    match refusal {
        RelayRefusal::Unauthorized => unauthorized(),
        RelayRefusal::Error(error) => error_response(error),
    }
}

/// LangBot's relay uses one status for all errors; the class is in the body.
pub(super) fn error_response(error: &ActionError) -> Response {
    let body = json!({ "error": { "code": error.class(), "message": error.message() } });
    (StatusCode::BAD_REQUEST, Json(body)).into_response()
}

fn unauthorized() -> Response {
    (StatusCode::UNAUTHORIZED, "Unauthorized").into_response()
}
