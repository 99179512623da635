//! The HTTP answer to one request of the stateless era.
//!
//! JSON with a status of its own when the answer is all there is; a stream of events as soon as something
//! comes before it, or when it takes long. Dropping the answer drops the call.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http::{HeaderValue, StatusCode, header};
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::budget::Purse;
use super::listen::ACKNOWLEDGED;
use super::outbox::{Matter, Outbox, Settled};
use super::refusal::{INTERNAL_ERROR, Refusal, status_of};
use super::sse::{self, Manner};
use super::web;
use crate::http_server::Answer;
use crate::wire::Message;

/// Mistakes of the client, which have a status of their own, are found long before.
const SILENT_FOR: Duration = Duration::from_secs(10);

type Running = BoxFuture<'static, Result<Message, Refusal>>;

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
    news: mpsc::Receiver<Message>,
    keep_alive: Duration,
    purse: Purse,
) -> Answer {
    let outbox = Outbox::passing(purse);
    let status = Arc::<OnceLock<StatusCode>>::default();
    let pumping = pump(id, running, news, outbox.clone(), Arc::clone(&status));
    // It goes on while nobody reads, so that what comes of it is counted at once.
    let pumping = AbortOnDropHandle::new(tokio::spawn(pumping));
    let settled = timeout(SILENT_FOR, outbox.settled()).await;
    let is_silent = settled.is_err();
    match settled {
        Ok(Settled::Answers(answers)) => {
            let json = answers.first().map(|answer| answer.json.clone());
            let status = status.get().copied().unwrap_or_default();
            web::json(status, answers, json.unwrap_or_default())
        }
        Ok(Settled::Events) | Err(_) => {
            let manner = Manner {
                stream: None,
                is_primed: false,
                opening: is_silent.then(|| Bytes::from_static(sse::ALIVE)),
                keep_alive,
            };
            sse::answer(outbox.reader(Some(0)), manner, pumping)
        }
    }
}

/// Everything that comes of a call, as it comes: what waits to be read is counted there.
async fn pump(
    id: Box<RawValue>,
    running: Running,
    mut news: mpsc::Receiver<Message>,
    outbox: Outbox,
    status: Arc<OnceLock<StatusCode>>,
) {
    let mut running = AssertUnwindSafe(running).catch_unwind();
    let outcome = loop {
        // By turns: a server that never stops talking does not keep its call from being given up.
        tokio::select! {
            Some(message) = news.recv() => say(&outbox, &message),
            outcome = &mut running => break outcome,
        }
    };
    while let Ok(late) = news.try_recv() {
        say(&outbox, &late);
    }
    let outcome = outcome.unwrap_or_else(|_| {
        tracing::error!("a call of an MCP client ended without an answer");
        let text = "the call was given up; try again";
        Err(Refusal::new(INTERNAL_ERROR, text))
    });
    let (code, answer) = finished(&id, outcome);
    // Nobody else sets it.
    let _ = status.set(code);
    outbox.answer(&answer);
    outbox.close();
}

/// Whoever has enough to read loses news, but never the word that they will come.
fn say(outbox: &Outbox, news: &Message) {
    let matter = match news.method() {
        Some(ACKNOWLEDGED) => Matter::Ask,
        _ => Matter::News,
    };
    outbox.push(matter, news.json());
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

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use serde_json::json;

    use super::super::budget::Budget;
    use super::super::json::raw;
    use super::*;

    #[tokio::test]
    async fn news_that_nobody_reads_are_counted_and_lost_beyond_a_bound() {
        let budget = Budget::new(64 << 20);
        let purse = budget.of(None);
        let (to, news) = mpsc::channel(1);
        let running: Running = Box::pin(async move {
            let first = Message::notification(ACKNOWLEDGED, None);
            to.send(first).await.expect("somebody takes it");
            let params = raw(&json!({ "text": "x".repeat(1 << 19) }));
            for _ in 0..100 {
                let news = Message::notification("notifications/message", Some(params.clone()));
                to.send(news).await.expect("somebody takes it");
            }
            Ok(Message::result(raw(&1), raw("done")))
        });
        let keep_alive = Duration::from_secs(15);
        let answer = reply(raw(&7), running, news, keep_alive, purse).await;
        let full = async {
            while budget.unread() < 3 << 20 {
                tokio::task::yield_now().await;
            }
        };
        timeout(SILENT_FOR, full).await.expect("it is counted");
        let body = answer.into_body().collect().await.expect("a body");
        let text = String::from_utf8(body.to_bytes().to_vec()).expect("UTF-8");
        assert!(text.len() < 6 << 20, "{} bytes waited", text.len());
        assert!(text.contains(ACKNOWLEDGED) && text.contains(r#""id":7,"result":"done""#));
        assert_eq!(budget.unread(), 0);
    }

    #[tokio::test]
    async fn a_call_that_ends_without_an_answer_is_answered() {
        let (_to, news) = mpsc::channel(1);
        let running: Running = Box::pin(async { panic!("as a mistake of ours would") });
        let purse = Budget::new(1 << 20).of(None);
        let answer = reply(raw(&7), running, news, SILENT_FOR, purse).await;
        let body = answer.into_body().collect().await.expect("a body");
        let text = String::from_utf8(body.to_bytes().to_vec()).expect("UTF-8");
        assert!(text.contains(r#""id":7,"error""#), "{text}");
    }
}
