//! The messages that a client sends within a session, and each request from start to response.
//!
//! Output: progress and notifications of the call, then the response with the client's request id. The call
//! continues when the client's connection breaks; `notifications/cancelled` and the end of the session
//! cancel it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use crate::gateway::aggregate::lists::Kind as ListKind;
use crate::gateway::aggregate::{ServerCaller, server_info};
use crate::gateway::client_session::client_processes::ClientProcesses;
use crate::gateway::client_session::initialize;
use crate::gateway::client_session::{Call, ClientSession, Initialized, Transport};
use crate::gateway::error::{INTERNAL_ERROR, INVALID_PARAMS, INVALID_REQUEST, RpcError};
use crate::gateway::event_stream::{EventKind, EventStream};
use crate::gateway::notifications::preferences::Preference;
use crate::gateway::params;
use crate::gateway::server_registry::{HostedServer, relay};
use crate::gateway::tool_filter;
use crate::gateway::{Inner, Target};
use crate::hosting::HostingError;
use crate::lock;
use crate::protocol_versions::translate;
use crate::session_activity::Kind as Use;
use crate::wire::{CallError, CallOptions, Kind, Message, Protocol, is_notification};

/// Queue of progress notifications of one call.
const PROGRESS_QUEUE: usize = 64;

/// A process that was silent for this long has missed several pings.
const HUNG_AFTER: Duration = Duration::from_mins(2);

/// Closes the stream when it is dropped.
pub(crate) struct CloseOnDrop(pub(crate) EventStream);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// A response goes to `stream`. `closing` is dropped after it.
pub(crate) async fn dispatch(
    inner: &Arc<Inner>,
    session: &Arc<ClientSession>,
    message: Message,
    stream: &EventStream,
    closing: Option<CloseOnDrop>,
) {
    match (message.kind(), message.id()) {
        (Kind::Request, Some(id)) => match session.begin(id, stream) {
            Ok(call) => spawn(inner, session, call, message, stream.clone(), closing),
            Err(error) => stream.answer(&error.message(Some(id))),
        },
        (Kind::Response, _) => session.respond(message).await,
        (Kind::Request | Kind::Notification, _) => notify(session, message).await,
    }
}

async fn notify(session: &ClientSession, message: Message) {
    match message.method() {
        // The handshake with the process already sent it.
        Some("notifications/initialized") => {}
        // Server request ids differ. Cancelling the call notifies the server.
        Some("notifications/cancelled") => {
            if let Some(id) = params::get(message.params(), "requestId") {
                session.cancel(&id);
            }
        }
        // Client notifications never go to a shared process.
        Some(method) if is_notification(method) => {
            let initialized = session.initialized();
            if let Some(processes) = initialized.and_then(|it| it.processes.as_ref()) {
                processes.notify(&message).await;
            }
        }
        // A request without an id is dropped: some servers would execute it, and no tool filter was
        // applied.
        _ => {}
    }
}

/// `closing` is dropped after the response.
fn spawn(
    inner: &Arc<Inner>,
    session: &Arc<ClientSession>,
    call: Call,
    request: Message,
    stream: EventStream,
    closing: Option<CloseOnDrop>,
) {
    let guard = inner.sessions.hold(session, Use::Call);
    let inner = Arc::clone(inner);
    let session = Arc::clone(session);
    tokio::spawn(async move {
        let id = request.id().map(ToOwned::to_owned);
        let is_initialize = request.method() == Some("initialize");
        let answer = tokio::select! {
            biased;
            () = call.cancelled() => None,
            answer = perform(&inner, &session, request, &stream) => Some(answer),
        };
        if let Some(answer) = answer {
            let answer = match (answer, id) {
                (Ok(answer), Some(id)) => answer.with_id(id),
                (Ok(answer), None) => answer,
                (Err(error), id) => error.message(id.as_deref()),
            };
            // The client may reuse the id as soon as it has the response.
            drop(call);
            stream.answer(&answer);
        }
        drop(closing);
        drop(guard);
        // After a failed `initialize` the client does not know the session id.
        let is_uninitialized =
            session.initialized().is_none() && session.transport == Transport::StreamableHttp;
        if is_initialize && is_uninitialized {
            inner.sessions.end(&session.id);
        }
    });
}

