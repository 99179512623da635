//! A session's places at the hubs of the servers it shares with others.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use boxwood_api::McpServerName;
use futures_util::future::join_all;
use tokio_util::task::AbortOnDropHandle;

use super::Inner;
use super::hub::{Busy, Member};
use super::level::Level;
use super::names;
use super::outward::outward_news;
use super::params;
use super::presence::Presence;
use super::refusal::{INVALID_PARAMS, Refusal};
use super::session::Session;
use super::wishes::{Listener, UriBytes};
use crate::wire::Message;

pub(crate) enum Members {
    One(Arc<Member>),
    Many(Arc<Many>),
}

impl Members {
    pub(crate) fn of_one(inner: &Inner, session: &Arc<Session>, name: &McpServerName) -> Self {
        let listener = News {
            session: Arc::downgrade(session),
            server: None,
        };
        let hub = inner.hubs.of(name);
        let member = hub.join(Arc::new(listener), session.principal(), UriBytes::default());
        Self::One(Arc::new(member))
    }

    pub(crate) fn of_all(inner: &Arc<Inner>, session: &Arc<Session>) -> Self {
        Self::Many(Many::begin(inner, session))
    }

    /// A call of the session goes on until it is dropped. Of many servers, `server` is called.
    pub(crate) fn busy(&self, server: Option<&McpServerName>) -> Option<Busy> {
        match self {
            Self::One(member) => Some(member.busy()),
            Self::Many(many) => many.members().get(server?).map(Member::busy),
        }
    }

    /// What one server said before its answer is passed on. Of many, none is waited for.
    pub(crate) async fn flush(&self) {
        if let Self::One(member) = self {
            member.hub().flush().await;
        }
    }

    pub(crate) async fn set_level(&self, level: &str) -> Result<Message, Refusal> {
        match self {
            Self::One(member) => member.set_level(level).await,
            Self::Many(many) => many.set_level(level).await,
        }
    }

    pub(crate) async fn subscribe(&self, uri: &str) -> Result<Message, Refusal> {
        match self {
            Self::One(member) => member.subscribe(uri).await,
            Self::Many(many) => {
                let (member, uri) = many.find(uri)?;
                member.subscribe(uri).await
            }
        }
    }

    pub(crate) async fn unsubscribe(&self, uri: &str) -> Result<Message, Refusal> {
        match self {
            Self::One(member) => member.unsubscribe(uri).await,
            Self::Many(many) => {
                let (member, uri) = many.find(uri)?;
                member.unsubscribe(uri).await
            }
        }
    }
}

/// Passes news on to a session that is still there.
struct News {
    session: Weak<Session>,
    /// When there are several, what is said names it.
    server: Option<McpServerName>,
}

impl Listener for News {
    fn hear(&self, message: &Arc<Message>) {
        let Some(session) = self.session.upgrade() else {
            return;
        };
        match &self.server {
            None => session.tell(message),
            Some(server) => session.tell(&outward_news(server, message)),
        }
    }
}

/// Every server's hub, as servers come and go.
pub(crate) struct Many {
    members: Mutex<BTreeMap<McpServerName, Arc<Member>>>,
    level: Mutex<Option<String>>,
    uri_bytes: UriBytes,
    following: OnceTask,
}

type OnceTask = std::sync::OnceLock<AbortOnDropHandle<()>>;

impl Many {
    fn begin(inner: &Arc<Inner>, session: &Arc<Session>) -> Arc<Self> {
        let many = Arc::new(Self {
            members: Mutex::default(),
            level: Mutex::default(),
            uri_bytes: UriBytes::default(),
            following: OnceTask::new(),
        });
        let following = follow(
            Arc::downgrade(inner),
            Arc::downgrade(session),
            Arc::downgrade(&many),
        );
        let task = AbortOnDropHandle::new(tokio::spawn(following));
        // Nobody else has set it.
        let _ = many.following.set(task);
        many
    }

    fn members(&self) -> MutexGuard<'_, BTreeMap<McpServerName, Arc<Member>>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn level(&self) -> Option<String> {
        let level = self.level.lock();
        level.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A server that has no log is no obstacle for the others, and one that rests is told when it is there.
    async fn set_level(&self, level: &str) -> Result<Message, Refusal> {
        Level::required(level)?;
        let members: Vec<_> = self.members().values().cloned().collect();
        *self.level.lock().unwrap_or_else(PoisonError::into_inner) = Some(level.to_owned());
        let (here, away): (Vec<_>, Vec<_>) =
            members.iter().partition(|member| member.is_connected());
        for member in away {
            member.wish_level(level);
        }
        let mut answers = join_all(here.iter().map(|member| member.set_level(level))).await;
        let is_taken = |answer: &Result<Message, Refusal>| {
            answer.as_ref().is_ok_and(|answer| answer.error().is_none())
        };
        let best = answers.iter().position(is_taken).unwrap_or_default();
        if best < answers.len() {
            answers.swap_remove(best)
        } else {
            Ok(Message::result(Box::default(), params::empty()))
        }
    }

    fn find<'a>(&self, uri: &'a str) -> Result<(Arc<Member>, &'a str), Refusal> {
        let split = names::split_uri(uri);
        let found = split.and_then(|(server, uri)| {
            let member = self.members().get(&server).cloned();
            member.map(|member| (member, uri))
        });
        let text = "no such resource; its URI begins with `mcp://` and the server's name";
        found.ok_or_else(|| Refusal::new(INVALID_PARAMS, text))
    }
}

async fn follow(inner: Weak<Inner>, session: Weak<Session>, many: Weak<Many>) {
    let Some(mut changes) = inner.upgrade().map(|inner| inner.house.changes()) else {
        return;
    };
    let mut presence = Presence::default();
    let mut is_first = true;
    loop {
        changes.borrow_and_update();
        let all = (inner.upgrade(), session.upgrade(), many.upgrade());
        let (Some(inner), Some(session), Some(many)) = all else {
            return;
        };
        many.attend(&inner, &session);
        let is_news = presence.look(&inner.all);
        if is_news && !is_first {
            for list in ["tools", "prompts", "resources"] {
                let method = format!("notifications/{list}/list_changed");
                session.tell(&Message::notification(&method, None));
            }
        }
        is_first = false;
        drop((inner, session, many));
        if changes.changed().await.is_err() {
            return;
        }
    }
}

impl Many {
    fn attend(&self, inner: &Inner, session: &Arc<Session>) {
        let names = inner.house.names();
        let mut joined = Vec::new();
        {
            let mut members = self.members();
            members.retain(|name, _| names.contains(name));
            for name in names {
                if members.contains_key(&name) {
                    continue;
                }
                let listener = News {
                    session: Arc::downgrade(session),
                    server: Some(name.clone()),
                };
                let member = inner.hubs.of(&name).join(
                    Arc::new(listener),
                    session.principal(),
                    self.uri_bytes.clone(),
                );
                let member = Arc::new(member);
                joined.push(Arc::clone(&member));
                members.insert(name, member);
            }
        }
        if let Some(level) = self.level() {
            for member in joined {
                member.wish_level(&level);
            }
        }
    }
}
