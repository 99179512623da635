//! The memberships of a session in the notification hubs of its servers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};

use boxwood_api::McpServerName;
use futures_util::future::join_all;
use tokio_util::task::AbortOnDropHandle;

use crate::gateway::Inner;
use crate::gateway::aggregate::list_changes::ListChanges;
use crate::gateway::aggregate::names;
use crate::gateway::aggregate::rewrite::rewrite_notification;
use crate::gateway::client_session::ClientSession;
use crate::gateway::error::{INVALID_PARAMS, RpcError};
use crate::gateway::notifications::hub::Member;
use crate::gateway::notifications::log_level::LogLevel;
use crate::gateway::notifications::subscriptions::{NotificationSink, UriBytes, list_changed};
use crate::gateway::params;
use crate::lock;
use crate::wire::Message;

pub(crate) enum HubMemberships {
    One(Arc<Member>),
    AllServers {
        all: Arc<AllServerMemberships>,
        _following: AbortOnDropHandle<()>,
    },
}

impl HubMemberships {
    pub(crate) fn of_one(
        inner: &Inner,
        session: &Arc<ClientSession>,
        name: &McpServerName,
    ) -> Self {
        Self::One(join(inner, session, name, None, UriBytes::default()))
    }

    pub(crate) fn of_all(inner: &Arc<Inner>, session: &Arc<ClientSession>) -> Self {
        let all = Arc::<AllServerMemberships>::default();
        let (inner, session) = (Arc::downgrade(inner), Arc::downgrade(session));
        let following = tokio::spawn(follow(inner, session, Arc::downgrade(&all)));
        Self::AllServers {
            all,
            _following: AbortOnDropHandle::new(following),
        }
    }

    pub(crate) async fn set_level(&self, level: LogLevel) -> Result<Message, RpcError> {
        match self {
            Self::One(member) => member.set_level(level).await,
            Self::AllServers { all, .. } => all.set_level(level).await,
        }
    }

    /// The member that a resource belongs to, and the server's own URI.
    pub(crate) fn find<'a>(&self, uri: &'a str) -> Result<(Arc<Member>, &'a str), RpcError> {
        let found = match self {
            Self::One(member) => Some((Arc::clone(member), uri)),
            Self::AllServers { all, .. } => names::split_uri(uri).and_then(|(server, uri)| {
                let member = lock(&all.members).get(&server).cloned()?;
                Some((member, uri))
            }),
        };
        let text = "unknown resource; the URI must start with `mcp://` and the server name";
        found.ok_or_else(|| RpcError::new(INVALID_PARAMS, text))
    }
}

/// `server` is set for clients of all servers, whose URIs contain the server name.
fn join(
    inner: &Inner,
    session: &Arc<ClientSession>,
    name: &McpServerName,
    server: Option<McpServerName>,
    uri_bytes: UriBytes,
) -> Arc<Member> {
    let sink = Arc::new(SessionSink {
        session: Arc::downgrade(session),
        server,
    });
    let hub = inner.hubs.of(name);
    Arc::new(hub.join(sink, session.principal(), uri_bytes))
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
#[derive(Default)]
pub(crate) struct AllServerMemberships {
    members: Mutex<BTreeMap<McpServerName, Arc<Member>>>,
    level: Mutex<Option<LogLevel>>,
    uri_bytes: UriBytes,
}

impl AllServerMemberships {
    /// Errors of servers without logging are ignored. Idle servers get the level when they start.
    async fn set_level(&self, level: LogLevel) -> Result<Message, RpcError> {
        *lock(&self.level) = Some(level);
        let members: Vec<_> = lock(&self.members).values().cloned().collect();
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

    fn join_new(&self, inner: &Inner, session: &Arc<ClientSession>) {
        let names = inner.registry.names();
        let mut members = lock(&self.members);
        members.retain(|name, _| names.contains(name));
        for name in names {
            members.entry(name.clone()).or_insert_with(|| {
                let uri_bytes = self.uri_bytes.clone();
                let member = join(inner, session, &name, Some(name.clone()), uri_bytes);
                if let Some(level) = *lock(&self.level) {
                    member.set_level_when_connected(level);
                }
                member
            });
        }
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
                session.tell(&Message::notification(&list_changed(list), None));
            }
        }
        is_first = false;
        drop((inner, session, all));
        if changes.changed().await.is_err() {
            return;
        }
    }
}