async fn perform(
    inner: &Arc<Inner>,
    session: &Arc<ClientSession>,
    request: Message,
    stream: &EventStream,
) -> Result<Message, RpcError> {
    if request.method() == Some("initialize") {
        return initialize::initialize(inner, session, request.params()).await;
    }
    let Some(initialized) = session.initialized() else {
        // `ping` is allowed before `initialize`.
        if request.method() == Some("ping") {
            return Ok(Message::result(Box::default(), params::empty()));
        }
        let text = "session is not initialized; send `initialize` first and wait for its response";
        return Err(RpcError::new(INVALID_REQUEST, text));
    };
    if let Some(preference) = Preference::of(&request)? {
        return set_preference(inner, session, initialized, preference, request, stream).await;
    }
    match (&initialized.hubs, request.method()) {
        // A shared process would show each client the tasks of all clients.
        (Some(_), Some(method)) if method.starts_with("tasks/") => {
            Err(RpcError::method_not_found(method))
        }
        _ => call_with_progress(inner, session, initialized, request, stream).await,
    }
}

async fn set_preference(
    inner: &Inner,
    session: &Arc<ClientSession>,
    initialized: &Initialized,
    preference: Preference,
    request: Message,
    stream: &EventStream,
) -> Result<Message, RpcError> {
    let is_removal = matches!(preference, Preference::Unsubscribe(_));
    let is_reserved = {
        let mut own = lock(&session.preferences);
        if !own.has_room(&preference) {
            return Err(RpcError::too_many_subscriptions());
        }
        // The hub keeps what it has added, even if the request is cancelled.
        initialized.hubs.is_some() && !is_removal && own.apply(preference.clone())
    };
    let answer = match &initialized.hubs {
        // Other clients use the process too.
        Some(hubs) => hubs.apply(&preference).await,
        None => call_with_progress(inner, session, initialized, request, stream).await,
    };
    let is_accepted = answer.as_ref().is_ok_and(|answer| answer.error().is_none());
    match (&initialized.processes, preference) {
        // Calls run on the dedicated process, and only that one reports what they log and change.
        (Some(processes), preference) if is_accepted && initialized.hubs.is_some() => {
            processes.apply(preference).await;
        }
        (_, preference) if is_accepted => drop(lock(&session.preferences).apply(preference)),
        // The hub has removed it too.
        (_, Preference::Subscribe(uri)) if is_reserved => {
            lock(&session.preferences).uris.remove(&uri);
        }
        (_, Preference::Unsubscribe(uri)) if initialized.hubs.is_some() => {
            lock(&session.preferences).uris.remove(&uri);
        }
        _ => {}
    }
    answer
}

async fn call_with_progress(
    inner: &Inner,
    session: &Arc<ClientSession>,
    initialized: &Initialized,
    request: Message,
    stream: &EventStream,
) -> Result<Message, RpcError> {
    let stream = if stream.accepts_events() {
        stream
    } else {
        &session.standalone_stream
    };
    let (progress, mut received) = mpsc::channel(PROGRESS_QUEUE);
    let options = CallOptions {
        timeout: Some(inner.settings.longest_call),
        progress: Some(progress),
        principal: session.principal(),
        ..CallOptions::default()
    };
    let calling = call(inner, session, initialized, request, options);
    tokio::pin!(calling);
    let answer = loop {
        tokio::select! {
            biased;
            Some(progress) = received.recv() => {
                stream.push(EventKind::Notification, progress.json());
            }
            answer = &mut calling => break answer,
        }
    };
    while let Ok(progress) = received.try_recv() {
        stream.push(EventKind::Notification, progress.json());
    }
    answer
}

async fn call(
    inner: &Inner,
    session: &Arc<ClientSession>,
    initialized: &Initialized,
    request: Message,
    options: CallOptions,
) -> Result<Message, RpcError> {
    let processes = initialized.processes.as_ref();
    match &session.target {
        Target::One(name) => {
            let hosted = inner.registry.server(name).await?;
            if let Some(hubs) = &initialized.hubs {
                hubs.attach(name, &hosted.main());
            }
            // The request is not kept during the call: its bytes count against a limit, and a call may take
            // an hour.
            call_server(processes, &hosted, request, options).await
        }
        Target::All => {
            let caller = AggregateCaller {
                processes,
                request: &request,
                options,
            };
            let method = request.method().unwrap_or_default();
            inner.all.request(&caller, method, request.params()).await
        }
    }
}

