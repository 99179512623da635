//! The modern protocol version (2026-07-28 and later) over HTTP, without sessions.
//!
//! Modern servers are called through a process shared by all modern clients. Requests for legacy servers
//! are translated.

mod interactive;
pub(crate) mod listen;
mod param_headers;
pub(crate) mod request;
mod respond;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use self::interactive::{InteractiveCalls, InteractiveRequest};
use self::listen::{ListenFilter, Listening};
use self::param_headers::ParamHeaderCache;
use self::request::{Incoming, ModernRequest, Rejected, SERVER_INFO};
use crate::agent_server::Answer;
use crate::gateway::GatewaySettings;
use crate::gateway::Target;
use crate::gateway::aggregate::lists::{Kind, drained};
use crate::gateway::aggregate::{self, Aggregate, ServerCaller};
use crate::gateway::error::{INTERNAL_ERROR, RpcError};
use crate::gateway::event_stream::budget::{MAX_NOTIFICATION_BYTES, MemoryBudget};
use crate::gateway::http::response;
use crate::gateway::json::{object, raw};
use crate::gateway::notifications::hub::Hubs;
use crate::gateway::notifications::log_level::LogLevel;
use crate::gateway::params;
use crate::gateway::protocol_versions::translate;
use crate::gateway::server_registry::HostedServer;
use crate::gateway::tool_filter;
use crate::wire::{
    BodyPermit, CallError, CallOptions, Connection, Handshake, InboundEvent, InboundFilter,
    Message, Object, Principal, Protocol,
};

pub(crate) use self::request::is_modern;

const NEWS: usize = 64;
const LISTEN: &str = "subscriptions/listen";
/// Maximum size of `subscriptions/listen`, which is kept while the stream is open.
const LARGEST_LISTEN: usize = 512 * 1024;

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct ModernGateway {
    inner: Arc<Inner>,
}

struct Inner {
    all: Aggregate,
    hubs: Arc<Hubs>,
    budget: MemoryBudget,
    keep_alive: Duration,
    longest_call: Duration,
    closed: CancellationToken,
    interactive: InteractiveCalls,
    param_headers: ParamHeaderCache,
}

impl ModernGateway {
    pub(crate) fn new(
        all: &Aggregate,
        hubs: &Arc<Hubs>,
        budget: &MemoryBudget,
        settings: &GatewaySettings,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                all: all.clone(),
                hubs: Arc::clone(hubs),
                budget: budget.clone(),
                keep_alive: settings.keep_alive,
                longest_call: settings.longest_call,
                closed: CancellationToken::new(),
                interactive: InteractiveCalls::new(budget, settings.longest_call),
                param_headers: ParamHeaderCache::default(),
            }),
        }
    }

    pub(crate) async fn answer(
        &self,
        target: &Target,
        principal: Option<&str>,
        head: &Parts,
        body: &Bytes,
    ) -> Answer {
        let mut asked = match request::read(&head.method, &head.headers, body) {
            Ok(Incoming::Request(asked)) => *asked,
            // This protocol version defines no client notifications over HTTP.
            Ok(Incoming::Notification) => return response::bodiless(StatusCode::ACCEPTED),
            Err(Rejected { id, error }) => return respond::refused(id.as_deref(), &error),
        };
        let permit = head.extensions.get::<BodyPermit>();
        asked.request = asked.request.counted(permit);
        let id = asked.id.clone();
        let (news, heard) = mpsc::channel(NEWS);
        let principal: Principal = principal.map(Into::into);
        let one = Request {
            inner: Arc::clone(&self.inner),
            is_for_one: matches!(target, Target::One(_)),
            principal: principal.clone(),
            headers: head.headers.clone(),
            asked,
            news,
        };
        let target = target.clone();
        let closed = self.inner.closed.clone();
        let running = Box::pin(async move {
            tokio::select! {
                biased;
                () = closed.cancelled() => Err(RpcError::new(INTERNAL_ERROR, "daemon is shutting down")),
                answer = one.run(&target) => answer,
            }
        });
        let client_budget = self.inner.budget.of(principal);
        respond::reply(id, running, heard, self.inner.keep_alive, client_budget).await
    }

    /// Ends all calls, including suspended ones, and the processes of their clients.
    pub(crate) fn close(&self) {
        self.inner.closed.cancel();
        self.inner.interactive.close();
    }
}

