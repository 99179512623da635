//! Limits the sessions and processes of all workspaces.
//!
//! A permit counts a session or process while it starts. Running ones are counted from the session registry.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use boxwood_api::{ProcessId, ProcessStatus, SessionId};
use boxwood_session::Sessions;

use super::placement::is_workspace_session;
use crate::ActionError;
use crate::error::capacity_exceeded;
use crate::langbot::lock;

type Counts = HashMap<SessionId, usize>;

/// Counts the running operations of each session. Sessions without any have no entry.
#[derive(Debug, Default)]
pub(crate) struct Operations(Mutex<Counts>);

impl Operations {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Counts> {
        lock(&self.0)
    }

    /// Counts an operation until the permit is dropped.
    pub(crate) fn begin(&self, mut counts: MutexGuard<'_, Counts>, id: &SessionId) -> Permit<'_> {
        *counts.entry(id.clone()).or_default() += 1;
        Permit {
            operations: self,
            id: id.clone(),
        }
    }
}

pub(crate) struct Permit<'a> {
    operations: &'a Operations,
    id: SessionId,
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let mut counts = self.operations.lock();
        if let Some(count) = counts.get_mut(&self.id) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.id);
            }
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Capacity {
    /// Callers that are creating a session.
    creating: Operations,
    /// Processes that are starting.
    starting: Operations,
}

impl Capacity {
    /// For a session that is about to be created. An existing one needs no permit.
    pub(crate) fn reserve_session(
        &self,
        sessions: &Sessions,
        id: &SessionId,
        limit: u64,
    ) -> Result<Permit<'_>, ActionError> {
        let creating = self.creating.lock();
        if !creating.contains_key(id)
            && sessions.detail(id).is_err()
            && used_sessions(sessions, &creating) >= limit
        {
            let message = format!("Box session capacity reached ({limit})");
            return Err(capacity_exceeded(message));
        }
        Ok(self.creating.begin(creating, id))
    }

    /// All sessions of all workspaces, including those that are being created.
    pub(crate) fn sessions(&self, sessions: &Sessions) -> u64 {
        used_sessions(sessions, &self.creating.lock())
    }

    /// For a process that is about to start. The process that it replaces is not counted.
    pub(crate) fn reserve_process(
        &self,
        sessions: &Sessions,
        session: &SessionId,
        process: &ProcessId,
        limit: u64,
    ) -> Result<Permit<'_>, ActionError> {
        let starting = self.starting.lock();
        let running = sessions.running_processes(is_workspace_session);
        let replaced = sessions
            .process(session, process)
            .is_ok_and(|info| info.status == ProcessStatus::Running);
        let others = running.saturating_sub(u64::from(replaced));
        if others + starting.values().sum::<usize>() as u64 >= limit {
            let message = format!("Box managed process capacity reached ({limit})");
            return Err(capacity_exceeded(message));
        }
        Ok(self.starting.begin(starting, session))
    }
}

fn used_sessions(sessions: &Sessions, creating: &Counts) -> u64 {
    let existing = sessions
        .ids()
        .into_iter()
        .filter(|id| is_workspace_session(id) && !creating.contains_key(id))
        .count();
    (existing + creating.len()) as u64
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use boxwood_api::ProcessSpec;
    use boxwood_policy::Origin;
    use boxwood_session::{Access, Backends, Replace, Settings};
    use boxwood_test_support::{FakeBackend, admission_for};

    use super::*;

    async fn with_process(sessions: &Sessions, origin: Origin, id: &SessionId) {
        let admission = admission_for(origin, &[], id.as_str(), "", |_| {});
        let admission = admission.expect("policy allows it");
        let created = sessions.get_or_create(admission.spec).await;
        created.expect("a session");
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
    async fn processes_of_other_sessions_do_not_count() {
        let id = |text: &str| SessionId::new(text).expect("an id");
        let sessions = Sessions::new(Backends::only(FakeBackend::new()), Settings::default());
        let hosting = sessions.with_access(Access::Hosting);
        with_process(&hosting, Origin::Hosting, &id("mcp-a")).await;
        with_process(&sessions, Origin::Client, &id("other")).await;
        let (capacity, process) = (Capacity::default(), ProcessId::default());
        let own = id("ws-e882dffcfd5afa9cc1d5378c-g1-global");
        let has_room = |limit| {
            let other = id("ws-e882dffcfd5afa9cc1d5378c-g1-other");
            capacity
                .reserve_process(&sessions, &other, &process, limit)
                .is_ok()
        };
        assert!(has_room(1) && !has_room(0));
        with_process(&sessions, Origin::LangBotPlatform, &own).await;
        assert!(has_room(2) && !has_room(1));
        // A replaced process does not count.
        let replacement = capacity.reserve_process(&sessions, &own, &process, 1);
        assert!(replacement.is_ok());
    }
}
