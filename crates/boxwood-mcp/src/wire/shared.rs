//! What the two ends of a connection share, and what is done with each message that comes in.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::value::{RawValue, to_raw_value};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::audience::{Audience, Callers};
use super::connection::WireLimits;
use super::error::{CallError, Ended};
use super::inbound::Ring;
use super::message::{Kind, Message, meta};
use super::object::Object;
use super::overlong::Overlong;
use super::pending::{Events, Pending};
use super::protocol_log::ProtocolLog;
use super::queue::{Outgoing, Queue};
use super::usage::Usage;

/// Requests of the server's that wait for an answer of a client's.
const MOST_QUESTIONS: usize = 256;

/// Where ids begin. All that follow are numbers that every JSON reader has exactly, also one that keeps
/// fourteen digits.
const FIRST_IDS: u64 = (1 << 46) - 1;

/// A message about a call. Many of them may wait for a slow caller.
const LARGEST_EVENT: usize = 1 << 20;

pub(crate) const PROGRESS: &str = "notifications/progress";
pub(crate) const CANCELLED: &str = "notifications/cancelled";
pub(crate) const LISTEN: &str = "subscriptions/listen";
pub(crate) const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

pub(crate) struct Shared {
    pub(crate) limits: WireLimits,
    pub(crate) log: Arc<ProtocolLog>,
    pub(crate) pending: Pending,
    pub(crate) queue: Queue,
    pub(crate) inbound: Arc<Ring>,
    pub(crate) ended: watch::Sender<Option<Ended>>,
    /// Both tasks end when it is cancelled.
    pub(crate) stop: CancellationToken,
    next_id: AtomicU64,
    questions: Mutex<HashSet<Box<str>>>,
    heard_at: Mutex<Instant>,
    pub(crate) usage: Usage,
    callers: Mutex<Callers>,
}

impl Shared {
    pub(crate) fn new(limits: WireLimits, log: Arc<ProtocolLog>, queue: Queue) -> Self {
        Self {
            limits,
            log,
            pending: Pending::new(limits.pending),
            queue,
            inbound: Ring::new(limits.line),
            ended: watch::Sender::new(None),
            stop: CancellationToken::new(),
            next_id: AtomicU64::new(first_id()),
            questions: Mutex::default(),
            heard_at: Mutex::new(Instant::now()),
            usage: Usage::new(),
            callers: Mutex::default(),
        }
    }

    pub(crate) fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// The first reason counts.
    pub(crate) fn end(&self, why: &Ended) {
        let is_first = self.ended.send_if_modified(|ended| {
            let is_first = ended.is_none();
            if is_first {
                *ended = Some(why.clone());
            }
            is_first
        });
        if is_first {
            self.log.note(&why.to_string());
            self.pending.end(why);
            self.inbound.end();
        }
        self.queue.close();
        self.stop.cancel();
    }

    pub(crate) fn why_ended(&self) -> CallError {
        let why = self.ended.borrow().clone();
        CallError::Ended(why.unwrap_or(Ended::Detached))
    }

