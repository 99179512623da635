//! The session of one legacy client: its process, its active requests and its streams.

pub(crate) mod client_processes;
pub(crate) mod initialize;
pub(crate) mod pending_requests;
pub(crate) mod requests;
pub(crate) mod table;

use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use serde_json::value::RawValue;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::gateway::Target;
use crate::gateway::client_session::client_processes::ClientProcesses;
use crate::gateway::client_session::pending_requests::{PendingRequests, Responder};
use crate::gateway::error::{INVALID_REQUEST, RpcError};
use crate::gateway::event_stream::budget::MemoryBudget;
use crate::gateway::event_stream::{EventKind, EventStream, Mode};
use crate::gateway::notifications::membership::HubMemberships;
use crate::gateway::notifications::preferences::Preferences;
use crate::gateway::notifications::subscriptions::{RESOURCE_UPDATED, is_list_change};
use crate::wire::{Message, Principal};
use crate::{OnDrop, lock};

/// Maximum number of concurrent requests of one session.
const MAX_CALLS: usize = 128;

/// A finished stream can be resumed for this time.
const RESUMABLE_FOR: Duration = Duration::from_mins(1);

/// The stream that belongs to no request.
pub(crate) const STANDALONE_STREAM: u64 = 0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    StreamableHttp,
    /// One stream carries all messages. The session ends with it.
    LegacySse,
    /// A modern client, whose calls read the stream.
    Internal,
}

/// How the session reaches its servers.
pub(crate) struct Initialized {
    pub(crate) version: String,
    /// Notifications of shared processes. `None` if the only server has a dedicated process.
    pub(crate) hubs: Option<HubMemberships>,
    /// Set if the client accepts server requests.
    pub(crate) processes: Option<ClientProcesses>,
}

pub(crate) struct ClientSession {
    pub(crate) id: Arc<str>,
    pub(crate) target: Target,
    principal: Principal,
    pub(crate) transport: Transport,
    initialized: OnceLock<Initialized>,
    pub(crate) standalone_stream: EventStream,
    /// Number of open `GET` streams.
    streams: watch::Sender<usize>,
    calls: Mutex<Calls>,
    pub(crate) pending: PendingRequests,
    /// URIs as the client knows them.
    pub(crate) preferences: Arc<Mutex<Preferences>>,
    ended: CancellationToken,
}

#[derive(Default)]
struct Calls {
    active: Vec<ActiveCall>,
    /// Streams that the client can resume with `Last-Event-ID`.
    streams: Vec<(u64, EventStream)>,
    last_stream: u64,
}

struct ActiveCall {
    id: Box<str>,
    event_stream: EventStream,
    cancelled: CancellationToken,
}

impl ClientSession {
    pub(crate) fn new(
        id: Arc<str>,
        target: Target,
        principal: Principal,
        transport: Transport,
        budget: &MemoryBudget,
    ) -> Self {
        let client_budget = budget.of(principal.clone());
        let mode = match transport {
            Transport::StreamableHttp => Mode::Resumable,
            Transport::LegacySse | Transport::Internal => Mode::ReadOnce,
        };
        Self {
            id,
            target,
            standalone_stream: EventStream::new(client_budget, mode),
            principal,
            transport,
            initialized: OnceLock::new(),
            streams: watch::Sender::new(0),
            calls: Mutex::default(),
            pending: PendingRequests::default(),
            preferences: Arc::default(),
            ended: CancellationToken::new(),
        }
    }

    pub(crate) fn principal(&self) -> Principal {
        self.principal.clone()
    }

    pub(crate) fn is_for(&self, target: &Target, principal: Option<&str>) -> bool {
        self.target == *target && self.principal.as_deref() == principal
    }

    pub(crate) fn initialized(&self) -> Option<&Initialized> {
        self.initialized.get()
    }

    pub(crate) fn version(&self) -> Option<&str> {
        Some(self.initialized()?.version.as_str())
    }

    /// Returns false if the session was initialized before.
    pub(crate) fn set_initialized(&self, initialized: Initialized) -> bool {
        self.initialized.set(initialized).is_ok()
    }

    /// Number of open `GET` streams.
    pub(crate) fn streams(&self) -> watch::Receiver<usize> {
        self.streams.subscribe()
    }

    /// Counts as an open stream until the guard is dropped.
    pub(crate) fn open_stream(&self) -> OnDrop<impl FnOnce() + use<>> {
        self.streams.send_modify(|count| *count += 1);
        // Does not keep the session alive.
        let streams = self.streams.clone();
        OnDrop::new(move || streams.send_modify(|count| *count = count.saturating_sub(1)))
    }

