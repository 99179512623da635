//! Who has a session: bounded in number and in idle time, each bound to whoever began it.
//!
//! When there are too many, whoever has the most of them gives one up, and nobody else does.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::Target;
use super::budget::Budget;
use super::session::{Session, Way};
use super::shelf::Shelf;
use crate::attendance::{Attendance, Held, Kind};
use crate::wire::Principal;

const SWEEP: Duration = Duration::from_secs(30);

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct Table {
    inner: Arc<Inner>,
}

struct Inner {
    most: usize,
    longest_idle: Duration,
    attendance: Attendance,
    sessions: Mutex<Sessions>,
    shelf: Shelf,
    budget: Budget,
}

#[derive(Default)]
struct Sessions {
    by_id: HashMap<Arc<str>, Arc<Session>>,
    is_swept: bool,
    is_closed: bool,
}

impl Table {
    pub(crate) fn new(most: usize, longest_idle: Duration, budget: Budget) -> Self {
        Self {
            inner: Arc::new(Inner {
                most: most.max(1),
                longest_idle,
                attendance: Attendance::default(),
                sessions: Mutex::default(),
                shelf: Shelf::default(),
                budget,
            }),
        }
    }

    pub(crate) fn shelf(&self) -> &Shelf {
        &self.inner.shelf
    }

    /// `None` when no session can go for it, or the daemon stops.
    pub(crate) fn open(
        &self,
        target: Target,
        principal: Principal,
        way: Way,
    ) -> Option<Arc<Session>> {
        self.inner.end_idle();
        let mut id = [0; 16];
        // Without randomness an id could be guessed: then there is no session.
        getrandom::fill(&mut id).ok()?;
        let id: Arc<str> = format!("{:032x}", u128::from_be_bytes(id)).into();
        let mut sessions = self.inner.sessions();
        if sessions.is_closed {
            return None;
        }
        if self.inner.attendance.is_full(self.inner.most)
            || sessions.has_its_share(&principal, self.inner.most)
        {
            let least = self.inner.goes(&sessions, &principal)?;
            self.inner.attendance.closed(&least);
            if let Some(gone) = sessions.by_id.remove(&least) {
                gone.end();
            }
            self.inner.shelf.forget(&least);
        }
        let budget = &self.inner.budget;
        let session = Session::new(Arc::clone(&id), target, principal, way, budget);
        let session = Arc::new(session);
        self.inner.attendance.opened(Arc::clone(&id));
        sessions.by_id.insert(id, Arc::clone(&session));
        if !std::mem::replace(&mut sessions.is_swept, true) {
            tokio::spawn(sweep(Arc::downgrade(&self.inner)));
        }
        Some(session)
    }

    /// Only for who began it, and for what it was begun with.
    pub(crate) fn find(
        &self,
        id: &str,
        target: &Target,
        principal: Option<&str>,
    ) -> Option<Arc<Session>> {
        if self.inner.attendance.is_idle(id, self.inner.longest_idle) {
            self.end(id);
            return None;
        }
        let found = self.inner.sessions().by_id.get(id).cloned();
        let found = found.filter(|session| session.is_for(target, principal))?;
        self.inner.attendance.touch(id);
        Some(found)
    }

    pub(crate) fn end(&self, id: &str) {
        self.inner.end(id);
    }

    pub(crate) fn hold(&self, session: &Session, kind: Kind) -> Held {
        self.inner.attendance.hold(session.id(), kind)
    }

    pub(crate) fn close(&self) {
        let mut sessions = self.inner.sessions();
        sessions.is_closed = true;
        let all: Vec<_> = sessions.by_id.drain().collect();
        drop(sessions);
        for (id, session) in all {
            self.inner.attendance.closed(&id);
            self.inner.shelf.forget(&id);
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

    /// Calls keep a session, so nobody who has a name may fill the table. Without names there is but one.
    fn has_its_share(&self, principal: &Principal, most: usize) -> bool {
        principal.is_some() && self.of(principal) >= (most - most / 4).max(1)
    }
}

impl Inner {
    /// The session that goes for another one of this principal's.
    fn goes(&self, sessions: &Sessions, principal: &Principal) -> Option<Arc<str>> {
        let mut counts: HashMap<Principal, usize> = HashMap::new();
        for session in sessions.by_id.values() {
            *counts.entry(session.principal()).or_default() += 1;
        }
        let own = counts.get(principal).copied().unwrap_or_default();
        if sessions.has_its_share(principal, self.most) {
            counts.retain(|other, _| other == principal);
        }
        // Whoever has fewer than the one who asks has nothing to give.
        counts.retain(|other, count| other == principal || *count > own);
        let mut most_first: Vec<_> = counts.into_iter().collect();
        most_first.sort_by_key(|(other, count)| (std::cmp::Reverse(*count), other != principal));
        most_first.iter().find_map(|(owner, _)| {
            self.attendance.least_missed_of(|id| {
                let session = sessions.by_id.get(id);
                session.is_some_and(|session| session.principal() == *owner)
            })
        })
    }

    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, id: &str) {
        self.attendance.closed(id);
        self.shelf.forget(id);
        let gone = self.sessions().by_id.remove(id);
        if let Some(session) = gone {
            session.end();
        }
    }

    fn end_idle(&self) {
        for id in self.attendance.idle(self.longest_idle) {
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
        table.shelf.tidy();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(most: usize) -> Table {
        Table::new(most, Duration::from_mins(30), Budget::new(1 << 20))
    }

    fn open(table: &Table, principal: &str) -> Option<Arc<Session>> {
        table.open(Target::All, Some(principal.into()), Way::Streamable)
    }

    fn is_there(table: &Table, session: &Session) -> bool {
        let principal = session.principal();
        let found = table.find(session.id(), &Target::All, principal.as_deref());
        found.is_some()
    }

    #[tokio::test]
    async fn whoever_begins_many_sessions_ends_its_own() {
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
    async fn who_has_calls_in_all_its_sessions_takes_nobody_elses() {
        let table = table(8);
        let ann = open(&table, "ann").expect("a session");
        let busy: Vec<_> = (0..6).filter_map(|_| open(&table, "bob")).collect();
        let _held: Vec<_> = busy.iter().map(|it| table.hold(it, Kind::Call)).collect();
        assert!(open(&table, "bob").is_none());
        assert!(is_there(&table, &ann));
        assert!(open(&table, "carol").is_some());
    }

    #[tokio::test]
    async fn without_names_all_sessions_are_for_everybody() {
        let table = table(8);
        for _ in 0..20 {
            assert!(table.open(Target::All, None, Way::Streamable).is_some());
        }
        assert_eq!(table.count(), 8);
    }
}
