//! All client sessions. Their number and idle time are bounded, and each belongs to one principal.
//!
//! At the limit, the principal with the most sessions loses one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::gateway::Target;
use crate::gateway::client_session::{ClientSession, Transport};
use crate::gateway::event_stream::budget::MemoryBudget;
use crate::session_activity::{Held, Kind, SessionActivity};
use crate::wire::Principal;

const SWEEP: Duration = Duration::from_secs(30);

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct SessionTable {
    inner: Arc<Inner>,
}

struct Inner {
    most: usize,
    longest_idle: Duration,
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
    pub(crate) fn new(most: usize, longest_idle: Duration, budget: MemoryBudget) -> Self {
        Self {
            inner: Arc::new(Inner {
                most: most.max(1),
                longest_idle,
                activity: SessionActivity::default(),
                sessions: Mutex::default(),
                budget,
            }),
        }
    }

    /// `None` if no session can be evicted, or during shutdown.
    pub(crate) fn open(
        &self,
        target: Target,
        principal: Principal,
        transport: Transport,
    ) -> Option<Arc<ClientSession>> {
        self.inner.end_idle();
        let mut id = [0; 16];
        // Without random bytes an id could be guessed.
        getrandom::fill(&mut id).ok()?;
        let id: Arc<str> = format!("{:032x}", u128::from_be_bytes(id)).into();
        let mut sessions = self.inner.sessions();
        if sessions.is_closed {
            return None;
        }
        if self.inner.activity.is_full(self.inner.most)
            || sessions.has_its_share(&principal, self.inner.most)
        {
            let least = self.inner.session_to_evict(&sessions, &principal)?;
            self.inner.activity.closed(&least);
            if let Some(gone) = sessions.by_id.remove(&least) {
                gone.end();
            }
        }
        let budget = &self.inner.budget;
        let session = ClientSession::new(Arc::clone(&id), target, principal, transport, budget);
        let session = Arc::new(session);
        self.inner.activity.opened(Arc::clone(&id));
        sessions.by_id.insert(id, Arc::clone(&session));
        if !std::mem::replace(&mut sessions.is_swept, true) {
            tokio::spawn(sweep(Arc::downgrade(&self.inner)));
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
        if self.inner.activity.is_idle(id, self.inner.longest_idle) {
            self.end(id);
            return None;
        }
        let found = self.inner.sessions().by_id.get(id).cloned();
        let found = found.filter(|session| session.is_for(target, principal))?;
        self.inner.activity.touch(id);
        Some(found)
    }

    pub(crate) fn end(&self, id: &str) {
        self.inner.end(id);
    }

    pub(crate) fn hold(&self, session: &ClientSession, kind: Kind) -> Held {
        self.inner.activity.hold(session.id(), kind)
    }

    pub(crate) fn close(&self) {
        let mut sessions = self.inner.sessions();
        sessions.is_closed = true;
        let all: Vec<_> = sessions.by_id.drain().collect();
        drop(sessions);
        for (id, session) in all {
            self.inner.activity.closed(&id);
            session.end();
        }
    }

    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.inner.sessions().by_id.len()
    }
}

impl Sessions {
    fn of(&self, principal: &Principal) -> usize {
        let sessions = self.by_id.values();
        sessions.filter(|it| it.principal() == *principal).count()
    }

    /// A session with active calls is not evicted, so a named principal gets three quarters of the table at
    /// most. Without tokens there is only one principal.
    fn has_its_share(&self, principal: &Principal, most: usize) -> bool {
        principal.is_some() && self.of(principal) >= (most - most / 4).max(1)
    }
}

impl Inner {
    /// The session to evict for a new one of this principal.
    fn session_to_evict(&self, sessions: &Sessions, principal: &Principal) -> Option<Arc<str>> {
        let mut counts: HashMap<Principal, usize> = HashMap::new();
        for session in sessions.by_id.values() {
            *counts.entry(session.principal()).or_default() += 1;
        }
        let own = counts.get(principal).copied().unwrap_or_default();
        if sessions.has_its_share(principal, self.most) {
            counts.retain(|other, _| other == principal);
        }
        // Principals with fewer sessions keep theirs.
        counts.retain(|other, count| other == principal || *count > own);
        let mut most_first: Vec<_> = counts.into_iter().collect();
        most_first.sort_by_key(|(other, count)| (std::cmp::Reverse(*count), other != principal));
        most_first.iter().find_map(|(owner, _)| {
            self.activity.least_active_of(|id| {
                let session = sessions.by_id.get(id);
                session.is_some_and(|session| session.principal() == *owner)
            })
        })
    }

    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, id: &str) {
        self.activity.closed(id);
        let gone = self.sessions().by_id.remove(id);
        if let Some(session) = gone {
            session.end();
        }
    }

    fn end_idle(&self) {
        for id in self.activity.idle(self.longest_idle) {
            self.end(&id);
        }
    }
}

async fn sweep(table: std::sync::Weak<Inner>) {
    loop {
        tokio::time::sleep(SWEEP).await;
        let Some(table) = table.upgrade() else {
            return;
        };
        table.end_idle();
        for session in table.sessions().by_id.values() {
            session.remove_old_streams();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(most: usize) -> SessionTable {
        SessionTable::new(most, Duration::from_mins(30), MemoryBudget::new(1 << 20))
    }

    fn open(table: &SessionTable, principal: &str) -> Option<Arc<ClientSession>> {
        table.open(
            Target::All,
            Some(principal.into()),
            Transport::StreamableHttp,
        )
    }

    fn is_there(table: &SessionTable, session: &ClientSession) -> bool {
        let principal = session.principal();
        let found = table.find(session.id(), &Target::All, principal.as_deref());
        found.is_some()
    }

    #[tokio::test]
    async fn a_principal_with_many_sessions_loses_its_own() {
        let table = table(8);
        let ann = open(&table, "ann").expect("a session");
        for _ in 0..100 {
            open(&table, "bob").expect("a session");
        }
        assert!(is_there(&table, &ann));
        assert_eq!(table.count(), 7, "three quarters of them are bob's");
        for _ in 0..3 {
            assert!(open(&table, "carol").is_some(), "there is room for others");
        }
        assert!(is_there(&table, &ann) && table.count() == 8);
    }

    #[tokio::test]
    async fn a_principal_with_busy_sessions_takes_none_of_others() {
        let table = table(8);
        let ann = open(&table, "ann").expect("a session");
        let busy: Vec<_> = (0..6).filter_map(|_| open(&table, "bob")).collect();
        let _held: Vec<_> = busy.iter().map(|it| table.hold(it, Kind::Call)).collect();
        assert!(open(&table, "bob").is_none());
        assert!(is_there(&table, &ann));
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
