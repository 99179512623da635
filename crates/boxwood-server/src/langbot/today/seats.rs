//! Room for sessions and processes, as many as the platform allows itself.
//!
//! Comes in: who wants to start what. Goes out: a seat, held while the start lasts, or a refusal.
//! Never here: starting. What already runs counts by itself; a seat is for what does not show yet.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use boxwood_api::{ProcessId, ProcessStatus, SessionId};
use boxwood_session::Sessions;

use super::tenancy::is_tenants;
use crate::langbot::Fault;

#[derive(Debug, Default)]
pub(crate) struct Seats {
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    /// Sessions being made, and by how many callers.
    making: HashMap<SessionId, usize>,
    /// Processes being started.
    starting: u64,
}

impl Seats {
    /// For a session that is to be there in a moment. One that is there already needs no more room.
    pub(crate) fn for_session(
        &self,
        sessions: &Sessions,
        id: &SessionId,
        limit: u64,
    ) -> Result<SessionSeat<'_>, Fault> {
        let mut taken = self.lock();
        if !taken.making.contains_key(id) && sessions.detail(id).is_err() {
            let used = used_sessions(sessions, &taken.making);
            if used >= limit {
                return Err(full(format!("Box session capacity reached ({limit})")));
            }
        }
        *taken.making.entry(id.clone()).or_default() += 1;
        Ok(SessionSeat {
            seats: self,
            id: id.clone(),
        })
    }

    /// All sessions of all workspaces, with those that are being made.
    pub(crate) fn sessions(&self, sessions: &Sessions) -> u64 {
        used_sessions(sessions, &self.lock().making)
    }

    /// For a process that is to run in a moment. One that it replaces makes room for it.
    pub(crate) fn for_process(
        &self,
        sessions: &Sessions,
        session: &SessionId,
        process: &ProcessId,
        limit: u64,
    ) -> Result<ProcessSeat<'_>, Fault> {
        let mut taken = self.lock();
        let running = sessions.running_processes(is_tenants);
        let replaced = sessions
            .process(session, process)
            .is_ok_and(|info| info.status == ProcessStatus::Running);
        if running.saturating_sub(u64::from(replaced)) + taken.starting >= limit {
            return Err(full(format!(
                "Box managed process capacity reached ({limit})"
            )));
        }
        taken.starting += 1;
        Ok(ProcessSeat { seats: self })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn used_sessions(sessions: &Sessions, making: &HashMap<SessionId, usize>) -> u64 {
    let there = sessions
        .ids()
        .into_iter()
        .filter(|id| is_tenants(id) && !making.contains_key(id))
        .count();
    (there + making.len()) as u64
}

fn full(text: String) -> Fault {
    Fault::new("BoxCapacityExceededError", text)
}

pub(crate) struct SessionSeat<'a> {
    seats: &'a Seats,
    id: SessionId,
}

impl Drop for SessionSeat<'_> {
    fn drop(&mut self) {
        let mut taken = self.seats.lock();
        if let Some(count) = taken.making.get_mut(&self.id) {
            *count -= 1;
            if *count == 0 {
                taken.making.remove(&self.id);
            }
        }
    }
}

pub(crate) struct ProcessSeat<'a> {
    seats: &'a Seats,
}

impl Drop for ProcessSeat<'_> {
    fn drop(&mut self) {
        self.seats.lock().starting -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use boxwood_api::ProcessSpec;
    use boxwood_policy::Origin;
    use boxwood_session::{Backends, Reach, Replace, Settings};
    use boxwood_test_support::{FakeBackend, admission_for};

    use super::*;

    async fn with_process(sessions: &Sessions, origin: Origin, id: &SessionId) {
        let admission = admission_for(origin, &[], id.as_str(), "", |_| {});
        let admission = admission.expect("policy allows it");
        let made = sessions.get_or_create(admission.spec).await;
        made.expect("a session");
        let spec = ProcessSpec {
            process_id: ProcessId::default(),
            command: "sleep".to_owned(),
            args: vec!["600".to_owned()],
            env: BTreeMap::new(),
            cwd: "/workspace".to_owned(),
        };
        let started = sessions.start_process(id, spec, Replace::Refuse).await;
        started.expect("a process");
    }

    #[tokio::test]
    async fn processes_of_others_take_no_room() {
        let id = |text: &str| SessionId::new(text).expect("an id");
        let sessions = Sessions::new(Backends::only(FakeBackend::new()), Settings::default());
        let hosting = sessions.reaching(Reach::Hosting);
        with_process(&hosting, Origin::Hosting, &id("mcp-a")).await;
        with_process(&sessions, Origin::Client, &id("somebodys")).await;
        let (seats, process) = (Seats::default(), ProcessId::default());
        let ours = id("ws-e882dffcfd5afa9cc1d5378c-g1-global");
        let has_room = |limit| {
            let other = id("ws-e882dffcfd5afa9cc1d5378c-g1-other");
            seats
                .for_process(&sessions, &other, &process, limit)
                .is_ok()
        };
        assert!(has_room(1) && !has_room(0));
        with_process(&sessions, Origin::LangBotPlatform, &ours).await;
        assert!(has_room(2) && !has_room(1));
        // The one that it replaces makes room for it.
        let again = seats.for_process(&sessions, &ours, &process, 1);
        assert!(again.is_ok());
    }
}
