//! A JSON-RPC connection to one server process, shared by several callers.
//!
//! Request ids and progress tokens are replaced on the way to the server and restored on the way back, so
//! that callers cannot collide.

pub(super) mod framing;
mod pending;
mod reader;
pub(super) mod state;
mod usage;
mod write_queue;
mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::audience::Principal;
use super::error::{CallError, CloseReason};
use super::inbound::{Inbound, InboundFilter};
use super::message::object::{BadObject, Object, raw};
use super::message::{Message, is_notification};
use super::protocol_log::ProtocolLog;
use crate::hosting::ProcessIo;
use crate::{OnDrop, lock};
use pending::{Call, Events};
use state::{CANCELLED, ConnectionState, LISTEN};
use write_queue::{Outgoing, WriteQueue};

/// Maximum size of a message in either direction. It bounds the memory of the daemon, since each process
/// may have several messages in flight.
pub const MAX_MESSAGE_BYTES: usize = 16 << 20;

/// Timeout for writing a message without a response.
const SEND_TIMEOUT: Duration = Duration::from_secs(30);

static OPENED: AtomicU64 = AtomicU64::new(0);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WireLimits {
    /// Maximum bytes of a line, in either direction.
    pub(crate) line: usize,
    /// Maximum number of concurrent calls.
    pub(crate) pending: usize,
    /// Consecutive lines that are not messages before the connection is closed.
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

/// Options of a call.
#[derive(Clone, Default)]
pub(crate) struct CallOptions {
    /// `None` means no timeout.
    pub(crate) timeout: Option<Duration>,
    /// Receives progress with the caller's token, and events of a subscription.
    pub(crate) progress: Option<mpsc::Sender<Message>>,
    /// The caller's request id, which identifies a subscription.
    pub(crate) caller: Option<Box<RawValue>>,
    /// The principal that receives log messages during the call.
    pub(crate) principal: Principal,
    /// A call of the daemon itself. It does not count as use of the server.
    pub(crate) is_internal: bool,
}

impl CallOptions {
    pub(crate) fn with_timeout(timeout: Duration) -> Self {
        Self {
            timeout: Some(timeout),
            ..Self::default()
        }
    }

    pub(crate) fn internal(timeout: Duration) -> Self {
        Self {
            is_internal: true,
            ..Self::with_timeout(timeout)
        }
    }
}

/// Cheap to clone. Detaches from the process when the last clone is dropped; the process keeps running.
#[derive(Clone)]
pub(crate) struct Connection {
    inner: Arc<Inner>,
}

struct Inner {
    id: u64,
    shared: Arc<ConnectionState>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shared.end(&CloseReason::Detached);
    }
}

impl Connection {
    /// Requires a Tokio runtime.
    pub(crate) fn open(
        wire: Box<dyn ProcessIo>,
        limits: WireLimits,
        log: Arc<ProtocolLog>,
    ) -> Self {
        let wire: Arc<dyn ProcessIo> = Arc::from(wire);
        let (queue, lines) = WriteQueue::new(limits.line.saturating_mul(2));
        let shared = Arc::new(ConnectionState::new(limits, log, queue));
        let id = OPENED.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(reader::read(Arc::clone(&wire), Arc::clone(&shared)));
        tokio::spawn(writer::write(wire, Arc::clone(&shared), lines));
        Self {
            inner: Arc::new(Inner { id, shared }),
        }
    }

    /// Unique within the daemon.
    pub(crate) fn id(&self) -> u64 {
        self.inner.id
    }

    /// Sends a request of the daemon. Dropping the future cancels the call.
    pub(crate) async fn request(
        &self,
        method: &str,
        params: Option<Box<RawValue>>,
        options: CallOptions,
    ) -> Result<Message, CallError> {
        // The id is replaced.
        let request = Message::request(raw(&0), method, params);
        self.request_with_timeout(request, options).await
    }

    /// Sends a client's request with all its fields. Returns the response with the client's id, after the
    /// notifications before it were forwarded. Dropping the future cancels the call.
    pub(crate) async fn relay(
        &self,
        request: Message,
        options: CallOptions,
    ) -> Result<Message, CallError> {
        let id = request.id().map(ToOwned::to_owned).unwrap_or_default();
        let options = CallOptions {
            caller: options.caller.or_else(|| Some(id.clone())),
            ..options
        };
        let response = self.request_with_timeout(request, options).await;
        self.inner.shared.inbound.flush().await;
        Ok(response?.with_id(id))
    }

    async fn request_with_timeout(
        &self,
        request: Message,
        options: CallOptions,
    ) -> Result<Message, CallError> {
        let Some(after) = options.timeout else {
            return self.call(request, options).await;
        };
        let method = request.method().unwrap_or_default().to_owned();
        let response = tokio::time::timeout(after, self.call(request, options)).await;
        response.unwrap_or(Err(CallError::TimedOut { method, after }))
    }

