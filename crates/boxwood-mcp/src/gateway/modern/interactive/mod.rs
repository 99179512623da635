//! Calls of modern clients on legacy servers that may send requests to the client during the call.
//!
//! The client gets an internal session with its own process, like a legacy client. Requests of a legacy
//! server do not name a call, so a session runs one call at a time. If the server sends requests, the call is
//! suspended and the client gets an `input_required` result. It resumes the call with the `requestState` of
//! that result. Idle sessions are kept, because their processes may hold state; hosting stops idle processes.

mod call;
mod client;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use boxwood_api::McpServerName;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::task::AbortOnDropHandle;

use self::call::InteractiveCall;
use self::client::{Client, ClientKey, call_legacy};
use crate::gateway::client_session::table::random_id;
use crate::gateway::error::{INTERNAL_ERROR, INVALID_PARAMS, RpcError};
use crate::gateway::event_stream::budget::MemoryBudget;
use crate::gateway::json::{digest_of, is_object, object};
use crate::gateway::modern::request::ModernRequest;
use crate::gateway::server_registry::HostedServer;
use crate::hosting::HostingError;
use crate::lock;
use crate::protocol_versions::translate;
use crate::wire::{CallOptions, Message, Object, Principal};

/// Time that the client has to respond.
const CLIENT_TIMEOUT: Duration = Duration::from_mins(5);
const MAX_SUSPENDED: usize = 256;
const MAX_SUSPENDED_PER_PRINCIPAL: usize = 32;
/// Maximum number of idle sessions of one client.
const MAX_IDLE: usize = 4;

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct InteractiveCalls {
    state: Arc<Mutex<State>>,
    budget: MemoryBudget,
    longest_call: Duration,
}

#[derive(Default)]
struct State {
    /// Most recently used last.
    idle: Vec<Client>,
    suspended: HashMap<String, SuspendedCall>,
    is_closed: bool,
}

/// What must be equal to resume a call.
#[derive(PartialEq, Eq)]
struct ResumeKey {
    server: McpServerName,
    principal: Principal,
    method: String,
    params: u64,
}

struct SuspendedCall {
    key: ResumeKey,
    call: InteractiveCall,
    _expiry: AbortOnDropHandle<()>,
}

/// One call of a client.
pub(crate) struct InteractiveRequest<'a> {
    pub(crate) hosted: &'a Arc<dyn HostedServer>,
    pub(crate) principal: &'a Principal,
    pub(crate) client_request: &'a ModernRequest,
    pub(crate) method: &'a str,
    pub(crate) params: &'a Object,
}

impl InteractiveRequest<'_> {
    fn resume_key(&self) -> ResumeKey {
        let identity = ["name", "uri", "arguments"].map(|key| self.params.get(key));
        ResumeKey {
            server: self.hosted.name().clone(),
            principal: self.principal.clone(),
            method: self.method.to_owned(),
            params: digest_of(&identity),
        }
    }

    fn legacy(&self) -> Message {
        let params = translate::legacy_params(self.params);
        self.client_request.message.with_call(self.method, params)
    }

    fn modern(&self, answer: Message) -> Result<Message, RpcError> {
        let handshake = self.hosted.handshake();
        translate::modern_answer(self.method, answer, handshake.server_info.as_deref())
    }
}

impl InteractiveCalls {
    pub(crate) fn new(budget: &MemoryBudget, longest_call: Duration) -> Self {
        Self {
            state: Arc::default(),
            budget: budget.clone(),
            longest_call,
        }
    }

    /// Starts or resumes a call. `None` if the limit of dedicated processes is reached.
    pub(crate) async fn call(
        &self,
        request: &InteractiveRequest<'_>,
        notifications: &mpsc::Sender<Message>,
    ) -> Result<Option<Message>, RpcError> {
        let mut call = if request.params.get("requestState").is_some() {
            self.resume(request).await?
        } else {
            let Some(client) = self.client(request).await? else {
                return Ok(None);
            };
            InteractiveCall::begin(self, client, request).await
        };
        match call.run(notifications).await {
            None => self.suspend(request.resume_key(), call).map(Some),
            // The process may hang, so it is not used again.
            Some(Err(error)) => {
                call.discard();
                Err(error)
            }
            Some(Ok(answer)) => {
                call.end().await;
                request.modern(answer).map(Some)
            }
        }
    }

    /// For methods in which servers do not send requests. `None` if there is no response in time, or no
    /// process.
    pub(crate) async fn list(
        &self,
        request: &InteractiveRequest<'_>,
        options: CallOptions,
        limit: Duration,
    ) -> Result<Option<Message>, RpcError> {
        let Some(client) = self.client(request).await? else {
            return Ok(None);
        };
        let calling = call_legacy(&client.session, request.hosted, request.legacy(), options);
        // After a timeout the process is not used again: it may wait for a response of the client.
        let Ok(answer) = timeout(limit, calling).await else {
            return Ok(None);
        };
        self.release(client);
        request.modern(answer?).map(Some)
    }

