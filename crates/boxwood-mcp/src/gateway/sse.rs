//! A stream of messages as server-sent events.
//!
//! Comes in: messages, one after the other. Goes out: a body that shows now and then that it lives, with ids
//! a client can come back with where there are any. Never here: what the messages say. Long messages are
//! sent piece by piece: what a slow reader has not taken yet counts as unread.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::{Stream, StreamExt as _, stream};
use http::{HeaderValue, Response, header};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use tokio::time::timeout;

use super::budget::Kept;
use super::outbox::Reader;
use crate::http_server::Answer;

pub(crate) const EVENT_STREAM: &str = "text/event-stream";

/// When a client that lost its stream comes back.
const RETRY_MS: u32 = 1000;
/// A comment, which clients skip.
pub(crate) const ALIVE: &[u8] = b": alive\n\n";
/// Of one write.
pub(crate) const PIECE: usize = 64 * 1024;

/// A place on a stream of a session, as clients say it in `Last-Event-ID`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) stream: u64,
    pub(crate) event: u64,
}

impl Place {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (stream, event) = text.split_once('-')?;
        Some(Self {
            stream: number(stream)?,
            event: number(event)?,
        })
    }

    fn write(self, out: &mut BytesMut) {
        out.put_slice(b"id: ");
        out.put_slice(format!("{}-{}", self.stream, self.event).as_bytes());
        out.put_u8(b'\n');
    }
}

fn number(text: &str) -> Option<u64> {
    let all_digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if all_digits { text.parse().ok() } else { None }
}

/// How one stream is written.
pub(crate) struct Manner {
    /// Ids are written when the client can come back to this stream.
    pub(crate) stream: Option<u64>,
    /// Begins with an event that says nothing but where the stream is. Older clients stumble over it.
    pub(crate) is_primed: bool,
    /// Sent before anything else.
    pub(crate) opening: Option<Bytes>,
    pub(crate) keep_alive: Duration,
}

/// `held` is dropped with the body.
pub(crate) fn answer<H: Send + 'static>(reader: Reader, manner: Manner, held: H) -> Answer {
    let mut first = BytesMut::new();
    if let Some(opening) = &manner.opening {
        first.put_slice(opening);
    }
    if let (true, Some(stream)) = (manner.is_primed, manner.stream) {
        let event = reader.at();
        Place { stream, event }.write(&mut first);
        first.put_slice(format!("retry: {RETRY_MS}\ndata: \n\n").as_bytes());
    }
    let mut sending = Sending::default();
    if !first.is_empty() {
        sending.parts.push_back((first.freeze(), None));
    }
    let start = Writing {
        reader,
        manner,
        sending,
        _held: held,
    };
    respond(stream::unfold(start, |mut writing| async move {
        let bytes = writing.next().await?;
        Some((bytes, writing))
    }))
}

/// The response whose body these pieces are.
fn respond(pieces: impl Stream<Item = Bytes> + Send + 'static) -> Answer {
    let frames = pieces.map(|bytes| Ok::<_, Infallible>(Frame::data(bytes)));
    let mut response = Response::new(StreamBody::new(frames).boxed_unsync());
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(EVENT_STREAM));
    headers.insert(
        header::CACHE_CONTROL,
        HeaderValue::from_static("no-cache, no-transform"),
    );
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

struct Writing<H> {
    reader: Reader,
    manner: Manner,
    sending: Sending,
    _held: H,
}

impl<H> Writing<H> {
    async fn next(&mut self) -> Option<Bytes> {
        if self.sending.is_empty() {
            match timeout(self.manner.keep_alive, self.reader.next()).await {
                Err(_) => self.sending.sign_of_life(),
                Ok(None) => return None,
                Ok(Some(event)) => {
                    let mut head = BytesMut::from(&b"event: message\n"[..]);
                    if let Some(stream) = self.manner.stream {
                        let event = event.number;
                        Place { stream, event }.write(&mut head);
                    }
                    self.sending.event(head, event.kept);
                }
            }
        }
        self.sending.next()
    }
}