    /// Keeps a stream that the client can resume, and returns its number.
    pub(crate) fn add_stream(&self, event_stream: &EventStream) -> u64 {
        let mut calls = lock(&self.calls);
        calls.last_stream += 1;
        let number = calls.last_stream;
        calls.streams.push((number, event_stream.clone()));
        number
    }

    pub(crate) fn find_stream(&self, number: u64) -> Option<EventStream> {
        if number == STANDALONE_STREAM {
            return Some(self.standalone_stream.clone());
        }
        self.remove_old_streams();
        let calls = lock(&self.calls);
        let found = calls.streams.iter().find(|(one, _)| *one == number);
        found.map(|(_, event_stream)| event_stream.clone())
    }

    /// Finished streams are kept for a short time only.
    pub(crate) fn remove_old_streams(&self) {
        let is_old =
            |stream: &EventStream| stream.closed_for().is_some_and(|it| it > RESUMABLE_FOR);
        lock(&self.calls)
            .streams
            .retain(|(_, stream)| !is_old(stream));
    }

    /// The request is registered until the returned guard is dropped.
    pub(crate) fn begin(
        self: &Arc<Self>,
        id: &RawValue,
        event_stream: &EventStream,
    ) -> Result<Call, RpcError> {
        let mut calls = lock(&self.calls);
        if calls.active.iter().any(|call| *call.id == *id.get()) {
            let text = "request id is already in use";
            return Err(RpcError::new(INVALID_REQUEST, text));
        }
        if calls.active.len() >= MAX_CALLS {
            let text =
                format!("session has {MAX_CALLS} active requests; wait for some of them to finish");
            return Err(RpcError::new(INVALID_REQUEST, text));
        }
        let cancelled = self.ended.child_token();
        calls.active.push(ActiveCall {
            id: id.get().into(),
            event_stream: event_stream.clone(),
            cancelled: cancelled.clone(),
        });
        drop(calls);
        Ok(Call {
            session: Arc::clone(self),
            id: id.get().into(),
            cancelled,
        })
    }

    /// Cancels a request. Its response is dropped.
    pub(crate) fn cancel(&self, id: &RawValue) {
        let calls = lock(&self.calls);
        if let Some(call) = calls.active.iter().find(|call| *call.id == *id.get()) {
            call.cancelled.cancel();
        }
    }

    /// The stream of the newest request: messages of the server during a call most likely belong to it.
    fn current_stream(&self) -> EventStream {
        let calls = lock(&self.calls);
        let mut streams = calls.active.iter().rev().map(|call| &call.event_stream);
        let open = streams.find(|stream| stream.accepts_events() && !stream.is_abandoned());
        open.unwrap_or(&self.standalone_stream).clone()
    }

    /// Sends a notification of the server.
    pub(crate) fn send_notification(&self, message: &Message) {
        let method = message.method().unwrap_or_default();
        let stream = if is_list_change(method) || method == RESOURCE_UPDATED {
            self.standalone_stream.clone()
        } else {
            self.current_stream()
        };
        stream.push(EventKind::Notification, message.json());
    }

    /// Sends a request of a server under a new id. Returns the responder if the client has too many open
    /// requests.
    pub(crate) fn send_request(
        &self,
        request: &Message,
        responder: Responder,
    ) -> Result<(), Responder> {
        let stream = self.current_stream();
        if stream.is_backlogged() {
            return Err(responder);
        }
        let id = self.pending.add(responder)?;
        let request = request.clone().with_id(id.clone());
        if stream.push(EventKind::Request, request.json()) {
            return Ok(());
        }
        self.pending.take(&id).map_or(Ok(()), Err)
    }

    /// Passes the client's response to the server. Responses to unknown requests are ignored.
    pub(crate) async fn respond(&self, answer: Message) {
        let responder = answer.id().and_then(|id| self.pending.take(id));
        if let Some(responder) = responder {
            responder.respond(answer).await;
        }
    }

    /// Refuses all open requests of servers.
    pub(crate) async fn refuse_requests(&self, text: &str) {
        for responder in self.pending.take_all() {
            responder.refuse(text).await;
        }
    }

    /// Cancels the active requests and closes the streams. Processes stop with the last request.
    pub(crate) fn end(&self) {
        self.ended.cancel();
        self.standalone_stream.close();
    }
}

/// See [`ClientSession::begin`].
pub(crate) struct Call {
    session: Arc<ClientSession>,
    id: Box<str>,
    cancelled: CancellationToken,
}

impl Call {
    pub(crate) async fn cancelled(&self) {
        self.cancelled.cancelled().await;
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        let mut calls = lock(&self.session.calls);
        calls.active.retain(|call| *call.id != *self.id);
    }
}
