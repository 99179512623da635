//! The smallest HTTP client that can keep a connection alive.
//!
//! Comes in: method, path, body. Goes out: status and body. Never here: anything that costs time,
//! because what we time is the daemon. One request is one `write`; an answer is read until its
//! `Content-Length` is there.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// Longer than any request of the benchmark may take.
const PATIENCE: Duration = Duration::from_mins(1);

pub(super) struct Connection {
    stream: TcpStream,
    address: SocketAddr,
    buffer: Vec<u8>,
}

pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) body: String,
}

impl Connection {
    pub(super) fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address)
            .with_context(|| format!("could not connect to {address}"))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self {
            stream,
            address,
            buffer: Vec::with_capacity(16 * 1024),
        })
    }

    /// One request whose answer must have the status `expected`.
    pub(super) fn call(
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

    /// Sends a request whose answer nobody may ever read.
    pub(super) fn send(&mut self, method: &str, path: &str, body: &str) -> Result<()> {
        let message = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        );
        Ok(self.stream.write_all(message.as_bytes())?)
    }

    /// Nothing has come and the connection is open.
    pub(super) fn is_silent(&mut self) -> Result<bool> {
        self.stream.set_nonblocking(true)?;
        let silent = matches!(
            self.stream.peek(&mut [0]),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock
        );
        self.stream.set_nonblocking(false)?;
        Ok(silent)
    }

    pub(super) fn request(&mut self, method: &str, path: &str, body: &str) -> Result<Answer> {
        self.send(method, path, body)?;
        let head = self.read_head()?;
        let length = head
            .content_length
            .with_context(|| format!("{method} {path}: the answer has no Content-Length"))?;
        while self.buffer.len() < head.end + length {
            self.fill()?;
        }
        let body = String::from_utf8(self.buffer[head.end..head.end + length].to_vec())?;
        self.buffer.drain(..head.end + length);
        Ok(Answer {
            status: head.status,
            body,
        })
    }

    /// Sends a request that asks for another protocol, and gives the raw stream after `101`.
    pub(super) fn upgrade(mut self, path: &str) -> Result<Upgraded> {
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

/// A connection that speaks something else now, and what it had already said.
pub(super) struct Upgraded {
    pub(super) stream: TcpStream,
    pub(super) rest: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq)]
struct Head {
    status: u16,
    content_length: Option<usize>,
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
        let mut content_length = None;
        for line in lines {
            if let Some((name, value)) = line.split_once(':')
                && name.eq_ignore_ascii_case("content-length")
            {
                content_length = Some(value.trim().parse()?);
            }
        }
        Ok(Some(Self {
            status,
            content_length,
            end: end + 4,
        }))
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
                end: bytes.len() - 2
            })
        );
    }
}
