//! The stateless era over HTTP.
//!
//! Comes in: a request that stands for itself. Goes out: the server's answer, and before it what belongs to
//! it. A server of both eras is asked in this one, on a process that all such clients share; a server of
//! the era before is asked in its own words. Never here: sessions.

mod alone;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use self::alone::Alone;
use super::aggregate::{self, Aggregate, Asking};
use super::behind::Behind;
use super::budget::{Budget, LARGEST_NEWS};
use super::envelope::{self, Asked, Came, SERVER_INFO, Wrong};
use super::hub::Hubs;
use super::json::{object, raw};
use super::level::Level;
use super::listen::{self, Listening, Wanted};
use super::lists::{Kind, drained};
use super::logs::Logs;
use super::mirrored;
use super::params;
use super::refusal::{INTERNAL_ERROR, Refusal};
use super::reply;
use super::schemas::Schemas;
use super::seats::Seats;
use super::streams::Streams;
use super::translate;
use super::upstream::{admitted, instead, seen};
use super::waiting::Waiting;
use super::web;
use super::{GatewaySettings, Target};
use crate::http_server::Answer;
use crate::wire::{
    Ask, Burden, CallError, Connection, Era, Greeting, Heard, Hears, Message, Object, Principal,
};

pub(crate) use super::envelope::is_modern;

const NEWS: usize = 64;
const LISTEN: &str = "subscriptions/listen";
/// Of a request to listen, which is held for as long as the client likes.
const LARGEST_LISTEN: usize = 512 * 1024;

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct Modern {
    inner: Arc<Inner>,
}

struct Inner {
    all: Aggregate,
    hubs: Arc<Hubs>,
    budget: Budget,
    keep_alive: Duration,
    longest_call: Duration,
    closed: CancellationToken,
    seats: Seats,
    waiting: Waiting,
    schemas: Schemas,
    logs: Logs,
    streams: Streams,
}

impl Modern {
    pub(crate) fn new(
        all: &Aggregate,
        hubs: &Arc<Hubs>,
        budget: &Budget,
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
                seats: Seats::default(),
                waiting: Waiting::default(),
                schemas: Schemas::default(),
                logs: Logs::default(),
                streams: Streams::default(),
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
        let mut asked = match envelope::read(&head.method, &head.headers, body) {
            Ok(Came::Request(asked)) => *asked,
            // This revision knows none that a client could send over HTTP.
            Ok(Came::Notification) => return web::bodiless(StatusCode::ACCEPTED),
            Err(Wrong { id, refusal }) => return reply::refused(id.as_deref(), &refusal),
        };
        let burden = head.extensions.get::<Burden>();
        asked.request = asked.request.counted(burden);
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
                () = closed.cancelled() => Err(Refusal::new(INTERNAL_ERROR, "the daemon stops")),
                answer = one.run(&target) => answer,
            }
        });
        let purse = self.inner.budget.of(principal);
        reply::reply(id, running, heard, self.inner.keep_alive, purse).await
    }

    /// Ends every call, those that wait for their clients too, and the processes that are kept for them.
    pub(crate) fn close(&self) {
        self.inner.closed.cancel();
        self.inner.waiting.close();
        self.inner.seats.close();
    }
}

/// The process that a server has for the stateless era, when it knows that era.
pub(crate) async fn stateless(
    behind: &Arc<dyn Behind>,
) -> Result<Option<(Connection, Arc<Greeting>)>, Refusal> {
    let greeting = behind.greeting();
    if greeting.era == Era::Modern {
        return Ok(Some((behind.main(), greeting)));
    }
    behind.modern().await.map_err(|error| Refusal::from(&error))
}

struct Request {
    inner: Arc<Inner>,
    /// Of all servers' things, only those are listed that every client sees: a process for this client in
    /// each box is too much.
    is_for_one: bool,
    principal: Principal,
    headers: HeaderMap,
    asked: Asked,
    news: mpsc::Sender<Message>,
}

