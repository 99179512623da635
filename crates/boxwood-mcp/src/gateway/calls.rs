//! One request of a client's, from its beginning to its answer.
//!
//! Comes in: the request and the stream its answer belongs on. Goes out: whatever the server says about it,
//! then the answer with the client's own id, or an error that names what to do. Never here: HTTP. The call
//! goes on when the client's connection breaks; only the client's word or the end of its session cancels it.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::greet;
use super::members::Members;
use super::outbox::{Matter, Outbox};
use super::own::Own;
use super::params;
use super::refusal::{INVALID_PARAMS, INVALID_REQUEST, Refusal};
use super::session::{Call, Link, Session, Way};
use super::telling::Wish;
use super::upstream::Upstream;
use super::{Inner, Target};
use crate::attendance::Kind as Use;
use crate::hosting::HostingError;
use crate::wire::{Ask, Message};

/// Progress that the client has not taken yet.
const PROGRESS: usize = 64;

/// Where one call's messages go.
#[derive(Clone)]
pub(crate) struct Places {
    pub(crate) answer: Outbox,
    /// The same, unless the client takes no events there.
    pub(crate) news: Outbox,
}

/// The stream is over once the last of these is gone.
pub(crate) struct Closing(pub(crate) Outbox);

impl Drop for Closing {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// `closing` is let go when the answer was given.
pub(crate) fn spawn(
    inner: &Arc<Inner>,
    session: &Arc<Session>,
    call: Call,
    request: Message,
    places: Places,
    closing: Option<Arc<Closing>>,
) {
    let held = inner.sessions.hold(session, Use::Call);
    let inner = Arc::clone(inner);
    let session = Arc::clone(session);
    tokio::spawn(async move {
        let id = request.id().map(ToOwned::to_owned);
        let is_beginning = request.method() == Some("initialize");
        let answer = tokio::select! {
            biased;
            () = call.cancelled() => None,
            answer = perform(&inner, &session, request, &places) => Some(answer),
        };
        if let Some(answer) = answer {
            let answer = match (answer, id) {
                (Ok(answer), Some(id)) => answer.with_id(id),
                (Ok(answer), None) => answer,
                (Err(refusal), id) => refusal.message(id.as_deref()),
            };
            // Before its answer: from then on the client may use the id again.
            drop(call);
            places.answer.answer(&answer);
        }
        drop(closing);
        drop(held);
        // Nobody knows its id, or nobody can use it. What came too early changes nothing about that.
        let is_unbegun = session.greeted().is_none() && session.way() == Way::Streamable;
        if is_beginning && is_unbegun {
            inner.sessions.end(session.id());
        }
    });
}

/// The request's bytes are let go as soon as no server can need them any more: a call may take an hour.
async fn perform(
    inner: &Arc<Inner>,
    session: &Arc<Session>,
    request: Message,
    places: &Places,
) -> Result<Message, Refusal> {
    if request.method() == Some("initialize") {
        return initialize(inner, session, &request).await;
    }
    let Some(greeted) = session.greeted() else {
        // The one thing that may be asked before: whether anybody is there.
        if request.method() == Some("ping") {
            return Ok(Message::result(Box::default(), params::empty()));
        }
        let text = "the session has not begun; send `initialize` first and wait for its answer";
        return Err(Refusal::new(INVALID_REQUEST, text));
    };
    match &greeted.link {
        Link::Shared(members) => shared(inner, session, members, None, request, places).await,
        Link::Company(members, bridged) => {
            let company = Some(bridged.upstream());
            shared(inner, session, members, company, request, places).await
        }
        Link::Own(own) => alone(inner, session, own, request, places).await,
        Link::Bridged(bridged) => {
            let upstream = bridged.upstream();
            relay(inner, session, upstream, request, places).await
        }
    }
}

async fn initialize(
    inner: &Arc<Inner>,
    session: &Arc<Session>,
    request: &Message,
) -> Result<Message, Refusal> {
    if session.greeted().is_some() {
        let text = "the session has begun already; leave `Mcp-Session-Id` out to begin another";
        return Err(Refusal::new(INVALID_REQUEST, text));
    }
    let greeting = greet::greet(inner, session, request.params()).await;
    greeting.map(|result| Message::result(Box::default(), result))
}

async fn shared(
    inner: &Inner,
    session: &Session,
    members: &Members,
    company: Option<&Upstream>,
    request: Message,
    places: &Places,
) -> Result<Message, Refusal> {
    let text = |key: &str| {
        let text = params::text(request.params(), key);
        text.ok_or_else(|| Refusal::new(INVALID_PARAMS, format!("`{key}` must be a string")))
    };
    match request.method() {
        // These are wishes for a whole process, which others use too.
        Some("logging/setLevel") => {
            let level = text("level")?;
            let answer = members.set_level(&level).await?;
            if let Some(company) = company {
                company.set_level(&level).await;
            }
            Ok(answer)
        }
        Some("resources/subscribe") => {
            let uri = text("uri")?;
            let answer = members.subscribe(&uri).await?;
            if let Some(company) = company.filter(|_| answer.error().is_none()) {
                company.subscribe(&uri, true).await;
            }
            Ok(answer)
        }
        Some("resources/unsubscribe") => {
            let uri = text("uri")?;
            if let Some(company) = company {
                company.subscribe(&uri, false).await;
            }
            members.unsubscribe(&uri).await
        }
        // A server knows one client there, so it would show everybody the tasks of all.
        Some(method) if method.starts_with("tasks/") => Err(Refusal::no_method(method)),
        _ => {
            let upstream = match company {
                Some(company) => Ok(company.clone()),
                None => Upstream::find(&inner.all, session.target()).await,
            };
            let upstream = upstream.map_err(|error| Refusal::from(&error))?;
            if let (Members::One(member), Some(behind)) = (members, upstream.behind()) {
                member.hub().hears(&behind.main()).await;
            }
            let busy = match upstream.behind() {
                Some(_) => members.busy(None),
                None => members.busy(inner.all.server_of(&request).as_ref()),
            };
            let answer = relay(inner, session, &upstream, request, places).await;
            members.flush().await;
            drop(busy);
            answer
        }
    }
}

async fn alone(
    inner: &Inner,
    session: &Arc<Session>,
    own: &Own,
    request: Message,
    places: &Places,
) -> Result<Message, Refusal> {
    let Target::One(name) = session.target() else {
        return Err(Refusal::new(INVALID_REQUEST, "there is no such server"));
    };
    let wish = Wish::of(&request);
    if wish.as_ref().is_some_and(|wish| !own.wished.has_room(wish)) {
        return Err(Refusal::too_many_subscriptions());
    }
    let running = match own.running(&*inner.house, name, session).await {
        Ok(running) => running,
        // Better served without being asked than not at all.
        Err(HostingError::Full { .. }) if may_share(&request) => {
            let upstream = Upstream::find(&inner.all, session.target()).await;
            let upstream = upstream.map_err(|error| Refusal::from(&error))?;
            return relay(inner, session, &upstream, request, places).await;
        }
        Err(error) => return Err(Refusal::from(&error)),
    };
    let answer = relay(inner, session, &running.upstream(), request, places).await;
    running.flush().await;
    if let (Some(wish), Ok(answer)) = (wish, &answer)
        && answer.error().is_none()
    {
        own.wished.remember(wish);
    }
    answer
}

/// Not what is for a whole process, nor what has a single owner.
fn may_share(request: &Message) -> bool {
    !request.method().is_some_and(|method| {
        method.starts_with("tasks/")
            || matches!(
                method,
                "logging/setLevel" | "resources/subscribe" | "resources/unsubscribe"
            )
    })
}

async fn relay(
    inner: &Inner,
    session: &Session,
    upstream: &Upstream,
    request: Message,
    places: &Places,
) -> Result<Message, Refusal> {
    let (progress, mut news) = mpsc::channel(PROGRESS);
    let how = Ask {
        timeout: Some(inner.settings.longest_call),
        progress: Some(progress),
        principal: session.principal(),
        ..Ask::default()
    };
    let asking = upstream.request(request, how);
    tokio::pin!(asking);
    let answer = loop {
        tokio::select! {
            biased;
            Some(said) = news.recv() => {
                places.news.push(Matter::News, said.json());
            }
            answer = &mut asking => break answer,
        }
    };
    while let Ok(said) = news.try_recv() {
        places.news.push(Matter::News, said.json());
    }
    answer
}