    async fn call(&self, request: Message, options: CallOptions) -> Result<Message, CallError> {
        let shared = &self.inner.shared;
        let id = shared.next_id();
        let method: Box<str> = request.method().unwrap_or_default().into();
        let permit = request.permit();
        let (request, token) = with_internal_token(request, id)?;
        let line = request.with_id(raw(&id)).line();
        self.check_size(line.len())?;
        let (sender, response) = oneshot::channel();
        let call = Call {
            method: method.clone(),
            response: sender,
            events: Events {
                to: options.progress,
                token,
                caller: options.caller,
            },
            began: Instant::now(),
            is_written: false,
        };
        shared.pending.add(id, call)?;
        let _in_use = (!options.is_internal).then(|| shared.usage.call());
        // Log messages may belong to any call but a subscription, because events of a subscription carry its id.
        if !options.is_internal && *method != *LISTEN {
            lock(&shared.audience).add(&options.principal);
        }
        let _waiting = OnDrop::new(|| {
            // The specification forbids cancelling `initialize`.
            let is_cancelled = |call: &Call| call.is_written && *call.method != *"initialize";
            if shared
                .pending
                .take(id)
                .is_some_and(|call| is_cancelled(&call))
            {
                shared.cancel(id);
            }
        });
        let outgoing = Outgoing {
            line,
            what: method,
            id: Some(id.to_string().into()),
            call: Some(id),
        };
        if shared.queue.put(outgoing, permit).await.is_err() {
            return Err(shared.closed_error());
        }
        match response.await {
            Ok(response) => response,
            Err(_) => Err(shared.closed_error()),
        }
    }

    /// Sends a notification. Client cancellations are dropped, because their ids are not those of the
    /// server; dropping the call cancels it. Methods that are not notifications are dropped too.
    pub(crate) async fn notify(&self, message: Message) -> Result<(), CallError> {
        let log = &self.inner.shared.log;
        if message.method() == Some(CANCELLED) {
            log.note("dropped a client cancellation");
            return Ok(());
        }
        if !message.method().is_some_and(is_notification) {
            log.note("dropped a request without an id");
            return Ok(());
        }
        self.inner.shared.usage.touch();
        self.send(&message).await
    }

    /// Responds to a request of the server, with the server's id.
    pub(crate) async fn respond(&self, message: Message) -> Result<(), CallError> {
        self.send(&message).await
    }

    /// Receives messages that belong to no call.
    pub(crate) fn inbound(&self, filter: InboundFilter) -> Inbound {
        self.inner.shared.inbound.add(filter)
    }

    /// Completes when the connection is closed. Does not keep it open.
    pub(crate) fn ended(&self) -> impl Future<Output = CloseReason> + Send + 'static {
        let mut ended = self.inner.shared.ended.subscribe();
        async move {
            match ended.wait_for(Option::is_some).await {
                Ok(reason) => reason.clone().unwrap_or(CloseReason::Detached),
                Err(_) => CloseReason::Detached,
            }
        }
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.inner.shared.ended.borrow().is_some()
    }

    /// Time since the last message of the server.
    pub(crate) fn since_last_message(&self) -> Duration {
        self.inner.shared.since_last_message()
    }

    /// Returns true if a client waits for a response.
    pub(crate) fn is_busy(&self) -> bool {
        self.inner.shared.usage.is_busy()
    }

    /// Time since the last use by a client.
    pub(crate) fn idle_for(&self) -> Duration {
        self.inner.shared.usage.idle_for()
    }

    /// Set while a client has a stream open.
    pub(crate) fn set_listening(&self, is_listening: bool) {
        self.inner.shared.usage.set_listening(is_listening);
    }

    /// Time since the last use by a client or the last open stream.
    pub(crate) fn unused_for(&self) -> Duration {
        self.inner.shared.usage.unused_for()
    }

    /// Detaches from the process, which keeps running.
    pub(crate) fn close(&self) {
        self.inner.shared.end(&CloseReason::Detached);
    }

    async fn send(&self, message: &Message) -> Result<(), CallError> {
        let shared = &self.inner.shared;
        let line = message.line();
        self.check_size(line.len())?;
        let outgoing = Outgoing {
            line,
            what: message.method().unwrap_or("answer").into(),
            id: message.id().map(|id| id.get().into()),
            call: None,
        };
        let queueing = shared.queue.put(outgoing, message.permit());
        match tokio::time::timeout(SEND_TIMEOUT, queueing).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(shared.closed_error()),
            Err(_) => Err(CallError::Stuck),
        }
    }

    fn check_size(&self, bytes: usize) -> Result<(), CallError> {
        let limit = self.inner.shared.limits.line;
        if bytes > limit {
            return Err(CallError::TooLarge { bytes, limit });
        }
        Ok(())
    }
}

/// Replaces the progress token and returns the caller's.
fn with_internal_token(
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
    meta.set("progressToken", raw(&id));
    params.set("_meta", meta.raw());
    Ok((request.with_params(Some(params.raw())), Some(token)))
}

/// Other values are left to the server.
fn object(raw: Option<&RawValue>) -> Result<Option<Object>, CallError> {
    match raw.map(|raw| Object::parse(raw.get())) {
        None | Some(Err(BadObject::NotAnObject)) => Ok(None),
        Some(parsed) => parsed.map(Some).map_err(CallError::BadParams),
    }
}
