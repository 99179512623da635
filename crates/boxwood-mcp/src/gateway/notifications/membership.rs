//! The memberships of a session in the notification hubs of its servers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use boxwood_api::McpServerName;
use futures_util::future::join_all;
use tokio_util::task::AbortOnDropHandle;

use crate::gateway::Inner;
use crate::gateway::aggregate::list_changes::ListChanges;
use crate::gateway::aggregate::names;
use crate::gateway::aggregate::rewrite::rewrite_notification;
use crate::gateway::client_session::ClientSession;
use crate::gateway::error::{INVALID_PARAMS, RpcError};
use crate::gateway::notifications::hub::{Busy, Member};
use crate::gateway::notifications::log_level::LogLevel;
use crate::gateway::notifications::subscriptions::{NotificationSink, UriBytes};
use crate::gateway::params;
use crate::wire::Message;

pub(crate) enum HubMemberships {
    One(Arc<Member>),
    AllServers(Arc<AllServerMemberships>),
}

impl HubMemberships {
    pub(crate) fn of_one(
        inner: &Inner,
        session: &Arc<ClientSession>,
        name: &McpServerName,
    ) -> Self {
        let listener = SessionSink {
            session: Arc::downgrade(session),
            server: None,
        };
        let hub = inner.hubs.of(name);
        let member = hub.join(Arc::new(listener), session.principal(), UriBytes::default());
        Self::One(Arc::new(member))
    }

    pub(crate) fn of_all(inner: &Arc<Inner>, session: &Arc<ClientSession>) -> Self {
        Self::AllServers(AllServerMemberships::begin(inner, session))
    }

    /// Marks a call until the guard is dropped. `server` is the called one of all servers.
    pub(crate) fn busy(&self, server: Option<&McpServerName>) -> Option<Busy> {
        match self {
            Self::One(member) => Some(member.busy()),
            Self::AllServers(all) => all.members().get(server?).map(Member::busy),
        }
    }

    pub(crate) async fn set_level(&self, level: &str) -> Result<Message, RpcError> {
        match self {
            Self::One(member) => member.set_level(level).await,
            Self::AllServers(all) => all.set_level(level).await,
        }
    }

    pub(crate) async fn subscribe(&self, uri: &str) -> Result<Message, RpcError> {
        match self {
            Self::One(member) => member.subscribe(uri).await,
            Self::AllServers(all) => {
                let (member, uri) = all.find(uri)?;
                member.subscribe(uri).await
            }
        }
    }

    pub(crate) async fn unsubscribe(&self, uri: &str) -> Result<Message, RpcError> {
        match self {
            Self::One(member) => member.unsubscribe(uri).await,
            Self::AllServers(all) => {
                let (member, uri) = all.find(uri)?;
                member.unsubscribe(uri).await
            }
        }
    }
}

/// Passes notifications to a session.
struct SessionSink {
    session: Weak<ClientSession>,
    /// Set for clients of all servers, whose URIs contain the server name.
    server: Option<McpServerName>,
}

impl NotificationSink for SessionSink {
    fn deliver(&self, message: &Arc<Message>) {
        let Some(session) = self.session.upgrade() else {
            return;
        };
        match &self.server {
            None => session.tell(message),
            Some(server) => session.tell(&rewrite_notification(server, message)),
        }
    }
}

/// The hubs of all servers. Follows added and removed servers.
pub(crate) struct AllServerMemberships {
    members: Mutex<BTreeMap<McpServerName, Arc<Member>>>,
    level: Mutex<Option<String>>,
    uri_bytes: UriBytes,
    following: OnceTask,
}

type OnceTask = std::sync::OnceLock<AbortOnDropHandle<()>>;

impl AllServerMemberships {
    fn begin(inner: &Arc<Inner>, session: &Arc<ClientSession>) -> Arc<Self> {
        let all = Arc::new(Self {
            members: Mutex::default(),
            level: Mutex::default(),
            uri_bytes: UriBytes::default(),
            following: OnceTask::new(),
        });
        let following = follow(
            Arc::downgrade(inner),
            Arc::downgrade(session),
            Arc::downgrade(&all),
        );
        let task = AbortOnDropHandle::new(tokio::spawn(following));
        // Set only here.
        let _ = all.following.set(task);
        all
    }

    fn members(&self) -> MutexGuard<'_, BTreeMap<McpServerName, Arc<Member>>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn level(&self) -> Option<String> {
        let level = self.level.lock();
        level.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Errors of servers without logging are ignored. Idle servers get the level when they start.
    async fn set_level(&self, level: &str) -> Result<Message, RpcError> {
        LogLevel::required(level)?;
        let members: Vec<_> = self.members().values().cloned().collect();
        *self.level.lock().unwrap_or_else(PoisonError::into_inner) = Some(level.to_owned());
        let (here, away): (Vec<_>, Vec<_>) =
            members.iter().partition(|member| member.is_connected());
        for member in away {
            member.set_level_when_connected(level);
        }
        let mut answers = join_all(here.iter().map(|member| member.set_level(level))).await;
        let is_taken = |answer: &Result<Message, RpcError>| {
            answer.as_ref().is_ok_and(|answer| answer.error().is_none())
        };
        let best = answers.iter().position(is_taken).unwrap_or_default();
        if best < answers.len() {
            answers.swap_remove(best)
        } else {
            Ok(Message::result(Box::default(), params::empty()))
        }
    }

    fn find<'a>(&self, uri: &'a str) -> Result<(Arc<Member>, &'a str), RpcError> {
        let split = names::split_uri(uri);
        let found = split.and_then(|(server, uri)| {
            let member = self.members().get(&server).cloned();
            member.map(|member| (member, uri))
        });
        let text = "unknown resource; the URI must start with `mcp://` and the server name";
        found.ok_or_else(|| RpcError::new(INVALID_PARAMS, text))
    }
}

async fn follow(inner: Weak<Inner>, session: Weak<ClientSession>, all: Weak<AllServerMemberships>) {
    let Some(mut changes) = inner.upgrade().map(|inner| inner.registry.changes()) else {
        return;
    };
    let mut list_changes = ListChanges::default();
    let mut is_first = true;
    loop {
        changes.borrow_and_update();
        let all = (inner.upgrade(), session.upgrade(), all.upgrade());
        let (Some(inner), Some(session), Some(all)) = all else {
            return;
        };
        all.join_new(&inner, &session);
        let is_notification = list_changes.update(&inner.all);
        if is_notification && !is_first {
            for list in ["tools", "prompts", "resources"] {
                let method = format!("notifications/{list}/list_changed");
                session.tell(&Message::notification(&method, None));
            }
        }
        is_first = false;
        drop((inner, session, all));
        if changes.changed().await.is_err() {
            return;
        }
    }
}

impl AllServerMemberships {
    fn join_new(&self, inner: &Inner, session: &Arc<ClientSession>) {
        let names = inner.registry.names();
        let mut joined = Vec::new();
        {
            let mut members = self.members();
            members.retain(|name, _| names.contains(name));
            for name in names {
                if members.contains_key(&name) {
                    continue;
                }
                let listener = SessionSink {
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
                member.set_level_when_connected(&level);
            }
        }
    }
}
