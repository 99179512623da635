//! The HTTP answer to one request of the stateless era.
//!
//! JSON with a status of its own when the answer is all there is; a stream of events as soon as something
//! comes before it, or when it takes long. Dropping the answer drops the call.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::future::BoxFuture;
use futures_util::stream;
use http::{HeaderValue, StatusCode, header};
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::task::JoinError;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use super::budget::{Kept, Purse};
use super::refusal::{INTERNAL_ERROR, Refusal, status_of};
use super::sse::{self, Sending};
use super::web;
use crate::http_server::Answer;
use crate::wire::Message;

/// Mistakes of the client, which have a status of their own, are found long before.
const SILENT_FOR: Duration = Duration::from_secs(10);

type Running = BoxFuture<'static, Result<Message, Refusal>>;
type Finished = (StatusCode, Kept);

pub(crate) fn refused(id: Option<&RawValue>, refusal: &Refusal) -> Answer {
    let mut answer = web::refused(refusal, id);
    if refusal.status == StatusCode::METHOD_NOT_ALLOWED {
        let allowed = HeaderValue::from_static("POST");
        answer.headers_mut().insert(header::ALLOW, allowed);
    }
    answer
}

/// `news` are for the client before the answer.
pub(crate) async fn reply(
    id: Box<RawValue>,
    running: Running,
    mut news: mpsc::Receiver<Message>,
    keep_alive: Duration,
    purse: Purse,
) -> Answer {
    let given = (id.clone(), purse.clone());
    // It goes on while nobody reads, so that what comes of it is counted at once.
    let mut running = AbortOnDropHandle::new(tokio::spawn(async move {
        let (id, purse) = given;
        let (status, message) = finished(&id, running.await);
        (status, purse.keep_answer(&message))
    }));
    let mut sending = Sending::default();
    let mut is_over = false;
    tokio::select! {
        biased;
        Some(first) = news.recv() => say(&mut sending, &purse, &first),
        outcome = &mut running => {
            let (status, answer) = given_up(&id, outcome);
            while let Ok(late) = news.try_recv() {
                say(&mut sending, &purse, &late);
            }
            if sending.is_empty() {
                let json = answer.json.clone();
                return web::json(status, vec![answer], json);
            }
            sending.event(BytesMut::new(), answer);
            is_over = true;
        }
        () = sleep(SILENT_FOR) => sending.sign_of_life(),
    }
    let state = Streaming {
        id,
        running: (!is_over).then_some(running),
        news,
        sending,
        keep_alive,
        purse,
    };
    sse::respond(stream::unfold(state, |mut state| async move {
        let bytes = state.next().await?;
        Some((bytes, state))
    }))
}

struct Streaming {
    id: Box<RawValue>,
    running: Option<AbortOnDropHandle<Finished>>,
    news: mpsc::Receiver<Message>,
    sending: Sending,
    keep_alive: Duration,
    purse: Purse,
}

impl Streaming {
    async fn next(&mut self) -> Option<Bytes> {
        while self.sending.is_empty() {
            let running = self.running.as_mut()?;
            tokio::select! {
                biased;
                Some(message) = self.news.recv() => say(&mut self.sending, &self.purse, &message),
                outcome = running => {
                    self.running = None;
                    let (_, answer) = given_up(&self.id, outcome);
                    while let Ok(late) = self.news.try_recv() {
                        say(&mut self.sending, &self.purse, &late);
                    }
                    self.sending.event(BytesMut::new(), answer);
                }
                () = sleep(self.keep_alive) => self.sending.sign_of_life(),
            }
        }
        self.sending.next()
    }
}

/// Whoever has enough to read loses news.
fn say(sending: &mut Sending, purse: &Purse, news: &Message) {
    if let Some(kept) = purse.keep_news(news.json()) {
        sending.event(BytesMut::new(), kept);
    }
}

fn finished(id: &RawValue, outcome: Result<Message, Refusal>) -> (StatusCode, Message) {
    match outcome {
        Ok(message) => {
            let code = message.error_words().map(|(code, _)| code);
            let status = code.map_or(StatusCode::OK, status_of);
            (status, message.with_id(id.to_owned()))
        }
        Err(refusal) => (refusal.status, refusal.message(Some(id))),
    }
}

/// A call that ended without an answer is answered too.
fn given_up(id: &RawValue, outcome: Result<Finished, JoinError>) -> Finished {
    outcome.unwrap_or_else(|error| {
        tracing::error!(%error, "a call of an MCP client ended without an answer");
        let refusal = Refusal::new(INTERNAL_ERROR, "the call was given up; try again");
        let message = refusal.message(Some(id));
        (refusal.status, Kept::small(message.json()))
    })
}
