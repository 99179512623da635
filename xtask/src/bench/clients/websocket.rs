//! Text frames, one at a time: enough WebSocket for a line out and a line back.

use std::io::{Read, Write};

use anyhow::{Result, bail};

use super::http::Upgraded;

const TEXT: u8 = 0x1;
const PING: u8 = 0x9;
const FINAL: u8 = 0x80;
const MASKED: u8 = 0x80;
/// Any key works: masking only protects proxies, and there is none.
const KEY: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

pub(in super::super) struct WebSocket(Upgraded);

impl WebSocket {
    pub(in super::super) fn new(upgraded: Upgraded) -> Self {
        Self(upgraded)
    }

    pub(in super::super) fn send(&mut self, line: &str) -> Result<()> {
        self.0.stream.write_all(&frame(TEXT, line.as_bytes())?)?;
        Ok(())
    }

    /// The next text frame; pings are answered on the way.
    pub(in super::super) fn receive(&mut self) -> Result<String> {
        loop {
            let (opcode, payload) = self.read_frame()?;
            match opcode {
                TEXT => return Ok(String::from_utf8(payload)?),
                PING => self.0.stream.write_all(&frame(0xa, &payload)?)?,
                other => bail!("the relay sent a frame of kind {other}"),
            }
        }
    }

    fn read_frame(&mut self) -> Result<(u8, Vec<u8>)> {
        loop {
            if let [first, length, ..] = self.0.rest[..] {
                let length = usize::from(length);
                if length > 125 {
                    bail!("the relay sent a frame of more than 125 bytes");
                }
                if self.0.rest.len() >= 2 + length {
                    let payload = self.0.rest[2..2 + length].to_vec();
                    self.0.rest.drain(..2 + length);
                    return Ok((first & 0x0f, payload));
                }
            }
            let mut chunk = [0_u8; 1024];
            let count = self.0.stream.read(&mut chunk)?;
            if count == 0 {
                bail!("the relay closed the connection");
            }
            self.0.rest.extend_from_slice(&chunk[..count]);
        }
    }
}

fn frame(opcode: u8, payload: &[u8]) -> Result<Vec<u8>> {
    if payload.len() > 125 {
        bail!("only short frames are sent here");
    }
    let length = u8::try_from(payload.len())?;
    let mut bytes = vec![FINAL | opcode, MASKED | length];
    bytes.extend_from_slice(&KEY);
    bytes.extend(
        payload
            .iter()
            .zip(KEY.iter().cycle())
            .map(|(byte, key)| byte ^ key),
    );
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frame_of_the_protocols_own_example() {
        assert_eq!(
            frame(TEXT, b"Hello").unwrap(),
            [
                0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58
            ]
        );
    }
}
