//! State shared by the reader and the writer of a connection, and the handling of incoming messages.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::WireLimits;
use super::framing::OversizedLine;
use super::pending::{Events, Pending};
use super::usage::Usage;
use super::write_queue::{Outgoing, WriteQueue};
use crate::lock;
use crate::protocol_versions::SUBSCRIPTION;
use crate::wire::audience::Audience;
use crate::wire::error::{CallError, CloseReason};
use crate::wire::inbound::{Pushed, Receivers};
use crate::wire::message::object::{Object, raw};
use crate::wire::message::{Kind, Message, meta};
use crate::wire::protocol_log::ProtocolLog;

/// Upper bound of the first id. It is small enough that JSON parsers with limited precision read all ids exactly.
const MAX_FIRST_ID: u64 = (1 << 46) - 1;

/// Maximum size of a progress or subscription event.
const MAX_EVENT_BYTES: usize = 1 << 20;

pub(crate) const PROGRESS: &str = "notifications/progress";
pub(crate) const CANCELLED: &str = "notifications/cancelled";
pub(crate) const LISTEN: &str = "subscriptions/listen";

pub(crate) struct ConnectionState {
    pub(crate) limits: WireLimits,
    pub(crate) log: Arc<ProtocolLog>,
    pub(crate) pending: Pending,
    pub(crate) queue: WriteQueue,
    pub(crate) inbound: Receivers,
    pub(crate) ended: watch::Sender<Option<CloseReason>>,
    /// Stops the reader and the writer.
    pub(crate) stop: CancellationToken,
    first_id: u64,
    next_id: AtomicU64,
    last_message_at: Mutex<Instant>,
    pub(crate) usage: Usage,
    /// The principals that have made calls.
    pub(crate) audience: Mutex<Audience>,
}

impl ConnectionState {
    pub(crate) fn new(limits: WireLimits, log: Arc<ProtocolLog>, queue: WriteQueue) -> Self {
        let first_id = first_id();
        Self {
            limits,
            log,
            pending: Pending::new(limits.pending),
            queue,
            inbound: Receivers::new(limits.line),
            ended: watch::Sender::new(None),
            stop: CancellationToken::new(),
            first_id,
            next_id: AtomicU64::new(first_id),
            last_message_at: Mutex::new(Instant::now()),
            usage: Usage::new(),
            audience: Mutex::default(),
        }
    }

    pub(crate) fn next_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// Closes the connection. The first reason is kept.
    pub(crate) fn end(&self, reason: &CloseReason) {
        let is_first = self.ended.send_if_modified(|ended| {
            let is_first = ended.is_none();
            if is_first {
                *ended = Some(reason.clone());
            }
            is_first
        });
        if is_first {
            self.log.note(&reason.to_string());
            self.pending.end(reason);
            self.inbound.end();
        }
        self.queue.close();
        self.stop.cancel();
    }

    pub(crate) fn closed_error(&self) -> CallError {
        let reason = self.ended.borrow().clone();
        CallError::Closed(reason.unwrap_or(CloseReason::Detached))
    }

    pub(crate) fn since_last_message(&self) -> Duration {
        lock(&self.last_message_at).elapsed()
    }

    pub(crate) fn on_message(&self, message: Message) {
        *lock(&self.last_message_at) = Instant::now();
        match message.kind() {
            Kind::Response => self.on_response(message),
            Kind::Request => self.on_request(message),
            Kind::Notification => self.on_notification(message),
        }
    }

    /// Returns true if the oversized line belongs to one call, which may have ended.
    pub(crate) fn on_oversized_line(&self, oversized: &OversizedLine) -> bool {
        let limit = self.limits.line;
        let Some(id) = oversized.request_id() else {
            return false;
        };
        let Some(call) = self.pending.take(id) else {
            let is_late = (self.first_id..self.next_id.load(Ordering::Relaxed)).contains(&id);
            if is_late {
                self.log
                    .note("dropped an oversized response to a request that has ended");
            }
            return is_late;
        };
        let note = format!("response to {} exceeds {limit} bytes", call.method);
        self.log.note(&note);
        let _ = call.response.send(Err(CallError::AnswerTooLong { limit }));
        true
    }

    fn on_response(&self, message: Message) {
        let id = message.id().map_or("null", RawValue::get);
        let Some((id, call)) = own_id(id).and_then(|id| Some((id, self.pending.take(id)?))) else {
            self.log.unmatched_response(id);
            return;
        };
        let outcome = match message.error_parts() {
            Some((code, _)) => format!("error {code}"),
            None if message.error().is_some() => "error".to_owned(),
            None => "result".to_owned(),
        };
        let after = call.began.elapsed();
        self.log
            .response(&call.method, id, &outcome, after, message.size());
        let message = match &call.events.caller {
            Some(caller) if *call.method == *LISTEN => with_subscription(message, caller),
            _ => message,
        };
        let _ = call.response.send(Ok(message));
    }

