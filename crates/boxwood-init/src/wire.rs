//! The channel to init over a plain stream of bytes, for boxes that no descriptor reaches.
//!
//! Comes in: messages, and the bytes of every stream that would have been a descriptor beside them.
//! Goes out: the same on the other side, frame by frame. Never here: who carries the bytes; a
//! container engine does, through one attached connection for each box.
//!
//! Streams are numbered and have a window each: whoever sends more than the other side has made room
//! for breaks the rules. So a slow reader stalls its own program and no other.

use serde::{Deserialize, Serialize};

use crate::message::{FromInit, ToInit};

/// The program's first argument when its standard input and output are the stream.
pub const JOIN_STREAM: &str = "join-stream";

/// Room that every stream has at its beginning, in each direction.
pub const WINDOW: usize = 256 * 1024;
/// Most bytes of one stream in one frame: others wait meanwhile.
pub const CHUNK: usize = 32 * 1024;
/// Terminals are numbered by the box, from here on; everything else by the daemon.
pub const FIRST_TERMINAL: u32 = 1 << 31;

/// A frame no honest side sends; a bound for what is kept in memory.
const FRAME_LIMIT: usize = 64 * 1024 * 1024;

const MESSAGE: u8 = 0;
const DATA: u8 = 1;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Frame {
    /// To init, with what takes the place of each descriptor.
    Order {
        message: ToInit,
        carried: Vec<Carried>,
    },
    /// From init, with the number of the terminal that came along.
    Event {
        message: FromInit,
        terminal: Option<u32>,
    },
    /// What the box says of itself, once, before its first event.
    Facts(Facts),
    Data {
        stream: u32,
        bytes: Vec<u8>,
    },
    /// The reader has made room for so many more bytes.
    Credit {
        stream: u32,
        bytes: usize,
    },
    /// The writer has ended.
    End {
        stream: u32,
    },
    /// The reader has gone; nothing more is wanted.
    Gone {
        stream: u32,
    },
    Resize {
        stream: u32,
        rows: u16,
        cols: u16,
    },
    /// From the daemon; answered by `Here`.
    Ping,
    Here,
}

/// What stands for a descriptor.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Carried {
    /// The box reads what the daemon sends.
    Input { stream: u32 },
    /// The daemon reads what the box sends.
    Output { stream: u32 },
    /// The whole content at once.
    File { bytes: Vec<u8> },
}

/// What the kernel under the box told init, after init had locked itself in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    pub no_new_privileges: bool,
    pub seccomp: bool,
    pub capabilities_dropped: bool,
    /// Name and number of each namespace that the kernel shows.
    pub namespaces: Vec<(String, u64)>,
    /// Network interfaces.
    pub interfaces: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the stream of frames is garbled")]
pub struct Garbled;

impl Frame {
    /// Length, kind, body.
    pub fn encode(&self) -> Result<Vec<u8>, Garbled> {
        let mut packet = vec![0; 4];
        if let Self::Data { stream, bytes } = self {
            packet.push(DATA);
            packet.extend_from_slice(&stream.to_le_bytes());
            packet.extend_from_slice(bytes);
        } else {
            packet.push(MESSAGE);
            packet = postcard::to_extend(self, packet).map_err(|_| Garbled)?;
        }
        let length = packet.len() - 4;
        if length > FRAME_LIMIT {
            return Err(Garbled);
        }
        let length = u32::try_from(length).map_err(|_| Garbled)?;
        packet[..4].copy_from_slice(&length.to_le_bytes());
        Ok(packet)
    }

    fn decode(body: &[u8]) -> Result<Self, Garbled> {
        match body.split_first() {
            Some((&MESSAGE, body)) => postcard::from_bytes(body).map_err(|_| Garbled),
            Some((&DATA, body)) => {
                let (stream, bytes) = body.split_first_chunk().ok_or(Garbled)?;
                Ok(Self::Data {
                    stream: u32::from_le_bytes(*stream),
                    bytes: bytes.to_vec(),
                })
            }
            _ => Err(Garbled),
        }
    }
}

/// Puts frames together from bytes as they come.
#[derive(Debug, Default)]
pub struct Decoder {
    bytes: Vec<u8>,
    /// Where the next frame begins.
    at: usize,
}

impl Decoder {
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.at);
        self.at = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole frame, if there is one.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, Garbled> {
        let left = &self.bytes[self.at..];
        let Some((length, rest)) = left.split_first_chunk() else {
            return Ok(None);
        };
        let length = usize::try_from(u32::from_le_bytes(*length)).map_err(|_| Garbled)?;
        if length > FRAME_LIMIT {
            return Err(Garbled);
        }
        let Some(body) = rest.get(..length) else {
            return Ok(None);
        };
        let frame = Frame::decode(body)?;
        self.at += 4 + length;
        Ok(Some(frame))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_arrive_whole_however_the_bytes_are_cut() {
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
            let mut got = Vec::new();
            for part in bytes.chunks(size) {
                decoder.push(part);
                while let Some(frame) = decoder.next_frame().expect("decode") {
                    got.push(frame);
                }
            }
            assert!(matches!(&got[0], Frame::Data { stream: 3, bytes } if *bytes == data));
            assert!(matches!(
                got[1],
                Frame::Credit {
                    stream: 9,
                    bytes: 70_000
                }
            ));
            assert!(matches!(got[2], Frame::Ping));
            assert_eq!(got.len(), 3);
        }
    }

    #[test]
    fn what_no_honest_side_sends_is_refused() {
        for bytes in [
            &[0xff, 0xff, 0xff, 0xff][..],
            &[1, 0, 0, 0, 9][..],
            &[0, 0, 0, 0][..],
            &[3, 0, 0, 0, DATA, 0, 0][..],
        ] {
            let mut decoder = Decoder::default();
            decoder.push(bytes);
            assert_eq!(decoder.next_frame().expect_err("garbled"), Garbled);
        }
    }
}
