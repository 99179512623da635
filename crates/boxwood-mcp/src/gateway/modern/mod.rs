//! The modern protocol version (2026-07-28 and later) over HTTP, without sessions.
//!
//! Modern servers are called through a process shared by all modern clients. Requests for legacy servers
//! are translated.

pub(crate) mod interactive;
pub(crate) mod listen;
pub(crate) mod param_headers;
pub(crate) mod request;
mod respond;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::{HeaderMap, StatusCode};
use serde_json::value::RawValue;
use tokio::sync::mpsc;

use self::interactive::InteractiveRequest;
use self::listen::ListenFilter;
use self::request::ModernRequest;
use crate::agent_server::Answer;
use crate::gateway::aggregate::lists::{Kind, all_items};
use crate::gateway::aggregate::{self, ServerCaller};
use crate::gateway::error::{INTERNAL_ERROR, RpcError};
use crate::gateway::event_stream::budget::MAX_NOTIFICATION_BYTES;
use crate::gateway::http::request::HttpRequest;
use crate::gateway::http::response;
use crate::gateway::json::{object, raw};
use crate::gateway::notifications::log_level::LogLevel;
use crate::gateway::params;
use crate::gateway::server_registry::{HostedServer, relay};
use crate::gateway::tool_filter;
use crate::gateway::{Inner, Target};
use crate::protocol_versions::translate;
use crate::wire::{
    BadMessage, CallError, CallOptions, Connection, Handshake, InboundEvent, InboundFilter,
    Message, Object, Principal,
};

pub(crate) use self::request::is_modern;

/// Queue of notifications to one client.
const NOTIFICATION_QUEUE: usize = 64;
const LISTEN: &str = "subscriptions/listen";
/// Maximum size of `subscriptions/listen`, which is kept while the stream is open.
const MAX_LISTEN_BYTES: usize = 512 * 1024;

pub(crate) async fn answer(
    inner: &Arc<Inner>,
    request: HttpRequest,
    message: Result<Message, BadMessage>,
) -> Answer {
    let HttpRequest {
        target,
        principal,
        head,
    } = request;
    let client_request = match request::read(&head.headers, message) {
        Ok(Some(client_request)) => client_request,
        // This protocol version defines no client notifications over HTTP.
        Ok(None) => return response::bodiless(StatusCode::ACCEPTED),
        Err(rejected) => return response::refused(&rejected.error, rejected.id.as_deref()),
    };
    let id = client_request.id.clone();
    let (notifications, receiver) = mpsc::channel(NOTIFICATION_QUEUE);
    let handler = RequestHandler {
        inner: Arc::clone(inner),
        is_for_one: target != Target::All,
        principal: principal.clone(),
        headers: head.headers,
        client_request: Arc::new(client_request),
        notifications,
    };
    let closed = inner.closed.clone();
    let running = Box::pin(async move {
        tokio::select! {
            biased;
            () = closed.cancelled() => Err(RpcError::new(INTERNAL_ERROR, "daemon is shutting down")),
            answer = handler.run(&target) => answer,
        }
    });
    let client_budget = inner.budget.of(principal);
    respond::reply(
        id,
        running,
        receiver,
        inner.settings.keep_alive,
        client_budget,
    )
    .await
}

#[derive(Clone)]
struct RequestHandler {
    inner: Arc<Inner>,
    /// False at `/mcp/_all`: its lists use the shared processes only, so that they do not start a dedicated
    /// process of each server.
    is_for_one: bool,
    principal: Principal,
    headers: HeaderMap,
    client_request: Arc<ModernRequest>,
    notifications: mpsc::Sender<Message>,
}

