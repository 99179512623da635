//! The expected state.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::plan::Op;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Running,
    Ended(Option<i32>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) state: State,
    /// Tells one process from the next under the same name.
    pub(crate) started_at: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Session {
    pub(crate) incarnation: u64,
    pub(crate) kind: u8,
    pub(crate) processes: BTreeMap<u8, Process>,
}

pub(crate) type Sessions = BTreeMap<u8, Session>;

/// An ended session. `why` is `None` if the test does not know the reason.
#[derive(Clone, Debug)]
pub(crate) struct Past {
    pub(crate) session: u8,
    pub(crate) incarnation: u64,
    pub(crate) why: Option<&'static str>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    pub(crate) sessions: Sessions,
    pub(crate) past: Vec<Past>,
    /// The highest incarnation that was reported.
    pub(crate) highest: u64,
    /// Bytes of input that each process received and echoed.
    pub(crate) input_bytes: BTreeMap<(u8, u8), u64>,
}

pub(crate) const DELETED: &str = "the test deletes it";
pub(crate) const DIED: &str = "died";
const EXPIRED: &str = "idle for too long";

impl Model {
    pub(crate) fn is_running(&self, session: u8, process: u8) -> bool {
        self.process(session, process)
            .is_some_and(|found| found.state == State::Running)
    }

    /// The last session of that name ended without a request.
    pub(crate) fn ended_by_itself(&self, session: u8) -> bool {
        let mut past = self.past.iter().rev();
        let last = past.find(|past| past.session == session);
        last.is_some_and(|past| [Some(DIED), Some(EXPIRED)].contains(&past.why))
    }

    pub(crate) fn process(&self, session: u8, process: u8) -> Option<&Process> {
        self.sessions.get(&session)?.processes.get(&process)
    }

    pub(crate) fn input_bytes(&self, session: u8, process: u8) -> u64 {
        self.input_bytes
            .get(&(session, process))
            .copied()
            .unwrap_or(0)
    }

    /// Adds a session that was created.
    pub(crate) fn made(&mut self, session: u8, kind: u8, incarnation: u64) -> Result<(), String> {
        if incarnation <= self.highest {
            return Err(format!(
                "session {session} has incarnation {incarnation}, but incarnation {} was used before",
                self.highest
            ));
        }
        self.highest = incarnation;
        self.sessions.insert(
            session,
            Session {
                incarnation,
                kind,
                processes: BTreeMap::new(),
            },
        );
        Ok(())
    }

    pub(crate) fn end_session(&mut self, session: u8, why: Option<&'static str>) {
        if let Some(found) = self.sessions.remove(&session) {
            self.past.push(Past {
                session,
                incarnation: found.incarnation,
                why,
            });
            self.input_bytes.retain(|(of, _), _| *of != session);
        }
    }

    pub(crate) fn started(&mut self, session: u8, process: u8, started_at: Timestamp) {
        if let Some(found) = self.sessions.get_mut(&session) {
            let state = State::Running;
            found
                .processes
                .insert(process, Process { state, started_at });
            self.input_bytes.remove(&(session, process));
        }
    }

    pub(crate) fn ended(&mut self, session: u8, process: u8, code: i32) {
        let found = self.sessions.get_mut(&session);
        if let Some(found) = found.and_then(|found| found.processes.get_mut(&process)) {
            found.state = State::Ended(Some(code));
        }
    }

    pub(crate) fn stopped(&mut self, session: u8, process: u8) {
        if let Some(found) = self.sessions.get_mut(&session) {
            found.processes.remove(&process);
            self.input_bytes.remove(&(session, process));
        }
    }

    pub(crate) fn expire(&mut self) {
        let idle = |session: &Session| {
            let mut processes = session.processes.values();
            !processes.any(|process| process.state == State::Running)
        };
        let idle: Vec<_> = self
            .sessions
            .iter()
            .filter(|(_, session)| idle(session))
            .collect();
        let idle: Vec<_> = idle.into_iter().map(|(session, _)| *session).collect();
        for session in idle {
            self.end_session(session, Some(EXPIRED));
        }
    }

    /// Updates the model from the observed sessions after the daemon was killed during `during`, whose progress is
    /// unknown. Every difference must be an effect of `during`; `compare` reports the others.
    pub(crate) fn settle(&mut self, during: &Op, observed: &Sessions) -> Result<(), String> {
        match during {
            Op::Expire => {
                let sessions: Vec<_> = self.sessions.keys().copied().collect();
                let mut after = self.clone();
                after.expire();
                for session in sessions {
                    if !after.sessions.contains_key(&session) && !observed.contains_key(&session) {
                        self.end_session(session, None);
                    }
                }
            }
            Op::Create { session, kind } | Op::Exec { session, kind, .. } => {
                if let (None, Some(found)) = (self.sessions.get(session), observed.get(session)) {
                    self.made(*session, *kind, found.incarnation)?;
                }
            }
            Op::Delete { session } => match observed.get(session) {
                None => self.end_session(*session, None),
                Some(found) => {
                    let processes: Vec<_> = match self.sessions.get(session) {
                        Some(previous) => previous.processes.keys().copied().collect(),
                        None => Vec::new(),
                    };
                    for process in processes {
                        self.maybe_ended(*session, process, found);
                    }
                }
            },
            Op::Start {
                session, process, ..
            } => {
                if let Some(found) = observed.get(session) {
                    self.maybe_ended(*session, *process, found);
                    let previous = self.process(*session, *process);
                    if let Some(current) = found.processes.get(process)
                        && previous.is_none_or(|previous| previous.started_at != current.started_at)
                        && self.sessions.contains_key(session)
                    {
                        self.started(*session, *process, current.started_at);
                    }
                }
            }
            Op::Stop { session, process } => {
                if let Some(found) = observed.get(session) {
                    self.maybe_ended(*session, *process, found);
                }
            }
            Op::Dies { session } => {
                if !observed.contains_key(session) {
                    self.end_session(*session, None);
                }
            }
            Op::Send { .. } | Op::Read { .. } | Op::Stale { .. } | Op::Ends { .. } => {}
        }
        Ok(())
    }

    /// The interrupted step may have ended the process, and may have removed it from the session.
    fn maybe_ended(&mut self, session: u8, process: u8, found: &Session) {
        match found.processes.get(&process) {
            None => self.stopped(session, process),
            Some(current) => {
                let previous = self.sessions.get_mut(&session);
                if let Some(previous) =
                    previous.and_then(|previous| previous.processes.get_mut(&process))
                    && previous.started_at == current.started_at
                    && previous.state == State::Running
                {
                    previous.state = current.state.clone();
                }
            }
        }
    }
}
