//! The conversation with one process, shared by all who call it.
//!
//! Comes in: the process's pipes, and calls of many clients at once. Goes out: to each the answers, the
//! progress and the subscriptions that are his. Ids and progress tokens are ours on the way to the server
//! and the caller's on the way back, so that no client can meet another's.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::audience::Principal;
use super::error::{CallError, Ended};
use super::inbound::{Hears, Inbound};
use super::message::{Message, is_news};
use super::object::{BadObject, Object};
use super::pending::{Call, Events};
use super::protocol_log::ProtocolLog;
use super::queue::{Outgoing, Queue};
use super::shared::{CANCELLED, LISTEN, Shared, raw_number};
use super::{reader, writer};
use crate::hosting::Wire;

/// One message of a client or a server, either way. Each process may have some of them on their way at the
/// same time, so this is what bounds the daemon's memory.
pub const MAX_MESSAGE_BYTES: usize = 16 << 20;

/// How long a message without an answer waits for room.
const TO_SEND: Duration = Duration::from_secs(30);

/// How many there were.
static OPENED: AtomicU64 = AtomicU64::new(0);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WireLimits {
    /// Bytes of one line, either way.
    pub(crate) line: usize,
    /// Calls at once.
    pub(crate) pending: usize,
    /// Lines in a row that are no messages before the server counts as broken.
    pub(crate) garbage_lines: usize,
}

impl Default for WireLimits {
    fn default() -> Self {
        Self {
            line: MAX_MESSAGE_BYTES,
            pending: 1024,
            garbage_lines: 100,
        }
    }
}

/// How a call is made.
#[derive(Clone, Default)]
pub(crate) struct Ask {
    /// Without one, only the caller's own patience ends it.
    pub(crate) timeout: Option<Duration>,
    /// Gets what belongs to the call before its answer: progress with the caller's own token, and what
    /// comes of a subscription.
    pub(crate) progress: Option<mpsc::Sender<Message>>,
    /// The caller's own id of the request, which names a subscription.
    pub(crate) caller: Option<Box<RawValue>>,
    /// Whose call it is: what the server says meanwhile is for nobody else.
    pub(crate) principal: Principal,
    /// For our own sake: nobody uses the server because of it.
    pub(crate) is_ours: bool,
}

impl Ask {
    pub(crate) fn within(timeout: Duration) -> Self {
        Self {
            timeout: Some(timeout),
            ..Self::default()
        }
    }

    pub(crate) fn ours(timeout: Duration) -> Self {
        Self {
            is_ours: true,
            ..Self::within(timeout)
        }
    }
}

/// Cheap to clone. The process is let go, and runs on, once the last clone is gone.
#[derive(Clone)]
pub(crate) struct Connection {
    held: Arc<Held>,
}

struct Held {
    id: u64,
    shared: Arc<Shared>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.shared.end(&Ended::Detached);
    }
}

impl Connection {
    /// Needs a Tokio runtime around it.
    pub(crate) fn open(wire: Box<dyn Wire>, limits: WireLimits, log: Arc<ProtocolLog>) -> Self {
        let wire: Arc<dyn Wire> = Arc::from(wire);
        let (queue, lines) = Queue::new(limits.line.saturating_mul(2));
        let shared = Arc::new(Shared::new(limits, log, queue));
        let id = OPENED.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(reader::read(Arc::clone(&wire), Arc::clone(&shared)));
        tokio::spawn(writer::write(wire, Arc::clone(&shared), lines));
        Self {
            held: Arc::new(Held { id, shared }),
        }
    }

    /// No other connection of this process has or had it.
    pub(crate) fn id(&self) -> u64 {
        self.held.id
    }

    /// A request of ours. Dropping the future cancels the call.
    pub(crate) async fn request(
        &self,
        method: &str,
        params: Option<Box<RawValue>>,
        how: Ask,
    ) -> Result<Message, CallError> {
        // The id is replaced by one that is free.
        let request = Message::request(raw_number(0), method, params);
        let timeout = how.timeout;
        in_time(self.ask(request, how), method, timeout).await
    }

