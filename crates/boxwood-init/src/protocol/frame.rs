//! The channel to init over a byte stream, for boxes that cannot receive descriptors: a container engine
//! carries the bytes through one attached connection per box.
//!
//! Frames hold messages, and the bytes of every stream that would otherwise be a descriptor. Streams are
//! numbered. Each has a flow control window, so a slow reader stalls only its own program; sending more
//! than the window is a protocol error.

use serde::{Deserialize, Serialize};

use crate::protocol::message::{FromInit, ToInit};

/// First argument of the program when its standard input and output are the stream.
pub const JOIN_STREAM: &str = "join-stream";

/// Initial window of every stream, in each direction.
pub const WINDOW: usize = 256 * 1024;
/// Maximum bytes of one stream in one frame, so that other streams are not delayed.
pub const CHUNK: usize = 32 * 1024;
/// The box numbers terminals from here on; the daemon numbers all other streams.
pub const FIRST_TERMINAL: u32 = 1 << 31;

/// Larger frames are rejected, which bounds the receive buffer.
const FRAME_LIMIT: usize = 64 * 1024 * 1024;

const MESSAGE: u8 = 0;
const DATA: u8 = 1;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Frame {
    /// To init, with an attachment in place of each descriptor.
    Request {
        message: ToInit,
        attachments: Vec<Attachment>,
    },
    /// From init, with the stream number of the terminal it opened.
    Event {
        message: FromInit,
        terminal: Option<u32>,
    },
    /// Sent once, before the first event.
    Facts(Facts),
    Data {
        stream: u32,
        bytes: Vec<u8>,
    },
    /// The reader has consumed this many bytes.
    Credit {
        stream: u32,
        bytes: usize,
    },
    /// End of file.
    End {
        stream: u32,
    },
    /// The reader has closed the stream.
    ReaderClosed {
        stream: u32,
    },
    Resize {
        stream: u32,
        rows: u16,
        cols: u16,
    },
    /// From the daemon; answered by `Pong`.
    Ping,
    Pong,
}

/// Replaces a descriptor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Attachment {
    /// The daemon writes, the box reads.
    Input { stream: u32 },
    /// The box writes, the daemon reads.
    Output { stream: u32 },
    /// The content of a file.
    File { bytes: Vec<u8> },
}

/// What init reads from the kernel after its lockdown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    pub no_new_privileges: bool,
    pub seccomp: bool,
    pub capabilities_dropped: bool,
    /// Name and inode number of each namespace.
    pub namespaces: Vec<(String, u64)>,
    /// Network interfaces.
    pub interfaces: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid frame")]
pub struct InvalidFrame;

impl Frame {
    /// Length, kind, body.
    pub fn encode(&self) -> Result<Vec<u8>, InvalidFrame> {
        let mut packet = vec![0; 4];
        if let Self::Data { stream, bytes } = self {
            packet.push(DATA);
            packet.extend_from_slice(&stream.to_le_bytes());
            packet.extend_from_slice(bytes);
        } else {
            packet.push(MESSAGE);
            packet = postcard::to_extend(self, packet).map_err(|_| InvalidFrame)?;
        }
        let length = packet.len() - 4;
        if length > FRAME_LIMIT {
            return Err(InvalidFrame);
        }
        let length = u32::try_from(length).map_err(|_| InvalidFrame)?;
        packet[..4].copy_from_slice(&length.to_le_bytes());
        Ok(packet)
    }

    fn decode(body: &[u8]) -> Result<Self, InvalidFrame> {
        match body.split_first() {
            Some((&MESSAGE, body)) => postcard::from_bytes(body).map_err(|_| InvalidFrame),
            Some((&DATA, body)) => {
                let (stream, bytes) = body.split_first_chunk().ok_or(InvalidFrame)?;
                Ok(Self::Data {
                    stream: u32::from_le_bytes(*stream),
                    bytes: bytes.to_vec(),
                })
            }
            _ => Err(InvalidFrame),
        }
    }
}

/// Reassembles frames from a byte stream.
#[derive(Debug, Default)]
pub struct Decoder {
    bytes: Vec<u8>,
    /// Offset of the next frame.
    offset: usize,
}

impl Decoder {
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.offset);
        self.offset = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next complete frame.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, InvalidFrame> {
        let remaining = &self.bytes[self.offset..];
        let Some((length, rest)) = remaining.split_first_chunk() else {
            return Ok(None);
        };
        let length = usize::try_from(u32::from_le_bytes(*length)).map_err(|_| InvalidFrame)?;
        if length > FRAME_LIMIT {
            return Err(InvalidFrame);
        }
        let Some(body) = rest.get(..length) else {
            return Ok(None);
        };
        let frame = Frame::decode(body)?;
        self.offset += 4 + length;
        Ok(Some(frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_reassembled_from_chunks_of_any_size() {
        let data = vec![7_u8; 100_000];
        let frames = [
            Frame::Data {
                stream: 3,
                bytes: data.clone(),
            },
            Frame::Credit {
                stream: 9,
                bytes: 70_000,
            },
            Frame::Ping,
        ];
        let bytes: Vec<u8> = frames
            .iter()
            .flat_map(|frame| frame.encode().expect("encode"))
            .collect();
        for size in [1, 3, 4096, bytes.len()] {
            let mut decoder = Decoder::default();
            let mut decoded = Vec::new();
            for part in bytes.chunks(size) {
                decoder.push(part);
                while let Some(frame) = decoder.next_frame().expect("decode") {
                    decoded.push(frame);
                }
            }
            assert!(matches!(&decoded[0], Frame::Data { stream: 3, bytes } if *bytes == data));
            assert!(matches!(
                decoded[1],
                Frame::Credit {
                    stream: 9,
                    bytes: 70_000
                }
            ));
            assert!(matches!(decoded[2], Frame::Ping));
            assert_eq!(decoded.len(), 3);
        }
    }

    #[test]
    fn invalid_frames_are_rejected() {
        for bytes in [
            &[0xff, 0xff, 0xff, 0xff][..],
            &[1, 0, 0, 0, 9][..],
            &[0, 0, 0, 0][..],
            &[3, 0, 0, 0, DATA, 0, 0][..],
        ] {
            let mut decoder = Decoder::default();
            decoder.push(bytes);
            assert_eq!(decoder.next_frame().expect_err("invalid"), InvalidFrame);
        }
    }
}