impl RequestHandler {
    async fn run(&self, target: &Target) -> Result<Message, RpcError> {
        let method = self.client_request.method.as_str();
        if translate::is_removed(method) {
            return Err(RpcError::method_not_found(method));
        }
        if method == LISTEN && self.client_request.message.size() > MAX_LISTEN_BYTES {
            let text = format!("`{LISTEN}` has more than {MAX_LISTEN_BYTES} bytes");
            return Err(RpcError::malformed(text));
        }
        match target {
            Target::One(name) => {
                let hosted = self.inner.registry.server(name).await?;
                self.call_server(&hosted, method, self.client_request.params.clone())
                    .await
            }
            Target::All => self.call_aggregate(method).await,
        }
    }

    async fn call_aggregate(&self, method: &str) -> Result<Message, RpcError> {
        match method {
            "server/discover" => {
                let capabilities = raw(&aggregate::capabilities());
                let (instructions, info) = (aggregate::INSTRUCTIONS, aggregate::server_info());
                let result = translate::discovery(capabilities, Some(instructions), Some(&info));
                Ok(Message::result(Box::default(), result))
            }
            LISTEN => {
                let filter = ListenFilter::of(&self.client_request.params)?;
                self.listen_to_all(filter, &self.notifications).await
            }
            _ => {
                let all = &self.inner.all;
                let params = self.client_request.params.raw();
                let answer = all.request(self, method, Some(&params)).await?;
                if Kind::of(method).is_none() {
                    return Ok(answer);
                }
                translate::modern_answer(method, answer, Some(&aggregate::server_info()))
            }
        }
    }

    fn options(&self, method: &str) -> CallOptions {
        CallOptions {
            progress: Some(self.notifications.clone()),
            caller: Some(self.client_request.id.clone()),
            principal: self.principal.clone(),
            // Listing all servers must not keep idle servers running.
            is_internal: !self.is_for_one && Kind::of(method).is_some(),
            // Subscriptions have no timeout.
            timeout: (method != LISTEN).then_some(self.inner.settings.longest_call),
        }
    }

    async fn call_server(
        &self,
        hosted: &Arc<dyn HostedServer>,
        method: &str,
        params: Object,
    ) -> Result<Message, RpcError> {
        // The check gets a copy of the parameters, which is dropped before the call.
        tool_filter::check_call(hosted.as_ref(), method, Some(&params.raw()))?;
        match hosted.modern().await? {
            Some(connection) => self.forward(hosted, &connection, method, params).await,
            None => self.forward_translated(hosted, method, params).await,
        }
    }

    /// Forwards the request to a modern server.
    async fn forward(
        &self,
        hosted: &Arc<dyn HostedServer>,
        connection: &Connection,
        method: &str,
        params: Object,
    ) -> Result<Message, RpcError> {
        if method == LISTEN {
            let request = self
                .client_request
                .message
                .clone()
                .with_params(Some(params.raw()));
            return relay(hosted.as_ref(), connection, request, self.options(method)).await;
        }
        let meta_alone = params::meta_alone(&params);
        self.check_mirrored(hosted, connection, method, &params, &meta_alone)
            .await?;
        let answer = self.call_shared(connection, method, params.raw()).await;
        let answer = answer.map_err(|error| RpcError::call_failed(&error, hosted.name()))?;
        Ok(tool_filter::filter_list(hosted.as_ref(), method, answer))
    }

    /// Calls a shared process and passes on the log messages that belong to this client.
    async fn call_shared(
        &self,
        connection: &Connection,
        method: &str,
        params: Box<RawValue>,
    ) -> Result<Message, CallError> {
        let options = self.options(method);
        let request = self.client_request.message.with_call(method, Some(params));
        let Some(level) = self.client_request.level else {
            return connection.relay(request, options).await;
        };
        let mut inbound = connection.inbound(InboundFilter::Forwarded);
        let answering = connection.relay(request, options);
        tokio::pin!(answering);
        loop {
            tokio::select! {
                biased;
                event = inbound.next() => match event {
                    InboundEvent::Message(message) => {
                        let is_log = message.method() == Some("notifications/message");
                        let is_fit = message.size() <= MAX_NOTIFICATION_BYTES && LogLevel::of(&message) >= level;
                        let is_for_client = inbound.audience.has(self.principal.as_deref());
                        if is_log && is_fit && is_for_client {
                            // A slow client loses notifications.
                            let _ = self.notifications.try_send(Message::clone(&message));
                        }
                    }
                    InboundEvent::Lagged(_) => {}
                    InboundEvent::Closed => return answering.await,
                },
                answer = &mut answering => return answer,
            }
        }
    }