    /// A request of a client's, with everything it holds. The answer has the client's id again. Dropping
    /// the future cancels the call.
    pub(crate) async fn relay(&self, request: Message, how: Ask) -> Result<Message, CallError> {
        let (Some(method), Some(id)) = (request.method(), request.id()) else {
            return Err(CallError::NoRequest);
        };
        let (method, id) = (method.to_owned(), id.to_owned());
        let timeout = how.timeout;
        let how = Ask {
            caller: how.caller.or_else(|| Some(id.clone())),
            ..how
        };
        let answer = in_time(self.ask(request, how), &method, timeout).await?;
        Ok(answer.with_id(id))
    }

    async fn ask(&self, request: Message, how: Ask) -> Result<Message, CallError> {
        let shared = &self.held.shared;
        let id = shared.next_id();
        let method: Box<str> = request.method().unwrap_or_default().into();
        let burden = request.burden();
        let (request, token) = with_own_token(request, id)?;
        let line = request.with_id(raw_number(id)).line();
        self.check_size(line.len())?;
        let (answer, answered) = oneshot::channel();
        let call = Call {
            method: method.clone(),
            answer,
            events: Events {
                to: how.progress,
                token,
                caller: how.caller,
            },
            began: Instant::now(),
            is_written: false,
        };
        shared.pending.add(id, call)?;
        let _in_use = (!how.is_ours).then(|| shared.usage.call());
        // A subscription has no end, and its news say whose they are.
        if !how.is_ours && *method != *LISTEN {
            shared.callers().begin(id, how.principal);
        }
        let _waiting = Waiting { shared, id };
        let outgoing = Outgoing {
            line,
            what: method,
            id: Some(id.to_string().into()),
            call: Some(id),
        };
        if shared.queue.put(outgoing, burden).await.is_err() {
            return Err(shared.why_ended());
        }
        match answered.await {
            Ok(answer) => answer,
            Err(_) => Err(shared.why_ended()),
        }
    }

    /// As it is. A client's cancellation is not passed on: its ids are not those the server knows, and might
    /// be another's. Dropping the call cancels it. Nor is what is no news: that has to be a call.
    pub(crate) async fn notify(&self, message: Message) -> Result<(), CallError> {
        let log = &self.held.shared.log;
        if message.method() == Some(CANCELLED) {
            log.note("a cancellation by id was kept back");
            return Ok(());
        }
        if !message.method().is_some_and(is_news) {
            log.note("a request without an id was kept back");
            return Ok(());
        }
        self.held.shared.usage.touch();
        self.send(&message).await
    }

    /// The answer to a request of the server's, with the server's id.
    pub(crate) async fn respond(&self, message: Message) -> Result<(), CallError> {
        let id = message.id().map_or("null", RawValue::get);
        if !self.held.shared.answered_question(id) {
            return Err(CallError::NotAsked);
        }
        self.send(&message).await
    }

    /// The same without waiting for room: for whoever serves others, too. A server that does not read its
    /// input may have to do without an answer.
    pub(crate) fn respond_now(&self, message: &Message) {
        let id = message.id().map_or("null", RawValue::get);
        if self.held.shared.answered_question(id) {
            self.held.shared.say(message, "answer");
        }
    }

    /// What the server says from now on that belongs to no call.
    pub(crate) fn inbound(&self, hears: Hears) -> Inbound {
        self.held.shared.inbound.listen(hears)
    }

