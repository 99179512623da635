//! A fake daemon: the test chooses its responses and closes its connections.

use boxwood_client::{Client, Endpoint};
use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role};

pub(crate) struct Daemon {
    listener: TcpListener,
}

/// An upgraded connection of the client.
pub(crate) struct Peer {
    pub(crate) target: String,
    socket: WebSocketStream<TcpStream>,
}

impl Daemon {
    pub(crate) async fn start() -> (Self, Client) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let endpoint: Endpoint = format!("http://127.0.0.1:{port}").parse().expect("a URL");
        (Self { listener }, Client::new(endpoint, None))
    }

    /// Answers one plain request.
    pub(crate) async fn answer(&self, status: &str, body: &str) -> String {
        let (mut stream, _) = self.listener.accept().await.expect("a connection");
        let head = head(&mut stream).await;
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
        );
        stream.write_all(answer.as_bytes()).await.expect("sent");
        target(&head)
    }

    pub(crate) async fn upgrade(&self) -> Peer {
        let (mut stream, _) = self.listener.accept().await.expect("a connection");
        let head = head(&mut stream).await;
        let key = head
            .lines()
            .find_map(|line| line.strip_prefix("Sec-WebSocket-Key: "))
            .expect("a key");
        let accept = tokio_tungstenite::tungstenite::handshake::derive_accept_key(key.as_bytes());
        let answer = format!(
            "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-accept: {accept}\r\n\r\n"
        );
        stream.write_all(answer.as_bytes()).await.expect("sent");
        Peer {
            target: target(&head),
            socket: WebSocketStream::from_raw_socket(stream, Role::Server, None).await,
        }
    }
}

async fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.expect("a request"));
    }
    String::from_utf8(head).expect("text")
}

fn target(head: &str) -> String {
    head.split(' ').nth(1).expect("a target").to_owned()
}

impl Peer {
    pub(crate) async fn text(&mut self, text: &str) {
        self.socket.send(Message::text(text)).await.expect("sent");
    }

    pub(crate) async fn bytes(&mut self, bytes: &'static [u8]) {
        let message = Message::Binary(Bytes::from_static(bytes));
        self.socket.send(message).await.expect("sent");
    }

    /// The next frame that is not about the connection itself.
    pub(crate) async fn next(&mut self) -> Message {
        loop {
            match self
                .socket
                .next()
                .await
                .expect("a frame")
                .expect("no error")
            {
                Message::Ping(_) | Message::Pong(_) => {}
                message => return message,
            }
        }
    }

    /// Input frames until so many bytes have come.
    pub(crate) async fn input(&mut self, bytes: usize) -> Vec<u8> {
        let mut all = Vec::new();
        while all.len() < bytes {
            match self.next().await {
                Message::Binary(piece) => all.extend_from_slice(&piece),
                other => panic!("not input: {other:?}"),
            }
        }
        all
    }

    pub(crate) async fn close(&mut self, code: u16) {
        let frame = CloseFrame {
            code: code.into(),
            reason: "".into(),
        };
        self.socket.close(Some(frame)).await.expect("closed");
    }
}
