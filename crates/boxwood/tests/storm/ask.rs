//! HTTP requests without a client library, which would retry them.

use std::time::Duration;

use anyhow::{Context as _, bail};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Longer than any request of these tests takes on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(90);

/// The result of a request.
#[derive(Debug)]
pub(crate) enum Answer {
    Response(u16, Value),
    /// The daemon was not running, or was killed before it responded.
    Lost,
}

pub(crate) async fn ask(
    port: u16,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> anyhow::Result<Answer> {
    match tokio::time::timeout(TIMEOUT, talk(port, method, path, body)).await {
        Err(_) => bail!("{method} {path} was not answered within {TIMEOUT:?}"),
        // A broken connection, or an incomplete response.
        Ok(Err(_)) => Ok(Answer::Lost),
        Ok(Ok(answer)) => parse(&answer).with_context(|| format!("{method} {path}: {answer}")),
    }
}

async fn talk(
    port: u16,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> std::io::Result<String> {
    let body = body.map(Value::to_string).unwrap_or_default();
    let request = format!(
        "{method} {path} HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

fn parse(answer: &str) -> anyhow::Result<Answer> {
    let Some((head, body)) = answer.split_once("\r\n\r\n") else {
        return Ok(Answer::Lost);
    };
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    let status = status.context("no status")?;
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length")
            .then(|| value.trim().parse::<usize>().ok())?
    });
    if length.is_some_and(|length| body.len() < length) {
        return Ok(Answer::Lost);
    }
    match serde_json::from_str(body) {
        Ok(body) => Ok(Answer::Response(status, body)),
        // Without a length the end of the connection is the end of the body.
        Err(_) if length.is_none() => Ok(Answer::Lost),
        Err(_) => bail!("the body is no JSON"),
    }
}

/// Repeats the request until there is a response, which must be a success.
pub(crate) async fn must(
    port: u16,
    method: &str,
    path: &str,
    body: Option<&Value>,
) -> anyhow::Result<Value> {
    for _ in 0..600 {
        match ask(port, method, path, body).await? {
            Answer::Response(status, body) if status < 300 => return Ok(body),
            Answer::Response(status, body) => bail!("{method} {path} is answered {status}: {body}"),
            Answer::Lost => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
    bail!("{method} {path}: there is no daemon")
}
