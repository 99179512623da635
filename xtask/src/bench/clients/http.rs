//! The smallest HTTP client that can keep a connection alive.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

/// Longer than any request of the benchmark may take.
const TIMEOUT: Duration = Duration::from_mins(1);

pub(in super::super) struct Connection {
    stream: TcpStream,
    address: SocketAddr,
    buffer: Vec<u8>,
}

pub(in super::super) struct Answer {
    pub(in super::super) status: u16,
    /// The value of the header `Mcp-Session-Id`.
    pub(in super::super) mcp_session: Option<String>,
    pub(in super::super) body: String,
}

impl Connection {
    pub(in super::super) fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address)
            .with_context(|| format!("could not connect to {address}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        Ok(Self {
            stream,
            address,
            buffer: Vec::with_capacity(16 * 1024),
        })
    }

    /// One request whose answer must have the status `expected`.
    pub(in super::super) fn call(
        &mut self,
        method: &str,
        path: &str,
        body: &str,
        expected: u16,
    ) -> Result<String> {
        let answer = self.request(method, path, body)?;
        if answer.status != expected {
            bail!(
                "{method} {path} answered {} instead of {expected}: {}",
                answer.status,
                answer.body
            );
        }
        Ok(answer.body)
    }

    /// Sends a request whose response may never be read.
    pub(in super::super) fn send(&mut self, method: &str, path: &str, body: &str) -> Result<()> {
        self.send_with(method, path, "", body)
    }

    /// The same with further headers, each with its line's end.
    fn send_with(&mut self, method: &str, path: &str, headers: &str, body: &str) -> Result<()> {
        let message = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n{headers}\r\n{body}",
            self.address,
            body.len()
        );
        Ok(self.stream.write_all(message.as_bytes())?)
    }

    /// Returns true if the connection is open and nothing was received.
    pub(in super::super) fn is_silent(&mut self) -> Result<bool> {
        self.stream.set_nonblocking(true)?;
        let silent = matches!(
            self.stream.peek(&mut [0]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock
        );
        self.stream.set_nonblocking(false)?;
        Ok(silent)
    }

    pub(in super::super) fn request(
        &mut self,
        method: &str,
        path: &str,
        body: &str,
    ) -> Result<Answer> {
        self.request_with(method, path, "", body)
    }

    pub(in super::super) fn request_with(
        &mut self,
        method: &str,
        path: &str,
        headers: &str,
        body: &str,
    ) -> Result<Answer> {
        self.send_with(method, path, headers, body)?;
        let head = self.read_head()?;
        self.buffer.drain(..head.end);
        let body = match head.content_length {
            Some(length) => self.take(length)?,
            None if head.is_chunked => self.take_chunks()?,
            // These responses have no body.
            None if matches!(head.status, 202 | 204) => Vec::new(),
            None => bail!("{method} {path}: the response has no length"),
        };
        Ok(Answer {
            status: head.status,
            mcp_session: head.mcp_session,
            body: String::from_utf8(body)?,
        })
    }

    fn take(&mut self, length: usize) -> Result<Vec<u8>> {
        while self.buffer.len() < length {
            self.fill()?;
        }
        Ok(self.buffer.drain(..length).collect())
    }

    fn take_chunks(&mut self) -> Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = self.take_line()?;
            let size = line.split(';').next().unwrap_or_default();
            let size = usize::from_str_radix(size.trim(), 16)
                .with_context(|| format!("`{line}` is no size of a chunk"))?;
            body.extend(self.take(size)?);
            ensure!(self.take_line()?.is_empty(), "a chunk has no end");
            if size == 0 {
                return Ok(body);
            }
        }
    }

    fn take_line(&mut self) -> Result<String> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|two| two == b"\r\n") {
                let line = self.take(end)?;
                self.take(2)?;
                return Ok(String::from_utf8(line)?);
            }
            self.fill()?;
        }
    }

    /// Sends a WebSocket upgrade, and returns the raw stream after `101`.
    pub(in super::super) fn upgrade(mut self, path: &str) -> Result<Upgraded> {
        let message = format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
            self.address
        );
        self.stream.write_all(message.as_bytes())?;
        let head = self.read_head()?;
        if head.status != 101 {
            bail!("GET {path} answered {} instead of 101", head.status);
        }
        let rest = self.buffer.split_off(head.end);
        Ok(Upgraded {
            stream: self.stream,
            rest,
        })
    }

    fn read_head(&mut self) -> Result<Head> {
        loop {
            if let Some(head) = Head::parse(&self.buffer)? {
                return Ok(head);
            }
            self.fill()?;
        }
    }

    fn fill(&mut self) -> Result<()> {
        let mut chunk = [0_u8; 16 * 1024];
        let count = self
            .stream
            .read(&mut chunk)
            .context("the daemon did not answer in time")?;
        if count == 0 {
            bail!("the daemon closed the connection");
        }
        self.buffer.extend_from_slice(&chunk[..count]);
        Ok(())
    }
}

/// A connection after its upgrade, and the bytes that were already received.
pub(in super::super) struct Upgraded {
    pub(super) stream: TcpStream,
    pub(super) rest: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq)]
struct Head {
    status: u16,
    content_length: Option<usize>,
    is_chunked: bool,
    mcp_session: Option<String>,
    /// Where the body begins.
    end: usize,
}

impl Head {
    /// `None` while the head is not complete.
    fn parse(bytes: &[u8]) -> Result<Option<Self>> {
        let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else {
            return Ok(None);
        };
        let text = std::str::from_utf8(&bytes[..end])?;
        let mut lines = text.split("\r\n");
        let status = lines
            .next()
            .and_then(|line| line.split(' ').nth(1))
            .context("the answer has no status line")?
            .parse()?;
        let mut head = Self {
            status,
            content_length: None,
            is_chunked: false,
            mcp_session: None,
            end: end + 4,
        };
        for (name, value) in lines.filter_map(|line| line.split_once(':')) {
            let value = value.trim();
            match name.to_ascii_lowercase().as_str() {
                "content-length" => head.content_length = Some(value.parse()?),
                "transfer-encoding" => head.is_chunked = value.eq_ignore_ascii_case("chunked"),
                "mcp-session-id" => head.mcp_session = Some(value.to_owned()),
                _ => {}
            }
        }
        Ok(Some(head))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_when_it_is_complete() {
        let bytes = b"HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\n{}";
        assert_eq!(Head::parse(&bytes[..30]).unwrap(), None);
        assert_eq!(
            Head::parse(bytes).unwrap(),
            Some(Head {
                status: 201,
                content_length: Some(2),
                is_chunked: false,
                mcp_session: None,
                end: bytes.len() - 2
            })
        );
    }

    #[test]
    fn a_head_says_how_its_body_comes() {
        let bytes =
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nmcp-session-id: a\r\n\r\n0\r\n";
        let head = Head::parse(bytes).unwrap().unwrap();
        assert!(head.is_chunked && head.content_length.is_none());
        assert_eq!(head.mcp_session.as_deref(), Some("a"));
        assert_eq!(&bytes[head.end..], b"0\r\n");
    }
}
