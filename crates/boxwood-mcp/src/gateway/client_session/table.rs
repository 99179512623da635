//! All client sessions. Their number and idle time are bounded, and each belongs to one principal.
//!
//! At the limit, a new session replaces one of its principal or of a principal with more sessions.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use crate::gateway::Target;
use crate::gateway::client_session::{ClientSession, Transport};
use crate::gateway::event_stream::budget::MemoryBudget;
use crate::session_activity::{Kind, SessionActivity};
use crate::wire::Principal;
use crate::{OnDrop, lock};

const SWEEP_INTERVAL: Duration = Duration::from_secs(30);

pub(crate) struct SessionTable {
    max_sessions: usize,
    max_idle: Duration,
    activity: SessionActivity,
    sessions: Mutex<Sessions>,
    budget: MemoryBudget,
}

#[derive(Default)]
struct Sessions {
    by_id: HashMap<Arc<str>, Arc<ClientSession>>,
    is_swept: bool,
    is_closed: bool,
}

impl SessionTable {
    pub(crate) fn new(max_sessions: usize, max_idle: Duration, budget: MemoryBudget) -> Self {
        Self {
            max_sessions: max_sessions.max(1),
            max_idle,
            activity: SessionActivity::default(),
            sessions: Mutex::default(),
            budget,
        }
    }

    /// `None` if no session can be evicted, or during shutdown.
    pub(crate) fn open(
        self: &Arc<Self>,
        target: Target,
        principal: Principal,
        transport: Transport,
    ) -> Option<Arc<ClientSession>> {
        self.end_idle();
        let id: Arc<str> = random_id()?.into();
        let mut sessions = lock(&self.sessions);
        if sessions.is_closed {
            return None;
        }
        self.make_room(&mut sessions, &principal)?;
        let budget = &self.budget;
        let session = ClientSession::new(Arc::clone(&id), target, principal, transport, budget);
        let session = Arc::new(session);
        self.activity.opened(Arc::clone(&id));
        sessions.by_id.insert(id, Arc::clone(&session));
        if !std::mem::replace(&mut sessions.is_swept, true) {
            tokio::spawn(sweep(Arc::downgrade(self)));
        }
        Some(session)
    }

    /// Only for the principal and target that the session was created with.
    pub(crate) fn find(
        &self,
        id: &str,
        target: &Target,
        principal: Option<&str>,
    ) -> Option<Arc<ClientSession>> {
        if self.activity.is_idle(id, self.max_idle) {
            self.end(id);
            return None;
        }
        let found = lock(&self.sessions).by_id.get(id).cloned();
        let found = found.filter(|session| session.is_for(target, principal))?;
        self.activity.touch(id);
        Some(found)
    }

    pub(crate) fn hold(
        &self,
        session: &ClientSession,
        kind: Kind,
    ) -> OnDrop<impl FnOnce() + use<>> {
        self.activity.hold(&session.id, kind)
    }

    pub(crate) fn close(&self) {
        let mut sessions = lock(&self.sessions);
        sessions.is_closed = true;
        let all: Vec<_> = sessions.by_id.drain().collect();
        drop(sessions);
        for (id, session) in all {
            self.activity.closed(&id);
            session.end();
        }
    }

    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        lock(&self.sessions).by_id.len()
    }
}

impl SessionTable {
    /// Ends a session if there is no room for a new one: the least active one of this principal and of those
    /// with more sessions. A session with active calls is not evicted, so a named principal gets three
    /// quarters of the table at most. Without tokens there is only one principal.
    fn make_room(&self, sessions: &mut Sessions, principal: &Principal) -> Option<()> {
        let mut counts: HashMap<Principal, usize> = HashMap::new();
        for session in sessions.by_id.values() {
            *counts.entry(session.principal()).or_default() += 1;
        }
        let count = |of: &Principal| counts.get(of).copied().unwrap_or_default();
        let own = count(principal);
        let has_its_share =
            principal.is_some() && own >= (self.max_sessions - self.max_sessions / 4).max(1);
        if !has_its_share && sessions.by_id.len() < self.max_sessions {
            return Some(());
        }
        let least = self.activity.least_active(|id| {
            let owner = sessions.by_id.get(id).map(|session| session.principal());
            owner.is_some_and(|it| it == *principal || (!has_its_share && count(&it) > own))
        })?;
        self.activity.closed(&least);
        if let Some(session) = sessions.by_id.remove(&least) {
            session.end();
        }
        Some(())
    }

    pub(crate) fn end(&self, id: &str) {
        self.activity.closed(id);
        let session = lock(&self.sessions).by_id.remove(id);
        if let Some(session) = session {
            session.end();
        }
    }

    fn end_idle(&self) {
        for id in self.activity.idle(self.max_idle) {
            self.end(&id);
        }
    }
}

/// `None` if the system provides no random bytes: an id must not be guessable.
pub(crate) fn random_id() -> Option<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).ok()?;
    Some(format!("{:032x}", u128::from_be_bytes(bytes)))
}

async fn sweep(table: Weak<SessionTable>) {
    loop {
        tokio::time::sleep(SWEEP_INTERVAL).await;
        let Some(table) = table.upgrade() else {
            return;
        };
        table.end_idle();
        for session in lock(&table.sessions).by_id.values() {
            session.remove_old_streams();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(max_sessions: usize) -> Arc<SessionTable> {
        let budget = MemoryBudget::new(1 << 20);
        Arc::new(SessionTable::new(
            max_sessions,
            Duration::from_mins(30),
            budget,
        ))
    }

    fn open(table: &Arc<SessionTable>, principal: &str) -> Option<Arc<ClientSession>> {
        table.open(
            Target::All,
            Some(principal.into()),
            Transport::StreamableHttp,
        )
    }

    fn is_open(table: &SessionTable, session: &ClientSession) -> bool {
        let principal = session.principal();
        let found = table.find(&session.id, &Target::All, principal.as_deref());
        found.is_some()
    }

    #[tokio::test]
    async fn a_principal_with_many_sessions_loses_its_own() {
        let table = table(8);
        let ann = open(&table, "ann").expect("a session");
        for _ in 0..100 {
            open(&table, "bob").expect("a session");
        }
        assert!(is_open(&table, &ann));
        assert_eq!(table.count(), 7, "three quarters of them are bob's");
        for _ in 0..3 {
            assert!(open(&table, "carol").is_some(), "there is room for others");
        }
        assert!(is_open(&table, &ann) && table.count() == 8);
    }

    #[tokio::test]
    async fn a_principal_with_busy_sessions_does_not_evict_those_of_others() {
        let table = table(8);
        let ann = open(&table, "ann").expect("a session");
        let busy: Vec<_> = (0..6).filter_map(|_| open(&table, "bob")).collect();
        let _guards: Vec<_> = busy.iter().map(|it| table.hold(it, Kind::Call)).collect();
        assert!(open(&table, "bob").is_none());
        assert!(is_open(&table, &ann));
        assert!(open(&table, "carol").is_some());
    }

    #[tokio::test]
    async fn without_principals_all_sessions_are_shared() {
        let table = table(8);
        for _ in 0..20 {
            assert!(
                table
                    .open(Target::All, None, Transport::StreamableHttp)
                    .is_some()
            );
        }
        assert_eq!(table.count(), 8);
    }
}