/// What is written and not yet sent.
#[derive(Default)]
struct Sending {
    parts: VecDeque<(Bytes, Option<Kept>)>,
}

impl Sending {
    fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    fn sign_of_life(&mut self) {
        self.parts.push_back((Bytes::from_static(ALIVE), None));
    }

    /// JSON of one line is one event. `head` are its other lines.
    fn event(&mut self, mut head: BytesMut, kept: Kept) {
        head.put_slice(b"data: ");
        if kept.json.len() <= PIECE {
            head.put_slice(&kept.json);
            head.put_slice(b"\n\n");
            self.parts.push_back((head.freeze(), Some(kept)));
            return;
        }
        let json = kept.json.clone();
        self.parts.push_back((head.freeze(), None));
        self.parts.push_back((json, Some(kept)));
        self.parts.push_back((Bytes::from_static(b"\n\n"), None));
    }

    fn next(&mut self) -> Option<Bytes> {
        let (part, _) = self.parts.front_mut()?;
        let piece = part.split_to(part.len().min(PIECE));
        if part.is_empty() {
            self.parts.pop_front();
        }
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::super::budget::Budget;
    use super::super::outbox::{Matter, Outbox};
    use super::*;

    async fn text(answer: Answer) -> String {
        let bytes = answer.into_body().collect().await.expect("body").to_bytes();
        String::from_utf8(bytes.to_vec()).expect("UTF-8")
    }

    fn manner(is_primed: bool) -> Manner {
        Manner {
            stream: Some(3),
            is_primed,
            opening: None,
            keep_alive: Duration::from_secs(15),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_quiet_stream_shows_that_it_lives() {
        let outbox = Outbox::default();
        let writer = outbox.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(40)).await;
            writer.push(Matter::Answer, Bytes::from_static(b"{}"));
            writer.close();
        });
        let said = text(answer(outbox.reader(None), manner(false), ())).await;
        let event = "event: message\nid: 3-1\ndata: {}\n\n";
        assert_eq!(said, format!(": alive\n\n: alive\n\n{event}"));
    }

    #[tokio::test]
    async fn a_long_message_goes_out_in_pieces_and_counts_until_the_last() {
        let purse = Budget::new(8 * PIECE).of(None);
        let kept = purse.keep(Bytes::from(vec![b'1'; 3 * PIECE]));
        let mut sending = Sending::default();
        sending.event(BytesMut::new(), kept.expect("room"));
        let has_room = || purse.keep(Bytes::from(vec![b'1'; 2 * PIECE])).is_some();
        let mut said = Vec::new();
        while said.len() < 3 * PIECE {
            assert!(!has_room(), "{} bytes are on their way", said.len());
            let piece = sending.next().expect("more");
            assert!(piece.len() <= PIECE);
            said.extend_from_slice(&piece);
        }
        while let Some(piece) = sending.next() {
            said.extend_from_slice(&piece);
        }
        assert!(has_room());
        assert_eq!(said.len(), 3 * PIECE + "data: \n\n".len());
    }

    #[tokio::test]
    async fn a_primed_stream_says_where_it_is_before_anything_happened() {
        let outbox = Outbox::default();
        outbox.close();
        let said = text(answer(outbox.reader(None), manner(true), ())).await;
        assert_eq!(said, "id: 3-0\nretry: 1000\ndata: \n\n");
    }

    #[test]
    fn places_are_read_strictly() {
        let place = Place {
            stream: 12,
            event: 7,
        };
        assert_eq!(Place::parse("12-7"), Some(place));
        for bad in [
            "",
            "12",
            "-",
            "12-",
            "-7",
            "+1-2",
            "1-2-3",
            "99999999999999999999-1",
        ] {
            assert_eq!(Place::parse(bad), None, "{bad}");
        }
    }
}