/// The connection for modern clients, if the server supports the modern protocol version.
pub(crate) async fn stateless(
    hosted: &Arc<dyn HostedServer>,
) -> Result<Option<(Connection, Arc<Handshake>)>, RpcError> {
    let handshake = hosted.handshake();
    if handshake.protocol == Protocol::Modern {
        return Ok(Some((hosted.main(), handshake)));
    }
    hosted
        .modern()
        .await
        .map_err(|error| RpcError::from(&error))
}

struct Request {
    inner: Arc<Inner>,
    /// Lists of all servers use the shared processes only: a dedicated process per server would be too
    /// much.
    is_for_one: bool,
    principal: Principal,
    headers: HeaderMap,
    asked: ModernRequest,
    news: mpsc::Sender<Message>,
}

impl Request {
    async fn run(&self, target: &Target) -> Result<Message, RpcError> {
        let method = self.asked.method.as_str();
        if translate::is_removed(method) {
            return Err(RpcError::method_not_found(method));
        }
        if method == LISTEN && self.asked.request.size() > LARGEST_LISTEN {
            let text = format!("`{LISTEN}` has more than {LARGEST_LISTEN} bytes");
            return Err(RpcError::malformed(text));
        }
        match target {
            Target::One(name) => {
                let hosted = self.inner.all.registry().server(name).await;
                let hosted = hosted.map_err(|error| RpcError::from(&error))?;
                self.one(&hosted, method, self.asked.params.clone()).await
            }
            Target::All => self.all(method).await,
        }
    }

    async fn all(&self, method: &str) -> Result<Message, RpcError> {
        match method {
            "server/discover" => {
                let capabilities = raw(&aggregate::capabilities());
                let result = translate::discovery(capabilities, Some(aggregate::INSTRUCTIONS));
                Ok(Message::result(Box::default(), identified(result).raw()))
            }
            LISTEN => {
                let wanted = ListenFilter::of(&self.asked.params)?;
                self.listening()
                    .on_all(&self.inner.all, wanted, &self.news)
                    .await
            }
            _ => {
                let all = &self.inner.all;
                let params = self.asked.params.raw();
                let answer = all.request(self, method, Some(&params)).await?;
                Ok(if Kind::of(method).is_some() {
                    completed(answer)
                } else {
                    answer
                })
            }
        }
    }

    fn listening(&self) -> Listening {
        Listening {
            registry: Arc::clone(self.inner.all.registry()),
            hubs: Arc::clone(&self.inner.hubs),
            asked: Arc::new(self.asked.clone()),
            principal: self.principal.clone(),
        }
    }

    fn how(&self, method: &str) -> CallOptions {
        CallOptions {
            progress: Some(self.news.clone()),
            caller: Some(self.asked.id.clone()),
            principal: self.principal.clone(),
            // Listing all servers must not keep idle servers running.
            is_internal: !self.is_for_one && Kind::of(method).is_some(),
            // Subscriptions have no timeout.
            timeout: (method != LISTEN).then_some(self.inner.longest_call),
        }
    }

    async fn one(
        &self,
        hosted: &Arc<dyn HostedServer>,
        method: &str,
        params: Object,
    ) -> Result<Message, RpcError> {
        // A temporary copy.
        tool_filter::check_call(hosted.as_ref(), method, Some(&params.raw()))?;
        match stateless(hosted).await? {
            Some((connection, _)) => self.passed(hosted, &connection, method, params).await,
            None => self.translated(hosted, method, params).await,
        }
    }

    /// Forwards the request to a modern server.
    async fn passed(
        &self,
        hosted: &Arc<dyn HostedServer>,
        connection: &Connection,
        method: &str,
        params: Object,
    ) -> Result<Message, RpcError> {
        if method == LISTEN {
            let how = self.how(method);
            return listen::by_itself(hosted, connection, &self.asked, &params, how).await;
        }
        let meta_alone = params::meta_alone(&params);
        self.check_mirrored(hosted, connection, method, &params, &meta_alone)
            .await?;
        let answer = self.heard(connection, method, params.raw()).await;
        let answer = answer.map_err(|error| RpcError::call_failed(&error, hosted.name()))?;
        Ok(tool_filter::filter_list(hosted.as_ref(), method, answer))
    }