    /// Returns the idle session that was used last, or starts a new one.
    async fn client(&self, request: &InteractiveRequest<'_>) -> Result<Option<Client>, RpcError> {
        let client_request = request.client_request;
        let key = ClientKey::new(request);
        let idle = {
            let mut state = lock(&self.state);
            let is_own = |client: &Client| client.key == key && client.is_running();
            let own = state.idle.iter().rposition(is_own);
            own.map(|index| state.idle.remove(index))
        };
        if idle.is_some() {
            return Ok(idle);
        }
        let client = Client::new(key, client_request, &self.budget);
        let mut started = client.start(request.hosted).await;
        if matches!(started, Err(HostingError::Full { .. })) {
            // Stop an idle process to make room.
            let unused = {
                let mut state = lock(&self.state);
                let of_server = |other: &Client| other.key.server == client.key.server;
                let oldest = state.idle.iter().position(of_server);
                oldest.map(|index| state.idle.remove(index))
            };
            if unused.is_some() {
                drop(unused);
                started = client.start(request.hosted).await;
            }
        }
        match started {
            Ok(()) => Ok(Some(client)),
            Err(HostingError::Full { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn release(&self, client: Client) {
        let mut state = lock(&self.state);
        let mut removed: Vec<_> = state.idle.extract_if(.., |it| !it.is_running()).collect();
        let is_same = |other: &Client| other.key == client.key;
        if state.idle.iter().filter(|it| is_same(it)).count() >= MAX_IDLE {
            let oldest = state.idle.iter().position(is_same);
            removed.extend(oldest.map(|index| state.idle.remove(index)));
        }
        if state.is_closed || !client.is_running() {
            removed.push(client);
        } else {
            state.idle.push(client);
        }
        drop(state);
        // Outside the lock, because it stops processes.
        drop(removed);
    }

    /// Returns the `input_required` result.
    fn suspend(&self, key: ResumeKey, call: InteractiveCall) -> Result<Message, RpcError> {
        let failed = || RpcError::new(INTERNAL_ERROR, "failed to get random bytes");
        let name = random_id().ok_or_else(failed)?;
        let answer = call.input_required(&name);
        let mut state = lock(&self.state);
        if state.is_closed {
            drop(state);
            return Err(RpcError::new(INTERNAL_ERROR, "daemon is shutting down"));
        }
        let calls = state.suspended.values();
        let of_principal = calls.filter(|other| other.key.principal == key.principal);
        if of_principal.count() >= MAX_SUSPENDED_PER_PRINCIPAL
            || state.suspended.len() >= MAX_SUSPENDED
        {
            drop(state);
            return Err(RpcError::new(
                INTERNAL_ERROR,
                "too many calls wait for client input; answer some of them or try again in five minutes",
            ));
        }
        let expiry = expire(Arc::downgrade(&self.state), name.clone(), call.until);
        let suspended = SuspendedCall {
            key,
            call,
            _expiry: AbortOnDropHandle::new(tokio::spawn(expiry)),
        };
        state.suspended.insert(name, suspended);
        Ok(answer)
    }

    /// Resumes a call with the client's responses. `requestState` is valid once.
    async fn resume(&self, request: &InteractiveRequest<'_>) -> Result<InteractiveCall, RpcError> {
        let unknown = || {
            let text = "unknown or expired `requestState`; repeat the call without it";
            RpcError::new(INVALID_PARAMS, text)
        };
        let name = request.params.text("requestState").ok_or_else(unknown)?;
        let answers = answers(request.params)?;
        let key = request.resume_key();
        let suspended = {
            let mut state = lock(&self.state);
            let found = state.suspended.get(&name);
            if found.is_none_or(|found| found.key != key || found.call.until <= Instant::now()) {
                return Err(unknown());
            }
            state.suspended.remove(&name)
        };
        let mut call = suspended.ok_or_else(unknown)?.call;
        call.respond(request.client_request, &answers).await;
        Ok(call)
    }

    /// Cancels suspended calls and stops idle processes. Others stop with their calls.
    pub(crate) fn close(&self) {
        let mut state = lock(&self.state);
        state.is_closed = true;
        let idle = std::mem::take(&mut state.idle);
        let suspended = std::mem::take(&mut state.suspended);
        drop(state);
        drop((idle, suspended));
    }
}

async fn expire(state: Weak<Mutex<State>>, name: String, until: Instant) {
    sleep_until(until).await;
    if let Some(state) = state.upgrade() {
        let expired = lock(&state).suspended.remove(&name);
        drop(expired);
    }
}

fn answers(params: &Object) -> Result<Object, RpcError> {
    let wrong = |text: &str| RpcError::new(INVALID_PARAMS, text);
    let Some(answers) = params.get("inputResponses") else {
        return Ok(Object::default());
    };
    let answers = object(answers).ok_or_else(|| wrong("`inputResponses` must be an object"))?;
    if answers.iter().any(|(_, answer)| !is_object(answer)) {
        return Err(wrong(
            "each of `inputResponses` must be an object, the result of the request",
        ));
    }
    Ok(answers)
}