    pub(crate) fn callers(&self) -> MutexGuard<'_, Callers> {
        self.callers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn quiet_for(&self) -> Duration {
        let heard_at = self.heard_at.lock();
        heard_at.unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    pub(crate) fn hear(&self, message: Message) {
        *self.heard_at.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        match message.kind() {
            Kind::Response => self.hear_answer(message),
            Kind::Request => self.hear_question(message),
            Kind::Notification => self.hear_notification(message),
        }
    }

    /// Whether it could be laid at the door of one call, so that the rest goes on.
    pub(crate) fn hear_overlong(&self, overlong: &Overlong) -> bool {
        let limit = self.limits.line;
        let Some(id) = overlong.answers() else {
            return false;
        };
        let Some(call) = self.pending.take(id) else {
            return false;
        };
        self.callers().answered(id);
        let why = format!("answer of {} is longer than {limit} bytes", call.method);
        self.log.note(&why);
        let _ = call.answer.send(Err(CallError::AnswerTooLong { limit }));
        true
    }

    fn hear_answer(&self, message: Message) {
        let id = message.id().map_or("null", RawValue::get);
        let own = own_id(id);
        // Also of a call that was left: the server is done with it.
        if let Some(id) = own {
            self.callers().answered(id);
        }
        let Some((id, call)) = own.and_then(|id| Some((id, self.pending.take(id)?))) else {
            self.log.answer_to_nobody(id);
            return;
        };
        let how = match message.error_words() {
            Some((code, _)) => format!("error {code}"),
            None if message.error().is_some() => "error".to_owned(),
            None => "result".to_owned(),
        };
        let after = call.began.elapsed();
        self.log
            .answered(&call.method, id, &how, after, message.size());
        let message = match &call.events.caller {
            Some(caller) if *call.method == *LISTEN => with_subscription(message, caller),
            _ => message,
        };
        let _ = call.answer.send(Ok(message));
    }

    fn hear_question(&self, message: Message) {
        let (Some(id), Some(method)) = (message.id().map(ToOwned::to_owned), message.method())
        else {
            return;
        };
        self.log.heard(method, Some(id.get()), message.size());
        if method == "ping" {
            let empty = Object::default().raw();
            self.say(&Message::result(id, empty), "answer to ping");
            return;
        }
        let is_new = {
            let mut questions = self
                .questions
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            questions.len() < MOST_QUESTIONS && questions.insert(id.get().into())
        };
        if !is_new {
            self.refuse(
                id,
                -32600,
                "too many requests at once, or this id is in use",
            );
            return;
        }
        let unsupported = format!("the client does not offer `{}`", short(method));
        let pushed = self.inbound.push(message, Audience::Nobody);
        if !pushed.is_heard {
            self.answered_question(id.get());
            self.refuse(id, -32601, &unsupported);
        }
        self.refuse_lost(pushed.lost_requests);
    }

    fn hear_notification(&self, message: Message) {
        let method = message.method().unwrap_or_default();
        self.log.heard(method, None, message.size());
        if method == PROGRESS {
            if self.hear_progress(message).is_none() {
                self.log.note("progress of nobody's call");
            }
            return;
        }
        if method == CANCELLED {
            let params = message.params().map(|raw| Object::parse(raw.get()));
            let id = params
                .as_ref()
                .and_then(|params| params.as_ref().ok()?.get("requestId"));
            if let Some(id) = id {
                self.answered_question(id.get());
            }
        }
        let meta = message.meta();
        let subscription = meta.and_then(|meta| own_id(meta.get(SUBSCRIPTION)?.get()));
        if let Some(events) = subscription.and_then(|id| self.pending.events(id)) {
            self.hear_subscription(message, events);
            return;
        }
        let audience = self.callers().audience();
        let pushed = self.inbound.push(message, audience);
        self.refuse_lost(pushed.lost_requests);
    }

    /// `None` when it is nobody's.
    fn hear_progress(&self, message: Message) -> Option<()> {
        let mut params = Object::parse(message.params()?.get()).ok()?;
        let id = own_id(params.get("progressToken")?.get())?;
        let events = self.pending.events(id)?;
        if let (Some(to), Some(token)) = (events.to, events.token) {
            params.set("progressToken", token);
            self.hand_over(&to, message.with_params(Some(params.raw())));
        }
        Some(())
    }

    fn hear_subscription(&self, message: Message, events: Events) {
        let params = message.params().map(|raw| Object::parse(raw.get()));
        if let (Some(to), Some(caller), Some(Ok(params))) = (events.to, events.caller, params) {
            let params = with_meta(params, SUBSCRIPTION, caller);
            self.hand_over(&to, message.with_params(Some(params.raw())));
        }
    }

    fn hand_over(&self, to: &mpsc::Sender<Message>, message: Message) {
        if message.size() > LARGEST_EVENT {
            self.log.note("progress that is too large");
            return;
        }
        // Whoever reads progress slowly loses some; the reader waits for nobody.
        if to.try_send(message).is_err() {
            self.log.note("a caller did not take what its call sent");
        }
    }

    /// Whether the server waits for this answer.
    pub(crate) fn answered_question(&self, id: &str) -> bool {
        let questions = self.questions.lock();
        questions.unwrap_or_else(PoisonError::into_inner).remove(id)
    }

    fn refuse_lost(&self, requests: Vec<Arc<Message>>) {
        for request in requests {
            if let Some(id) = request.id() {
                self.answered_question(id.get());
                self.refuse(id.to_owned(), -32603, "the client did not take the request");
            }
        }
    }

    fn refuse(&self, id: Box<RawValue>, code: i64, words: &str) {
        self.say(&Message::failure(Some(id), code, words, None), "refusal");
    }

    pub(crate) fn cancel(&self, id: u64) {
        let mut params = Object::default();
        params.set("requestId", raw_number(id));
        params.set(
            "reason",
            super::object::raw_text("nobody waits for it any more"),
        );
        let message = Message::notification(CANCELLED, Some(params.raw()));
        self.say(&message, CANCELLED);
    }

    /// Without waiting.
    pub(crate) fn say(&self, message: &Message, what: &str) {
        let outgoing = Outgoing {
            line: message.line(),
            what: what.into(),
            id: message.id().map(|id| id.get().into()),
            call: None,
        };
        if !self.queue.try_put(outgoing) {
            self.log.note(&format!("no room to send: {what}"));
        }
    }
}

/// A server that outlived a connection may still answer calls of that: no id comes twice. Clocks are set
/// back, and say nothing about how many ids went before; chance leaves more room than anybody uses.
fn first_id() -> u64 {
    let mut bytes = [0; 8];
    if getrandom::fill(&mut bytes).is_err() {
        // Microseconds run faster than calls do.
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let micros = now.unwrap_or_default().as_micros();
        return u64::try_from(micros).unwrap_or(1) & FIRST_IDS;
    }
    u64::from_le_bytes(bytes) & FIRST_IDS
}

/// One of our ids. Some servers answer with the text of a number.
fn own_id(raw: &str) -> Option<u64> {
    let digits = raw.strip_prefix('"').and_then(|raw| raw.strip_suffix('"'));
    digits.unwrap_or(raw).parse().ok()
}

pub(crate) fn raw_number(number: u64) -> Box<RawValue> {
    to_raw_value(&number).unwrap_or_default()
}

fn with_subscription(message: Message, caller: &RawValue) -> Message {
    let Some(result) = message.outcome() else {
        return message;
    };
    if meta(result).is_none_or(|meta| meta.get(SUBSCRIPTION).is_none()) {
        return message;
    }
    let Ok(result) = Object::parse(result.get()) else {
        return message;
    };
    let result = with_meta(result, SUBSCRIPTION, caller.to_owned()).raw();
    message.with_result(result)
}

fn with_meta(mut object: Object, key: &str, value: Box<RawValue>) -> Object {
    let meta = object.get("_meta").map_or("{}", RawValue::get);
    let mut meta = Object::parse(meta).unwrap_or_default();
    meta.set(key, value);
    object.set("_meta", meta.raw());
    object
}

fn short(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::first_id;

    #[test]
    fn connections_begin_far_from_each_other_whatever_the_clock_says() {
        const MOST_CALLS: u64 = 1 << 20;
        let first: Vec<_> = (0..4).map(|_| first_id()).collect();
        for (at, one) in first.iter().enumerate() {
            assert!(*one < 1 << 46);
            let others = first[..at].iter();
            assert!(
                others
                    .clone()
                    .all(|other| one.abs_diff(*other) > MOST_CALLS)
            );
        }
    }
}