    /// Calls a shared process and passes on the log messages that belong to this client.
    async fn heard(
        &self,
        connection: &Connection,
        method: &str,
        params: Box<RawValue>,
    ) -> Result<Message, CallError> {
        let how = self.how(method);
        let request = self.asked.request.with_call(method, Some(params));
        let Some(level) = self.asked.level else {
            return connection.relay(request, how).await;
        };
        let mut inbound = connection.inbound(InboundFilter::Notifications);
        let answering = connection.relay(request, how);
        tokio::pin!(answering);
        loop {
            tokio::select! {
                biased;
                heard = inbound.next() => match heard {
                    InboundEvent::Message(message) => {
                        let is_log = message.method() == Some("notifications/message");
                        let is_fit = message.size() <= MAX_NOTIFICATION_BYTES && LogLevel::of(&message) >= level;
                        let is_mine = inbound.audience().has(self.principal.as_deref());
                        if is_log && is_fit && is_mine {
                            // A slow client loses notifications.
                            let _ = self.news.try_send(Message::clone(&message));
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
    async fn translated(
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
                let wanted = ListenFilter::of(&params)?;
                let listening = self.listening();
                return listening.through_hub(hosted, wanted, &self.news).await;
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
            principal: self.principal.as_deref(),
            asked: &self.asked,
            method,
            params: &params,
        };
        let own = if translate::may_need_input(method) {
            if self.needs_own(&handshake, &params) {
                self.inner
                    .interactive
                    .call(&interactive, &self.news)
                    .await?
            } else {
                None
            }
        } else if self.is_for_one && self.asked.accepts_server_requests() {
            // Some servers list more for clients with more capabilities.
            let how = self.how(method);
            self.inner
                .interactive
                .list(&interactive, how, LIST_TIMEOUT)
                .await?
        } else {
            None
        };
        if let Some(answer) = own {
            return Ok(answer);
        }
        let request = self
            .asked
            .request
            .with_call(method, translate::legacy_params(&params));
        let answer = connection.relay(request, self.how(method)).await;
        let answer = answer.map_err(|error| RpcError::call_failed(&error, hosted.name()))?;
        let answer = tool_filter::filter_list(hosted.as_ref(), method, answer);
        translate::modern_answer(method, answer, &handshake, &self.asked.capabilities)
    }

    /// The server may send requests to this client, or log messages for it.
    fn needs_own(&self, handshake: &Handshake, params: &Object) -> bool {
        params.get("requestState").is_some()
            || self.asked.accepts_server_requests()
            || (self.asked.level.is_some() && handshake.has("logging"))
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
                let how = CallOptions::internal(LIST_TIMEOUT);
                let answer = connection.request("tools/list", params, how).await;
                answer.map_err(|error| RpcError::call_failed(&error, server))
            })
        };
        let list = drained(Kind::Tools, server, list_params, &page);
        let cache = &self.inner.param_headers;
        let marked = cache.of(server, connection.id(), &tool, list).await;
        param_headers::check(&marked, &self.headers, params.get("arguments"))
    }
}

const LIST_TIMEOUT: Duration = Duration::from_secs(10);

impl ServerCaller for Request {
    fn ask<'a>(
        &'a self,
        hosted: Arc<dyn HostedServer>,
        method: &'a str,
        params: Option<Box<RawValue>>,
    ) -> BoxFuture<'a, Result<Message, RpcError>> {
        Box::pin(async move {
            let params = params.as_deref().and_then(object).unwrap_or_default();
            self.one(&hosted, method, params).await
        })
    }
}

/// Adds the fields that this protocol version requires in a list.
fn completed(answer: Message) -> Message {
    let Some(mut result) = answer.outcome().and_then(object) else {
        return answer;
    };
    result.set("resultType", raw("complete"));
    translate::cacheable(&mut result);
    let result = identified(result).raw();
    answer.with_result(result)
}

fn identified(mut result: Object) -> Object {
    let mut meta = result.get("_meta").and_then(object).unwrap_or_default();
    meta.set(SERVER_INFO, raw(&aggregate::server_info()));
    result.set("_meta", meta.raw());
    result
}