/// Calls a server for a legacy client, through the client's own process if it accepts server requests.
pub(crate) async fn call_server(
    processes: Option<&ClientProcesses>,
    hosted: &Arc<dyn HostedServer>,
    request: Message,
    options: CallOptions,
) -> Result<Message, RpcError> {
    let method = request.method().unwrap_or_default().to_owned();
    tool_filter::check_call(hosted.as_ref(), &method, request.params())?;
    let answer = match (hosted.handshake().protocol, processes) {
        (Protocol::Modern, _) => call_modern(hosted.as_ref(), request, options).await?,
        (Protocol::Legacy, Some(processes)) => {
            call_dedicated(processes, hosted, request, options).await?
        }
        (Protocol::Legacy, None) => {
            relay(hosted.as_ref(), &hosted.main(), request, options).await?
        }
    };
    Ok(tool_filter::filter_list(hosted.as_ref(), &method, answer))
}

/// Calls a modern server for a client that does not support its requests for input.
async fn call_modern(
    hosted: &dyn HostedServer,
    request: Message,
    options: CallOptions,
) -> Result<Message, RpcError> {
    // Modern servers do not have these methods.
    if matches!(request.method(), Some("ping" | "logging/setLevel")) {
        return Ok(Message::result(Box::default(), params::empty()));
    }
    let params = translate::modern_params(request.params(), &server_info()).ok_or_else(|| {
        let text = "`params` and `params._meta` must be objects without duplicate keys";
        RpcError::new(INVALID_PARAMS, text)
    })?;
    let request = request.with_params(Some(params.raw()));
    let answer = relay(hosted, &hosted.main(), request, options).await?;
    if translate::requires_input(&answer) {
        let text = "the server requires client input, which it can only request from clients of protocol version 2026-07-28";
        return Err(RpcError::new(INTERNAL_ERROR, text));
    }
    Ok(answer)
}

async fn call_dedicated(
    processes: &ClientProcesses,
    hosted: &Arc<dyn HostedServer>,
    request: Message,
    options: CallOptions,
) -> Result<Message, RpcError> {
    let needs_process = request.method().is_some_and(|method| {
        let is_preference = matches!(
            method,
            "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe"
        );
        is_preference || method.starts_with("tasks/")
    });
    let process = match processes.of(hosted.as_ref()).await {
        Ok(process) => process,
        // The shared process serves the call; server requests are refused.
        Err(HostingError::Full { .. }) if !needs_process => {
            return relay(hosted.as_ref(), &hosted.main(), request, options).await;
        }
        Err(error) => return Err(error.into()),
    };
    let answer = process.connection.relay(request, options).await;
    if matches!(answer, Err(CallError::TimedOut { .. }))
        && process.connection.since_last_message() >= HUNG_AFTER
    {
        // The next call starts a new process. Hosting supervises the shared one.
        process.connection.close();
    }
    answer.map_err(|error| RpcError::call_failed(&error, hosted.name()))
}

/// Calls the servers of the aggregate with the fields of one client request.
struct AggregateCaller<'a> {
    processes: Option<&'a ClientProcesses>,
    request: &'a Message,
    options: CallOptions,
}

impl ServerCaller for AggregateCaller<'_> {
    fn call<'a>(
        &'a self,
        hosted: Arc<dyn HostedServer>,
        method: &'a str,
        params: Option<Box<RawValue>>,
    ) -> BoxFuture<'a, Result<Message, RpcError>> {
        let options = CallOptions {
            // Listing all servers must not keep idle servers running.
            is_internal: ListKind::of(method).is_some(),
            ..self.options.clone()
        };
        Box::pin(async move {
            let request = self.request.with_call(method, params);
            // The lists of all servers come from the shared processes.
            let processes = self.processes.filter(|_| translate::may_need_input(method));
            call_server(processes, &hosted, request, options).await
        })
    }
}