    fn on_request(&self, message: Message) {
        let (Some(id), Some(method)) = (message.id().map(ToOwned::to_owned), message.method())
        else {
            return;
        };
        self.log.received(method, Some(id.get()), message.size());
        if method == "ping" {
            let empty = Object::default().raw();
            self.queue_message(&Message::result(id, empty), "answer to ping");
            return;
        }
        let unsupported = format!("client does not support `{}`", shortened(method));
        let (code, text) = match self.inbound.push(message, Audience::None) {
            Pushed::Queued => return,
            Pushed::NoReceiver => (-32601, unsupported.as_str()),
            Pushed::Dropped => (-32603, "client did not accept the request"),
        };
        self.queue_message(&Message::failure(Some(id), code, text, None), "refusal");
    }

    fn on_notification(&self, message: Message) {
        let method = message.method().unwrap_or_default();
        self.log.received(method, None, message.size());
        if method == PROGRESS {
            if self.on_progress(message).is_none() {
                self.log.note("progress for an unknown request");
            }
            return;
        }
        let meta = message.meta();
        let subscription = meta.and_then(|meta| own_id(meta.get(SUBSCRIPTION)?.get()));
        if let Some(events) = subscription.and_then(|id| self.pending.events(id)) {
            self.on_subscription_event(message, events);
            return;
        }
        let audience = lock(&self.audience).clone();
        self.inbound.push(message, audience);
    }

    /// `None` if it belongs to no pending call.
    fn on_progress(&self, message: Message) -> Option<()> {
        let mut params = Object::parse(message.params()?.get()).ok()?;
        let id = own_id(params.get("progressToken")?.get())?;
        let events = self.pending.events(id)?;
        if let (Some(to), Some(token)) = (events.to, events.token) {
            params.set("progressToken", token);
            self.forward_event(&to, message.with_params(Some(params.raw())));
        }
        Some(())
    }

    fn on_subscription_event(&self, message: Message, events: Events) {
        let params = message.params().map(|raw| Object::parse(raw.get()));
        if let (Some(to), Some(caller), Some(Ok(params))) = (events.to, events.caller, params) {
            let params = params.with_meta(SUBSCRIPTION, caller);
            self.forward_event(&to, message.with_params(Some(params.raw())));
        }
    }

    fn forward_event(&self, to: &mpsc::Sender<Message>, message: Message) {
        if message.size() > MAX_EVENT_BYTES {
            self.log.note("dropped an oversized event");
            return;
        }
        // A slow caller loses events; the reader must not block.
        if to.try_send(message).is_err() {
            self.log.note("dropped an event: caller too slow");
        }
    }

    pub(crate) fn cancel(&self, id: u64) {
        self.queue_message(&cancellation(raw(&id)), CANCELLED);
    }

    /// Drops the message if the queue is full.
    pub(crate) fn queue_message(&self, message: &Message, what: &str) {
        let outgoing = Outgoing {
            line: message.line(),
            what: what.into(),
            id: message.id().map(|id| id.get().into()),
            call: None,
        };
        if !self.queue.try_put(outgoing) {
            self.log.note(&format!("write queue full, dropped: {what}"));
        }
    }
}

pub(crate) fn cancellation(id: Box<RawValue>) -> Message {
    let reason = raw("request cancelled");
    let params = Object::of([("requestId", id), ("reason", reason)]);
    Message::notification(CANCELLED, Some(params.raw()))
}

/// A random first id. The server may outlive the connection and respond to its calls on the next one, so ids
/// must not repeat. The time is not used, because clocks may be set back.
fn first_id() -> u64 {
    RandomState::new().hash_one(()) & MAX_FIRST_ID
}

/// Parses an id that this connection has assigned. Some servers return numbers as strings.
fn own_id(raw: &str) -> Option<u64> {
    let digits = raw.strip_prefix('"').and_then(|raw| raw.strip_suffix('"'));
    digits.unwrap_or(raw).parse().ok()
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
    let result = result.with_meta(SUBSCRIPTION, caller.to_owned()).raw();
    message.with_result(result)
}

fn shortened(text: &str) -> String {
    text.chars().take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::first_id;

    #[test]
    fn the_request_ids_of_two_connections_do_not_overlap() {
        const MAX_CALLS: u64 = 1 << 20;
        let first: Vec<_> = (0..4).map(|_| first_id()).collect();
        for (index, id) in first.iter().enumerate() {
            assert!(*id < 1 << 46);
            let others = first[..index].iter();
            assert!(others.clone().all(|other| id.abs_diff(*other) > MAX_CALLS));
        }
    }
}
