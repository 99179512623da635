//! HTTP requests that the typed client cannot send.

use serde_json::Value;
use std::fmt::Write as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::daemon::Daemon;
use crate::waiting::answered;

/// Percent-encodes a path segment.
pub(crate) fn segment(text: &str) -> String {
    text.bytes().fold(String::new(), |mut path, byte| {
        if byte.is_ascii_alphanumeric() {
            path.push(char::from(byte));
        } else {
            let _ = write!(path, "%{byte:02X}");
        }
        path
    })
}

/// The status and the body. Every answer has to be JSON.
pub(crate) async fn ask(
    daemon: &Daemon,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> (u16, Value) {
    let authority = daemon
        .url()
        .trim_start_matches("http://")
        .trim_end_matches('/');
    let body = body.map(Value::to_string).unwrap_or_default();
    let request = format!(
        "{method} {path} HTTP/1.0\r\nHost: {authority}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let talk = async {
        let mut stream = TcpStream::connect(authority)
            .await
            .expect("the daemon listens");
        stream
            .write_all(request.as_bytes())
            .await
            .expect("it is sent");
        let mut answer = Vec::new();
        stream
            .read_to_end(&mut answer)
            .await
            .expect("it is answered");
        String::from_utf8(answer).expect("text")
    };
    let answer = answered("a request", talk).await;
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    let body = serde_json::from_str(body).unwrap_or_else(|_| panic!("{path}: {answer}"));
    (status.expect("a status"), body)
}
