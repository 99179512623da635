//! What a client sends within a session: its requests begin, its news and answers go where they belong.

use std::sync::Arc;

use super::Inner;
use super::calls::{self, Closing, Places};
use super::outbox::Outbox;
use super::params;
use super::session::{Link, Session};
use crate::wire::{Kind, Message, is_news};

/// Begins every request among the messages. The stream is over once all of them are answered.
pub(crate) async fn take(
    inner: &Arc<Inner>,
    session: &Arc<Session>,
    messages: Vec<Message>,
    outbox: &Outbox,
    takes_events: bool,
) {
    let closing = Arc::new(Closing(outbox.clone()));
    let news = if takes_events {
        outbox.clone()
    } else {
        session.general().clone()
    };
    let places = Places {
        answer: outbox.clone(),
        news,
    };
    for message in messages {
        let kept = Some(Arc::clone(&closing));
        take_one(inner, session, message, &places, takes_events, kept).await;
    }
}

/// The same for a session whose only stream is never over.
pub(crate) async fn take_for_general(inner: &Arc<Inner>, session: &Arc<Session>, message: Message) {
    let places = Places {
        answer: session.general().clone(),
        news: session.general().clone(),
    };
    take_one(inner, session, message, &places, true, None).await;
}

async fn take_one(
    inner: &Arc<Inner>,
    session: &Arc<Session>,
    message: Message,
    places: &Places,
    takes_events: bool,
    closing: Option<Arc<Closing>>,
) {
    match (message.kind(), message.id()) {
        (Kind::Request, Some(id)) => match session.begin(id, &places.answer, takes_events) {
            Ok(call) => calls::spawn(inner, session, call, message, places.clone(), closing),
            Err(refusal) => {
                places.answer.answer(&refusal.message(Some(id)));
            }
        },
        (Kind::Response, _) => answered(session, message).await,
        (Kind::Request | Kind::Notification, _) => noticed(session, message).await,
    }
}

/// Only what was asked can be answered.
async fn answered(session: &Arc<Session>, answer: Message) {
    let is_asked = answer.id().is_some_and(|id| session.questions.settle(id));
    if !is_asked {
        return;
    }
    match session.greeted().map(|greeted| &greeted.link) {
        Some(Link::Own(own)) => own.pass(answer).await,
        // It is not waited for any more when this fails.
        Some(Link::Bridged(bridged) | Link::Company(_, bridged)) => {
            drop(bridged.upstream().respond(answer).await);
        }
        Some(Link::Shared(_)) | None => {}
    }
}

async fn noticed(session: &Arc<Session>, message: Message) {
    match message.method() {
        // The process has been told when it was greeted.
        Some("notifications/initialized") => {}
        // Our id of the call is another one; ending the call tells the server.
        Some("notifications/cancelled") => {
            if let Some(id) = params::get(message.params(), "requestId") {
                session.cancel(&id);
            }
        }
        // Nothing a client says of itself is for a process that others use too.
        Some(method) if is_news(method) => match session.greeted().map(|greeted| &greeted.link) {
            Some(Link::Own(own)) => own.pass(message).await,
            Some(Link::Company(_, bridged)) => bridged.upstream().tell(&message).await,
            Some(Link::Shared(_) | Link::Bridged(_)) | None => {}
        },
        // A request without an id asks for no answer, and some servers carry it out all the same. No filter
        // has seen it.
        _ => {}
    }
}
