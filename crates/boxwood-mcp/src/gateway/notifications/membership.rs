//! The memberships of a session in the notification hubs of its servers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, Weak};

use boxwood_api::McpServerName;
use futures_util::future::join_all;
use tokio_util::task::AbortOnDropHandle;

use crate::gateway::aggregate::list_changes::ListChanges;
use crate::gateway::aggregate::rewrite::rewrite_notification;
use crate::gateway::client_session::ClientSession;
use crate::gateway::error::{INVALID_PARAMS, RpcError};
use crate::gateway::notifications::hub::Member;
use crate::gateway::notifications::preferences::Preference;
use crate::gateway::notifications::subscriptions::list_changed;
use crate::gateway::params;
use crate::gateway::{Inner, Target};
use crate::lock;
use crate::wire::{Connection, Message};

type Members = Mutex<BTreeMap<McpServerName, Arc<Member>>>;

pub(crate) struct HubMemberships {
    /// The URIs of clients of all servers contain the server name.
    is_for_all: bool,
    members: Arc<Members>,
    /// Joins added servers.
    _following: Option<AbortOnDropHandle<()>>,
}

impl HubMemberships {
    pub(crate) fn of(inner: &Arc<Inner>, session: &Arc<ClientSession>) -> Self {
        let members = Arc::<Members>::default();
        let (is_for_all, following) = match &session.target {
            Target::One(name) => {
                let member = join(inner, session, name, None);
                lock(&members).insert(name.clone(), member);
                (false, None)
            }
            Target::All => {
                let (inner, session) = (Arc::downgrade(inner), Arc::downgrade(session));
                let following = follow(inner, session, Arc::downgrade(&members));
                let following = AbortOnDropHandle::new(tokio::spawn(following));
                (true, Some(following))
            }
        };
        Self {
            is_for_all,
            members,
            _following: following,
        }
    }

    /// Delivers the notifications of this connection from now on.
    pub(crate) fn attach(&self, server: &McpServerName, connection: &Connection) {
        if let Some(member) = lock(&self.members).get(server) {
            member.attach(connection);
        }
    }

    /// Returns the server's response. Of several servers, some may refuse a log level.
    pub(crate) async fn apply(&self, preference: &Preference) -> Result<Message, RpcError> {
        let members = lock(&self.members).clone();
        let applying = members.iter().filter_map(|(server, member)| {
            let own = preference.of_server(self.is_for_all.then_some(server))?;
            Some(member.apply(own))
        });
        let mut answers = join_all(applying).await;
        let is_accepted = |answer: &Result<Message, RpcError>| {
            answer.as_ref().is_ok_and(|answer| answer.error().is_none())
        };
        let best = answers.iter().position(is_accepted).unwrap_or_default();
        if best < answers.len() {
            return answers.swap_remove(best);
        }
        if matches!(preference, Preference::LogLevel(_)) {
            return Ok(Message::result(Box::default(), params::empty()));
        }
        let text = "unknown resource; the URI must start with `mcp://` and the server name";
        Err(RpcError::new(INVALID_PARAMS, text))
    }
}

/// `server` is set for clients of all servers, whose URIs contain the server name.
fn join(
    inner: &Inner,
    session: &Arc<ClientSession>,
    name: &McpServerName,
    server: Option<McpServerName>,
) -> Arc<Member> {
    let (principal, level) = (session.principal(), lock(&session.preferences).level);
    let session = Arc::downgrade(session);
    let listener = move |message: &Arc<Message>| {
        let Some(session) = session.upgrade() else {
            return;
        };
        match &server {
            None => session.send_notification(message),
            Some(server) => session.send_notification(&rewrite_notification(server, message)),
        }
    };
    let hub = inner.hubs.of(name);
    Arc::new(hub.join(Arc::new(listener), principal, level))
}

/// Joins added servers, leaves removed ones, and reports them as list changes.
async fn follow(inner: Weak<Inner>, session: Weak<ClientSession>, members: Weak<Members>) {
    let Some(mut changes) = inner.upgrade().map(|inner| inner.registry.changes()) else {
        return;
    };
    let mut list_changes = ListChanges::default();
    let mut is_first = true;
    loop {
        changes.borrow_and_update();
        let all = (inner.upgrade(), session.upgrade(), members.upgrade());
        let (Some(inner), Some(session), Some(members)) = all else {
            return;
        };
        join_new(&inner, &session, &members);
        let is_notification = list_changes.update(&inner.all);
        if is_notification && !is_first {
            for list in ["tools", "prompts", "resources"] {
                session.send_notification(&Message::notification(&list_changed(list), None));
            }
        }
        is_first = false;
        drop((inner, session, members));
        if changes.changed().await.is_err() {
            return;
        }
    }
}

fn join_new(inner: &Inner, session: &Arc<ClientSession>, members: &Members) {
    let names = inner.registry.names();
    let mut members = lock(members);
    members.retain(|name, _| names.contains(name));
    for name in names {
        let join = || join(inner, session, &name, Some(name.clone()));
        members.entry(name.clone()).or_insert_with(join);
    }
}