    /// Resolves once nothing more will come. Holds on to nothing.
    pub(crate) fn ended(&self) -> impl Future<Output = Ended> + Send + 'static {
        let mut ended = self.held.shared.ended.subscribe();
        async move {
            match ended.wait_for(Option::is_some).await {
                Ok(why) => why.clone().unwrap_or(Ended::Detached),
                Err(_) => Ended::Detached,
            }
        }
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.held.shared.ended.borrow().is_some()
    }

    /// Since the server last said something.
    pub(crate) fn quiet_for(&self) -> Duration {
        self.held.shared.quiet_for()
    }

    /// Whether a client waits for an answer.
    pub(crate) fn is_busy(&self) -> bool {
        self.held.shared.usage.is_busy()
    }

    /// Since a client last wanted something.
    pub(crate) fn idle_for(&self) -> Duration {
        self.held.shared.usage.idle_for()
    }

    /// Whether somebody waits for what the server says unasked.
    pub(crate) fn keep(&self, is_kept: bool) {
        self.held.shared.usage.keep(is_kept);
    }

    /// Since a client last wanted something, or waited for news.
    pub(crate) fn unwanted_for(&self) -> Duration {
        self.held.shared.usage.unwanted_for()
    }

    /// Lets the process go, whoever else holds on to this. It runs on.
    pub(crate) fn close(&self) {
        self.held.shared.end(&Ended::Detached);
    }

    async fn send(&self, message: &Message) -> Result<(), CallError> {
        let shared = &self.held.shared;
        let line = message.line();
        self.check_size(line.len())?;
        let outgoing = Outgoing {
            line,
            what: message.method().unwrap_or("answer").into(),
            id: message.id().map(|id| id.get().into()),
            call: None,
        };
        let putting = shared.queue.put(outgoing, message.burden());
        match tokio::time::timeout(TO_SEND, putting).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(shared.why_ended()),
            Err(_) => Err(CallError::Stuck),
        }
    }

    fn check_size(&self, bytes: usize) -> Result<(), CallError> {
        let limit = self.held.shared.limits.line;
        if bytes > limit {
            return Err(CallError::TooLarge { bytes, limit });
        }
        Ok(())
    }
}

/// Cancels its call when it goes away before the answer.
struct Waiting<'a> {
    shared: &'a Shared,
    id: u64,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let Some(call) = self.shared.pending.take(self.id) else {
            return;
        };
        if call.is_written {
            self.shared.callers().left(self.id);
        } else {
            self.shared.callers().unasked(self.id);
        }
        // The protocol forbids it for `initialize`.
        if call.is_written && *call.method != *"initialize" {
            self.shared.cancel(self.id);
        }
    }
}

async fn in_time(
    asking: impl Future<Output = Result<Message, CallError>>,
    method: &str,
    timeout: Option<Duration>,
) -> Result<Message, CallError> {
    let Some(after) = timeout else {
        return asking.await;
    };
    let asked = tokio::time::timeout(after, asking).await;
    asked.unwrap_or_else(|_| {
        let method = method.to_owned();
        Err(CallError::TimedOut { method, after })
    })
}

/// Puts our own progress token in the place of the caller's, which comes second.
fn with_own_token(
    request: Message,
    id: u64,
) -> Result<(Message, Option<Box<RawValue>>), CallError> {
    let Some(mut params) = object(request.params())? else {
        return Ok((request, None));
    };
    let Some(mut meta) = object(params.get("_meta"))? else {
        return Ok((request, None));
    };
    let Some(token) = meta.get("progressToken").map(ToOwned::to_owned) else {
        return Ok((request, None));
    };
    meta.set("progressToken", raw_number(id));
    params.set("_meta", meta.raw());
    Ok((request.with_params(Some(params.raw())), Some(token)))
}

/// What is no object is not for us to judge: the server does.
fn object(raw: Option<&RawValue>) -> Result<Option<Object>, CallError> {
    match raw.map(|raw| Object::parse(raw.get())) {
        None | Some(Err(BadObject::NotAnObject)) => Ok(None),
        Some(parsed) => parsed.map(Some).map_err(CallError::BadParams),
    }
}
