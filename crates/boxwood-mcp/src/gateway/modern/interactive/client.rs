//! The internal session of a modern client on a legacy server.

use std::sync::Arc;

use boxwood_api::McpServerName;
use futures_util::FutureExt as _;
use serde_json::value::RawValue;

use super::InteractiveRequest;
use crate::gateway::Target;
use crate::gateway::client_session::client_processes::ClientProcesses;
use crate::gateway::client_session::requests::call_server;
use crate::gateway::client_session::{ClientSession, Initialized, Transport};
use crate::gateway::error::RpcError;
use crate::gateway::event_stream::Reader;
use crate::gateway::event_stream::budget::MemoryBudget;
use crate::gateway::json::{digest_of, raw};
use crate::gateway::modern::request::ModernRequest;
use crate::gateway::notifications::log_level::LogLevel;
use crate::gateway::notifications::preferences::Preference;
use crate::gateway::server_registry::HostedServer;
use crate::hosting::HostingError;
use crate::lock;
use crate::protocol_versions::NEWEST_LEGACY;
use crate::protocol_versions::translate::nameless;
use crate::wire::{CallOptions, Message, Object, Principal};

#[derive(Clone, PartialEq, Eq)]
pub(super) struct ClientKey {
    pub(super) server: McpServerName,
    principal: Principal,
    /// Digest of client info and capabilities.
    client: u64,
}

/// The internal session of a client.
pub(super) struct Client {
    pub(super) key: ClientKey,
    pub(super) session: Arc<ClientSession>,
    pub(super) messages: Reader,
    /// No call was made yet.
    pub(super) is_new: bool,
}

impl ClientKey {
    pub(super) fn new(request: &InteractiveRequest<'_>) -> Self {
        let client_request = request.client_request;
        let capabilities = client_request.capabilities.raw();
        Self {
            server: request.hosted.name().clone(),
            principal: request.principal.clone(),
            client: digest_of(&[client_request.client_info.as_deref(), Some(&capabilities)]),
        }
    }
}

impl Client {
    pub(super) fn new(
        key: ClientKey,
        client_request: &ModernRequest,
        budget: &MemoryBudget,
    ) -> Self {
        let session = ClientSession::new(
            "internal".into(),
            Target::One(key.server.clone()),
            key.principal.clone(),
            Transport::Internal,
            budget,
        );
        let session = Arc::new(session);
        let initialized = Initialized {
            version: NEWEST_LEGACY.to_owned(),
            hubs: None,
            processes: Some(ClientProcesses::new(
                &session,
                &initialize_params(client_request),
                false,
            )),
        };
        session.set_initialized(initialized);
        let messages = session.standalone_stream.reader(None);
        Self {
            key,
            session,
            messages,
            is_new: true,
        }
    }

    fn processes(&self) -> Option<&ClientProcesses> {
        self.session.initialized()?.processes.as_ref()
    }

    pub(super) async fn start(&self, hosted: &Arc<dyn HostedServer>) -> Result<(), HostingError> {
        match self.processes() {
            Some(processes) => processes.of(hosted.as_ref()).await.map(drop),
            None => Ok(()),
        }
    }

    pub(super) fn is_running(&self) -> bool {
        self.processes().is_some_and(ClientProcesses::is_running)
    }

    /// Refuses requests that came between two calls, and sets the log level.
    pub(super) async fn prepare(&mut self, level: Option<LogLevel>) {
        if !self.is_new {
            self.session.refuse_requests("the call has ended").await;
            while self.messages.next().now_or_never().flatten().is_some() {}
        }
        let current = lock(&self.session.preferences).level;
        let changed = level.filter(|level| current != Some(*level));
        if let (Some(level), Some(processes)) = (changed, self.processes()) {
            processes.apply(Preference::LogLevel(level)).await;
        }
    }
}

pub(super) async fn call_legacy(
    session: &Arc<ClientSession>,
    hosted: &Arc<dyn HostedServer>,
    request: Message,
    options: CallOptions,
) -> Result<Message, RpcError> {
    let initialized = session.initialized();
    let processes = initialized.and_then(|it| it.processes.as_ref());
    call_server(processes, hosted, request, options).await
}

/// Parameters of `initialize`, derived from the modern request.
fn initialize_params(client_request: &ModernRequest) -> Box<RawValue> {
    let mut capabilities = Object::default();
    for key in ["sampling", "elicitation", "roots", "experimental"] {
        if let Some(value) = client_request.capabilities.get(key) {
            capabilities.set(key, value.to_owned());
        }
    }
    let client_info = client_request.client_info.clone();
    let params = Object::of([
        ("protocolVersion", raw(NEWEST_LEGACY)),
        ("capabilities", capabilities.raw()),
        ("clientInfo", client_info.unwrap_or_else(nameless)),
    ]);
    params.raw()
}
