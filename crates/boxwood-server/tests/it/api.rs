//! How tests speak to a daemon.

use std::sync::Arc;
use std::time::Duration;

use boxwood_server::Config;
use boxwood_test_support::FakeBackend;
use boxwood_test_support::daemon::Daemon;
use futures_util::StreamExt as _;
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

pub(crate) type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// A daemon, its backend and a client.
pub(crate) struct Api {
    pub(crate) daemon: Daemon,
    pub(crate) backend: Arc<FakeBackend>,
    pub(crate) http: Client,
}

impl Api {
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| {}).await
    }

    pub(crate) async fn start_with(adjust: impl FnOnce(&mut Config)) -> Self {
        let backend = FakeBackend::new();
        let daemon = Daemon::start_with(backend.clone(), adjust).await;
        Self {
            daemon,
            backend,
            http: Client::builder()
                .timeout(Duration::from_mins(1))
                .build()
                .expect("a client"),
        }
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.http
            .request(method, format!("{}{path}", self.daemon.url()))
    }

    pub(crate) async fn get(&self, path: &str) -> (StatusCode, Value) {
        answer(self.request(Method::GET, path)).await
    }

    pub(crate) async fn delete(&self, path: &str) -> (StatusCode, Value) {
        answer(self.request(Method::DELETE, path)).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> (StatusCode, Value) {
        self.post_text(path, body.to_string()).await
    }

    pub(crate) async fn post_text(
        &self,
        path: &str,
        body: impl Into<reqwest::Body>,
    ) -> (StatusCode, Value) {
        let request = self
            .request(Method::POST, path)
            .header("content-type", "application/json")
            .body(body);
        answer(request).await
    }

    pub(crate) async fn socket(&self, path: &str) -> Socket {
        let url = format!("ws://{}{path}", self.daemon.address());
        let (socket, _) = tokio_tungstenite::connect_async(url)
            .await
            .expect("an upgrade");
        socket
    }

    /// Bytes as they are, and everything that comes back until the end.
    pub(crate) async fn raw(&self, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(self.daemon.address())
            .await
            .expect("a connection");
        // The daemon may refuse before it has read everything.
        let _ = stream.write_all(request).await;
        let mut got = Vec::new();
        let reading = stream.read_to_end(&mut got);
        let _ = tokio::time::timeout(Duration::from_secs(10), reading)
            .await
            .expect("an end within 10 s");
        String::from_utf8_lossy(&got).into_owned()
    }
}

pub(crate) async fn answer(request: RequestBuilder) -> (StatusCode, Value) {
    json(request.send().await.expect("an answer")).await
}

/// Every answer of the API is JSON, errors included.
pub(crate) async fn json(response: Response) -> (StatusCode, Value) {
    let status = response.status();
    let kind = response.headers().get("content-type").cloned();
    let text = response.text().await.expect("a body");
    assert_eq!(
        kind.as_ref().and_then(|kind| kind.to_str().ok()),
        Some("application/json"),
        "{status}: {text}"
    );
    let value = serde_json::from_str(&text)
        .unwrap_or_else(|error| panic!("{status}: `{text}` is not JSON: {error}"));
    (status, value)
}

/// The shape and the code of a refusal.
#[track_caller]
pub(crate) fn refused((status, body): &(StatusCode, Value), expected: u16, code: &str) {
    assert_eq!(status.as_u16(), expected, "{body}");
    assert_eq!(body["error"]["code"], code, "{body}");
    let message = body["error"]["message"].as_str().expect("a message");
    assert!(!message.is_empty());
    let keys: Vec<&String> = body.as_object().expect("an object").keys().collect();
    assert_eq!(keys, ["error"]);
}

/// The next text or binary frame; `None` when the daemon closes.
pub(crate) async fn next_frame(socket: &mut Socket) -> Option<Message> {
    let next = async {
        loop {
            match socket.next().await? {
                Ok(frame @ (Message::Text(_) | Message::Binary(_))) => return Some(frame),
                Ok(Message::Close(frame)) => {
                    let frame = frame.expect("a close code");
                    assert_eq!(u16::from(frame.code), 1000);
                    assert_eq!(frame.reason.as_str(), "");
                    return None;
                }
                Ok(_) => {}
                Err(error) => panic!("the socket broke: {error}"),
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(10), next)
        .await
        .expect("a frame within 10 s")
}

pub(crate) async fn next_text(socket: &mut Socket) -> Option<String> {
    next_frame(socket)
        .await
        .map(|frame| frame.into_text().expect("text").to_string())
}

/// Waits for something that happens soon.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, mut check: impl FnMut() -> F) {
    let until = tokio::time::Instant::now() + Duration::from_secs(30);
    while tokio::time::Instant::now() < until {
        if check().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(25)).await;
    }
    panic!("not within 30 s: {what}");
}

/// Blocks commands until it is opened or dropped by a failing test. Commands in a fake box see the file because they
/// run without isolation.
pub(crate) struct Gate(tempfile::NamedTempFile);

impl Gate {
    pub(crate) fn new() -> Self {
        Self(tempfile::NamedTempFile::new().expect("a file"))
    }

    /// What a command does to wait.
    pub(crate) fn wait(&self) -> String {
        let file = self.0.path().display();
        format!("while [ -e {file} ]; do sleep 0.05; done")
    }

    pub(crate) fn open(self) {
        self.0.close().expect("removed");
    }
}
