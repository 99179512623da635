//! Writes an event stream as server-sent events, with keep-alive comments and event ids.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::stream;
use http::{HeaderValue, Response, header};
use http_body::Frame;
use http_body_util::{BodyExt as _, StreamBody};
use tokio::time::timeout;

use crate::agent_server::Answer;
use crate::gateway::client_session::ClientSession;
use crate::gateway::event_stream::Reader;
use crate::gateway::event_stream::budget::{BufferedMessage, reserved};
use crate::protocol_versions;

pub(crate) const EVENT_STREAM: &str = "text/event-stream";

/// Reconnection delay of clients.
const RETRY_MS: u32 = 1000;
/// A comment, which clients ignore.
pub(crate) const ALIVE: &[u8] = b": alive\n\n";
/// Longer messages are not copied into one buffer with their event.
const MAX_COPIED_BYTES: usize = 64 * 1024;

/// An event of a session, as in `Last-Event-ID`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EventId {
    pub(crate) stream: u64,
    pub(crate) event: u64,
}

impl EventId {
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

/// A stream of a session that can be resumed: events have ids. `guard` is dropped with the body.
pub(crate) fn resumable<H: Send + 'static>(
    session: &ClientSession,
    stream: u64,
    reader: Reader,
    keep_alive: Duration,
    guard: H,
) -> Answer {
    let mut first = BytesMut::new();
    if session.version().is_some_and(protocol_versions::is_primed) {
        let event = reader.at;
        EventId { stream, event }.write(&mut first);
        first.put_slice(format!("retry: {RETRY_MS}\ndata: \n\n").as_bytes());
    }
    respond(reader, Some(stream), first.freeze(), keep_alive, guard)
}

/// `stream` is set if the stream can be resumed.
pub(crate) fn respond<H: Send + 'static>(
    reader: Reader,
    stream: Option<u64>,
    first: Bytes,
    keep_alive: Duration,
    guard: H,
) -> Answer {
    let start = SseWriter {
        reader,
        stream,
        keep_alive,
        parts: VecDeque::from([first]),
        _guard: guard,
    };
    let frames = stream::unfold(start, |mut writer| async move {
        let bytes = writer.next().await?;
        Some((Ok::<_, Infallible>(Frame::data(bytes)), writer))
    });
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

struct SseWriter<H> {
    reader: Reader,
    stream: Option<u64>,
    keep_alive: Duration,
    /// Not sent yet.
    parts: VecDeque<Bytes>,
    _guard: H,
}

impl<H> SseWriter<H> {
    async fn next(&mut self) -> Option<Bytes> {
        loop {
            while let Some(part) = self.parts.pop_front() {
                if !part.is_empty() {
                    return Some(part);
                }
            }
            match timeout(self.keep_alive, self.reader.next()).await {
                Err(_) => return Some(Bytes::from_static(ALIVE)),
                Ok(None) => return None,
                Ok(Some(event)) => {
                    let mut head = BytesMut::from(&b"event: message\n"[..]);
                    if let Some(stream) = self.stream {
                        let event = event.number;
                        EventId { stream, event }.write(&mut head);
                    }
                    self.parts = parts(head, event.message);
                }
            }
        }
    }
}

/// One event. `head` are the lines before `data`. The message counts as unread until it is sent.
fn parts(mut head: BytesMut, message: BufferedMessage) -> VecDeque<Bytes> {
    head.put_slice(b"data: ");
    let json = message.json.clone();
    if json.len() <= MAX_COPIED_BYTES {
        head.put_slice(&json);
        head.put_slice(b"\n\n");
        return VecDeque::from([reserved(head.freeze(), message)]);
    }
    let json = reserved(json, message);
    VecDeque::from([head.freeze(), json, Bytes::from_static(b"\n\n")])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::event_stream::budget::MemoryBudget;
    use crate::gateway::event_stream::{EventKind, EventStream};

    async fn text(answer: Answer) -> String {
        let bytes = answer.into_body().collect().await.expect("body").to_bytes();
        String::from_utf8(bytes.to_vec()).expect("UTF-8")
    }

    fn answer(event_stream: &EventStream) -> Answer {
        let keep_alive = Duration::from_secs(15);
        respond(
            event_stream.reader(None),
            Some(3),
            Bytes::new(),
            keep_alive,
            (),
        )
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_stream_sends_keep_alive_comments() {
        let event_stream = EventStream::default();
        let writer = event_stream.clone();
        tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(40)).await;
            writer.push(EventKind::Response, Bytes::from_static(b"{}"));
            writer.close();
        });
        let body = text(answer(&event_stream)).await;
        let event = "event: message\nid: 3-1\ndata: {}\n\n";
        assert_eq!(body, format!(": alive\n\n: alive\n\n{event}"));
    }

    #[test]
    fn a_message_counts_until_its_bytes_are_sent() {
        for bytes in [MAX_COPIED_BYTES, 3 * MAX_COPIED_BYTES] {
            let client_budget = MemoryBudget::new(2 * bytes).of(None);
            let message = client_budget.reserve(Bytes::from(vec![b'1'; bytes]));
            let mut parts = parts(BytesMut::new(), message.expect("room"));
            let has_room = || {
                client_budget
                    .reserve(Bytes::from(vec![b'1'; bytes]))
                    .is_some()
            };
            let mut sent = 0;
            while sent < bytes {
                assert!(!has_room(), "{sent} bytes are sent");
                sent += parts.pop_front().expect("more").len();
            }
            assert!(has_room());
            let rest: usize = parts.iter().map(Bytes::len).sum();
            assert_eq!(sent + rest, bytes + "data: \n\n".len());
        }
    }

    #[test]
    fn event_ids_are_parsed_strictly() {
        let id = EventId {
            stream: 12,
            event: 7,
        };
        assert_eq!(EventId::parse("12-7"), Some(id));
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
            assert_eq!(EventId::parse(bad), None, "{bad}");
        }
    }
}