impl Request {
    async fn run(&self, target: &Target) -> Result<Message, Refusal> {
        let method = self.asked.method.as_str();
        if translate::is_removed(method) {
            return Err(Refusal::no_method(method));
        }
        let _stream = match method {
            LISTEN if self.asked.request.size() > LARGEST_LISTEN => {
                let text = format!("`{LISTEN}` has more than {LARGEST_LISTEN} bytes");
                return Err(Refusal::malformed(text));
            }
            LISTEN => Some(self.inner.streams.open(self.principal.as_deref())?),
            _ => None,
        };
        match target {
            Target::One(name) => {
                let behind = self.inner.all.house().server(name).await;
                let behind = behind.map_err(|error| Refusal::from(&error))?;
                self.one(&behind, method, self.asked.params.clone()).await
            }
            Target::All => self.all(method).await,
        }
    }

    async fn all(&self, method: &str) -> Result<Message, Refusal> {
        match method {
            "server/discover" => {
                let capabilities = raw(&aggregate::capabilities());
                let result = translate::discovery(capabilities, Some(aggregate::INSTRUCTIONS));
                Ok(Message::result(Box::default(), identified(result).raw()))
            }
            LISTEN => {
                let wanted = Wanted::of(&self.asked.params)?;
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
            house: Arc::clone(self.inner.all.house()),
            hubs: Arc::clone(&self.inner.hubs),
            asked: Arc::new(self.asked.clone()),
            principal: self.principal.clone(),
        }
    }

    fn how(&self, method: &str) -> Ask {
        Ask {
            progress: Some(self.news.clone()),
            caller: Some(self.asked.id.clone()),
            principal: self.principal.clone(),
            // Whoever lists everything uses no server: one that nobody calls may rest.
            is_ours: !self.is_for_one && Kind::of(method).is_some(),
            // Whoever listens does so for as long as it likes.
            timeout: (method != LISTEN).then_some(self.inner.longest_call),
        }
    }

    async fn one(
        &self,
        behind: &Arc<dyn Behind>,
        method: &str,
        params: Object,
    ) -> Result<Message, Refusal> {
        // A copy, which is not kept while the call goes on.
        admitted(behind.as_ref(), method, Some(&params.raw()))?;
        match stateless(behind).await? {
            Some((connection, _)) => self.passed(behind, &connection, method, params).await,
            None => self.translated(behind, method, params).await,
        }
    }

    /// To a server of the stateless era, as it is.
    async fn passed(
        &self,
        behind: &Arc<dyn Behind>,
        connection: &Connection,
        method: &str,
        params: Object,
    ) -> Result<Message, Refusal> {
        if method == LISTEN {
            let how = self.how(method);
            return listen::by_itself(behind, connection, &self.asked, &params, how).await;
        }
        let meta_alone = params::meta_alone(&params);
        self.check_mirrored(behind, connection, method, &params, &meta_alone)
            .await?;
        let answer = self.heard(connection, method, params.raw()).await;
        let answer = answer.map_err(|error| Refusal::unanswered(&error, behind.name()))?;
        Ok(seen(behind.as_ref(), method, answer))
    }

    /// One call on a shared process, with the log lines that can only be its own.
    async fn heard(
        &self,
        connection: &Connection,
        method: &str,
        params: Box<RawValue>,
    ) -> Result<Message, CallError> {
        let how = self.how(method);
        let request = instead(&self.asked.request, method, Some(params));
        let Some(level) = self.asked.level else {
            return connection.relay(request, how).await;
        };
        let mut inbound = connection.inbound(Hears::Notifications);
        let logs = &self.inner.logs;
        let hearing = logs.join(connection.id(), self.principal.clone());
        let answering = connection.relay(request, how);
        tokio::pin!(answering);
        loop {
            tokio::select! {
                biased;
                heard = inbound.next() => match heard {
                    Heard::Message(message) => {
                        let is_log = message.method() == Some("notifications/message");
                        let is_fit = message.size() <= LARGEST_NEWS && Level::of(&message) >= level;
                        let is_mine = inbound.audience().has(self.principal.as_deref());
                        if is_log && is_fit && is_mine && hearing.is_first() {
                            // Whoever does not read loses news.
                            let _ = self.news.try_send(Message::clone(&message));
                        }
                    }
                    Heard::Missed(_) => {}
                    Heard::Ended => return answering.await,
                },
                answer = &mut answering => return answer,
            }
        }
    }

    /// To a server of the era before, in its words.
    async fn translated(
        &self,
        behind: &Arc<dyn Behind>,
        method: &str,
        params: Object,
    ) -> Result<Message, Refusal> {
        let greeting = behind.greeting();
        match method {
            "server/discover" => {
                let result = translate::discovered(&greeting);
                return Ok(Message::result(Box::default(), result));
            }
            LISTEN => {
                let wanted = Wanted::of(&params)?;
                let listening = self.listening();
                return listening.through_hub(behind, wanted, &self.news).await;
            }
            _ => {}
        }
        if !translate::is_offered(method, &greeting) {
            return Err(Refusal::no_method(method));
        }
        let connection = behind.main();
        self.check_mirrored(behind, &connection, method, &params, &Object::default())
            .await?;
        let alone = if translate::may_need_input(method) {
            if self.needs_own(&greeting, &params) {
                Some(self.alone(behind, method, &params).await)
            } else {
                None
            }
        } else if self.is_for_one && self.asked.can_be_asked() {
            // Some servers list more to clients that offer more.
            Some(self.listed_alone(behind, method, &params).await)
        } else {
            None
        };
        match alone {
            None | Some(Err(Alone::Full | Alone::Late)) => {}
            Some(Err(Alone::Refused(refusal))) => return Err(refusal),
            Some(Ok(answer)) => return Ok(answer),
        }
        let request = instead(
            &self.asked.request,
            method,
            translate::legacy_params(&params),
        );
        let answer = connection.relay(request, self.how(method)).await;
        let answer = answer.map_err(|error| Refusal::unanswered(&error, behind.name()))?;
        let answer = seen(behind.as_ref(), method, answer);
        translate::modern_answer(method, answer, &greeting, &self.asked.capabilities)
    }

    /// Whether the server may have to ask this client, or logs for it alone.
    fn needs_own(&self, greeting: &Greeting, params: &Object) -> bool {
        params.get("requestState").is_some()
            || self.asked.can_be_asked()
            || (self.asked.level.is_some() && greeting.has("logging"))
    }

    /// `Mcp-Param-…` against the arguments of a call.
    async fn check_mirrored(
        &self,
        behind: &Arc<dyn Behind>,
        connection: &Connection,
        method: &str,
        params: &Object,
        list_params: &Object,
    ) -> Result<(), Refusal> {
        let name = params.text("name").filter(|_| method == "tools/call");
        let Some(tool) = name else {
            return Ok(());
        };
        let server = behind.name();
        let page = |params| -> BoxFuture<'_, Result<Message, Refusal>> {
            Box::pin(async move {
                let how = Ask::ours(LISTING);
                let answer = connection.request("tools/list", params, how).await;
                answer.map_err(|error| Refusal::unanswered(&error, server))
            })
        };
        let list = drained(Kind::Tools, server, list_params, &page);
        let names = || self.inner.all.house().names();
        let marked = self
            .inner
            .schemas
            .of(names, server, connection.id(), &tool, list)
            .await;
        mirrored::check(&marked, &self.headers, params.get("arguments"))
    }
}

const LISTING: Duration = Duration::from_secs(10);

impl Asking for Request {
    fn ask<'a>(
        &'a self,
        behind: Arc<dyn Behind>,
        method: &'a str,
        params: Option<Box<RawValue>>,
    ) -> BoxFuture<'a, Result<Message, Refusal>> {
        Box::pin(async move {
            let params = params.as_deref().and_then(object).unwrap_or_default();
            self.one(&behind, method, params).await
        })
    }
}

/// A list of all servers, as this era wants it.
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