    /// Translates the request for a legacy server.
    async fn forward_translated(
        &self,
        hosted: &Arc<dyn HostedServer>,
        method: &str,
        params: Object,
    ) -> Result<Message, RpcError> {
        let handshake = hosted.handshake();
        match method {
            "server/discover" => {
                let result = translate::discovered(&handshake);
                return Ok(Message::result(Box::default(), result));
            }
            LISTEN => {
                let filter = ListenFilter::of(&params)?;
                return self
                    .listen_through_hub(hosted, filter, &self.notifications)
                    .await;
            }
            _ => {}
        }
        if !translate::is_offered(method, &handshake) {
            return Err(RpcError::method_not_found(method));
        }
        let connection = hosted.main();
        self.check_mirrored(hosted, &connection, method, &params, &Object::default())
            .await?;
        let interactive = InteractiveRequest {
            hosted,
            principal: &self.principal,
            client_request: &self.client_request,
            method,
            params: &params,
        };
        let calls = &self.inner.interactive;
        let own = if translate::may_need_input(method) {
            if self.needs_own_process(&handshake, &params) {
                calls.call(&interactive, &self.notifications).await?
            } else {
                None
            }
        } else if self.is_for_one && self.client_request.accepts_server_requests() {
            // Some servers list more for clients with more capabilities.
            calls
                .list(&interactive, self.options(method), LIST_TIMEOUT)
                .await?
        } else {
            None
        };
        if let Some(answer) = own {
            return Ok(answer);
        }
        let request = self
            .client_request
            .message
            .with_call(method, translate::legacy_params(&params));
        let answer = relay(hosted.as_ref(), &connection, request, self.options(method)).await?;
        let answer = tool_filter::filter_list(hosted.as_ref(), method, answer);
        translate::modern_answer(method, answer, handshake.server_info.as_deref())
    }

    /// Returns true if the client needs a process of its own: the server may send requests to it, or log
    /// messages.
    fn needs_own_process(&self, handshake: &Handshake, params: &Object) -> bool {
        params.get("requestState").is_some()
            || self.client_request.accepts_server_requests()
            || (self.client_request.level.is_some() && handshake.has("logging"))
    }

    /// Checks `Mcp-Param-…` headers against the arguments.
    async fn check_mirrored(
        &self,
        hosted: &Arc<dyn HostedServer>,
        connection: &Connection,
        method: &str,
        params: &Object,
        list_params: &Object,
    ) -> Result<(), RpcError> {
        let name = params.text("name").filter(|_| method == "tools/call");
        let Some(tool) = name else {
            return Ok(());
        };
        let server = hosted.name();
        let page = |params| -> BoxFuture<'_, Result<Message, RpcError>> {
            Box::pin(async move {
                let options = CallOptions::internal(LIST_TIMEOUT);
                let answer = connection.request("tools/list", params, options).await;
                answer.map_err(|error| RpcError::call_failed(&error, server))
            })
        };
        let list = all_items(Kind::Tools, server, list_params, &page);
        let cache = &self.inner.param_headers;
        let expected = cache.of(server, connection.id(), &tool, list).await;
        param_headers::check(&expected, &self.headers, params.get("arguments"))
    }
}

/// Timeout of list requests that the gateway sends.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);

impl ServerCaller for RequestHandler {
    fn call<'a>(
        &'a self,
        hosted: Arc<dyn HostedServer>,
        method: &'a str,
        params: Option<Box<RawValue>>,
    ) -> BoxFuture<'a, Result<Message, RpcError>> {
        Box::pin(async move {
            let params = params.as_deref().and_then(object).unwrap_or_default();
            self.call_server(&hosted, method, params).await
        })
    }
}
