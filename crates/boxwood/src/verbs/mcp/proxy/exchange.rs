//! One request and everything that comes of it.

use std::time::Duration;

use boxwood_client::{ClientError, GatewayAnswer, GatewayStream};
use bytes::Bytes;

use super::bridge::{Bridge, no_session};
use super::open::Open;
use super::peek::Peek;
use super::replies::{self, one_line};

/// Headers do not say what the body says.
const HEADER_MISMATCH: i64 = -32020;
const LAST_EVENT: &str = "last-event-id";
/// Streams in a row that break off before they brought anything new. Each was asked for patiently, so
/// this is no daemon that is being restarted.
const MOST_FRUITLESS: u32 = 8;
const PAUSE: Duration = Duration::from_millis(500);
const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";

/// How a stream ended.
enum End {
    Answered,
    /// With where to go on from.
    Broken(Option<String>),
}

impl Bridge {
    /// Whatever happens, each request in it gets one answer.
    pub(super) async fn exchange(&self, peek: &Peek, line: &Bytes, open: &Open) {
        let (mut has_renewed, mut has_learned, mut again) = (false, false, 0);
        loop {
            let session = self.session();
            let headers = self.headers(peek, line, &session);
            let answer = self
                .post(&headers, line.clone(), peek.is_repeatable())
                .await;
            let replies = match answer {
                Ok(GatewayAnswer::Message { body, .. }) => {
                    let text = String::from_utf8_lossy(&body);
                    self.marks.learn(peek, &text);
                    self.wishes.learn(peek, &text);
                    vec![one_line(&text)]
                }
                Ok(GatewayAnswer::Stream { events, .. }) => {
                    match self.follow(peek, open, events, again > 0).await {
                        End::Answered => return,
                        End::Broken(Some(last)) if peek.revision.is_none() => {
                            match self.resume(peek, open, session.generation, last).await {
                                End::Answered => return,
                                End::Broken(_) => broken_off(peek, open),
                            }
                        }
                        End::Broken(_) if may_be_asked_again(peek, again) => {
                            again += 1;
                            tokio::time::sleep(PAUSE).await;
                            continue;
                        }
                        End::Broken(_) => broken_off(peek, open),
                    }
                }
                Ok(GatewayAnswer::Accepted) => broken_off(peek, open),
                Ok(GatewayAnswer::Refused { status: 404, .. })
                    if peek.revision.is_none() && session.id.is_some() && !has_renewed =>
                {
                    has_renewed = true;
                    match self.renew(session.generation).await {
                        Ok(()) => continue,
                        Err(why) => open.replies(|id| no_session(Some(id), &why)),
                    }
                }
                Ok(GatewayAnswer::Refused { status, body }) => {
                    let is_mismatch = replies::refusal_code(&body) == Some(HEADER_MISMATCH);
                    if is_mismatch && !has_learned && peek.is("tools/call") {
                        has_learned = true;
                        if self.learn_tools(line).await {
                            continue;
                        }
                    }
                    open.replies(|id| replies::refusal(Some(id), status, &body))
                }
                Err(ClientError::Lost { .. }) if !peek.is_repeatable() => broken_off(peek, open),
                Err(error) => open.replies(|id| replies::unreachable(Some(id), &error)),
            };
            for reply in replies {
                self.say(reply).await;
            }
            return;
        }
    }

    /// Hands on what comes, until the answer. Those to a batch come one by one.
    async fn follow(
        &self,
        peek: &Peek,
        open: &Open,
        mut events: GatewayStream,
        is_again: bool,
    ) -> End {
        let mut last = None;
        while !open.is_empty() {
            let Ok(Some(event)) = events.next().await else {
                return End::Broken(last);
            };
            last = event.id.or(last);
            if event.data.is_empty() {
                continue;
            }
            let inside = Peek::at(event.data.as_bytes()).unwrap_or_default();
            for id in &inside.settles {
                if open.close(id) {
                    self.marks.learn(peek, &event.data);
                    self.wishes.learn(peek, &event.data);
                }
            }
            // The client has heard that already.
            if !(is_again && inside.is(ACKNOWLEDGED)) {
                self.say(one_line(&event.data)).await;
            }
        }
        End::Answered
    }

    /// The gateway keeps what comes after an event, for whoever asks in time. A later session counts
    /// from the beginning again: there, the same number is an event of somebody else's.
    async fn resume(&self, peek: &Peek, open: &Open, generation: u64, mut last: String) -> End {
        let mut fruitless = 0;
        while fruitless < MOST_FRUITLESS {
            let session = self.session();
            if session.generation != generation {
                break;
            }
            let mut headers = session.headers();
            headers.push((LAST_EVENT.to_owned(), last.clone()));
            let ask = || self.client.gateway_listen(&self.server, &headers);
            let Ok(GatewayAnswer::Stream { events, .. }) = self.client.patiently(ask).await else {
                return End::Broken(None);
            };
            match self.follow(peek, open, events, false).await {
                End::Answered => return End::Answered,
                End::Broken(Some(further)) if further != last => (last, fruitless) = (further, 0),
                End::Broken(_) => fruitless += 1,
            }
            tokio::time::sleep(PAUSE).await;
        }
        End::Broken(None)
    }
}

/// A subscription lasts for as long as the client wants it to; an answer that never comes does not.
fn may_be_asked_again(peek: &Peek, times: u32) -> bool {
    let has_limit = !peek.is("subscriptions/listen");
    peek.revision.is_some() && peek.is_repeatable() && !(has_limit && times >= MOST_FRUITLESS)
}

fn broken_off(peek: &Peek, open: &Open) -> Vec<String> {
    open.replies(|id| replies::broken_off(Some(id), peek.what()))
}
