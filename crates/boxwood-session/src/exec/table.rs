//! The execs of one session: running ones, and ended ones for a while.
//!
//! The result of a captured exec is kept only if an earlier daemon started it, because its caller could not
//! be answered.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use boxwood_api::{ExecDetail, ExecExit, ExecInfo, ExecKind, ExecResult, ExecState, SessionId};
use boxwood_backend::{ControlError, ProcessControl, Scope};
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::exec::streamed::Streamed;
use crate::program::{DetachSignal, ExecNote, Journal, KindNote, SIGKILL};
use crate::session::activity::lock;
use crate::{Result, SessionError};

/// Ended execs that are kept per session; the oldest are removed first.
const MAX_ENDED: usize = 64;
/// Their output in total. The newest one is kept in any case.
const MAX_ENDED_BYTES: u64 = 4 * 1024 * 1024;
const MAX_ENDED_AGE: Duration = Duration::from_mins(10);

/// The first exec id of a daemon. Higher than those of earlier daemons, unless one starts a million execs
/// per second, and exact in JavaScript.
pub(crate) fn first_id() -> u64 {
    u64::try_from(Timestamp::now().as_microsecond()).unwrap_or(1)
}

#[derive(Clone, Default)]
pub(crate) struct ExecTable(Arc<Inner>);

#[derive(Default)]
struct Inner {
    execs: Mutex<BTreeMap<u64, Entry>>,
    detach: DetachSignal,
}

#[derive(Clone)]
pub(crate) enum Entry {
    Running(Arc<Running>),
    Ended(Arc<Ended>),
}

pub(crate) struct Running {
    pub(crate) session: SessionId,
    pub(crate) note: ExecNote,
    /// An earlier daemon started it.
    pub(crate) adopted: bool,
    pub(crate) control: Arc<dyn ProcessControl>,
    /// A caller has sent a signal.
    signalled: AtomicBool,
    pub(crate) streamed: Option<Arc<Streamed>>,
    outputs: [Arc<Journal>; 2],
    ended: watch::Sender<bool>,
}

impl Running {
    pub(crate) fn new(
        session: SessionId,
        note: ExecNote,
        control: Arc<dyn ProcessControl>,
        outputs: [&Arc<Journal>; 2],
        adopted: bool,
    ) -> Self {
        Self {
            session,
            note,
            adopted,
            control,
            signalled: AtomicBool::new(false),
            streamed: None,
            outputs: outputs.map(Arc::clone),
            ended: watch::Sender::new(false),
        }
    }

    pub(crate) fn of_streamed(exec: &Arc<Streamed>) -> Self {
        let (session, note) = (exec.session.clone(), exec.note.clone());
        let control = Arc::clone(&exec.program.control);
        Self {
            streamed: Some(Arc::clone(exec)),
            ..Self::new(session, note, control, exec.journals(), exec.adopted)
        }
    }

    pub(crate) fn is_signalled(&self) -> bool {
        self.signalled.load(Ordering::Acquire)
    }

    pub(crate) fn info(&self) -> ExecInfo {
        let kind = match self.note.kind {
            KindNote::Captured => ExecKind::Captured,
            KindNote::Live(_) => ExecKind::Live,
        };
        ExecInfo {
            session_id: self.session.clone(),
            exec_id: self.note.exec_id,
            state: ExecState::Running,
            kind,
            command: self.note.command.clone(),
            started_at: self.note.started_at,
            resumable: self
                .streamed
                .as_ref()
                .is_some_and(|exec| exec.is_resumable()),
            attached: match &self.streamed {
                Some(exec) => exec.is_attached(),
                None => !self.adopted,
            },
            adopted: self.adopted,
            stdout_bytes: self.outputs[0].end(),
            stderr_bytes: self.outputs[1].end(),
            exit: None,
        }
    }

    /// Kills the command and its children, and returns when it has ended.
    pub(crate) async fn kill(&self) -> Result<()> {
        // First, because the end may be observed before this call returns.
        self.signalled.store(true, Ordering::Release);
        if let Some(exec) = &self.streamed {
            exec.program.request_stop();
        }
        match self.control.signal(SIGKILL, Scope::Tree).await {
            Ok(()) | Err(ControlError::Ended | ControlError::Gone) => {}
            Err(error) => return Err(SessionError::control(error)),
        }
        let mut ended = self.ended.subscribe();
        // The sender is part of `self`, so the channel cannot close.
        let _ = ended.wait_for(|ended| *ended).await;
        Ok(())
    }
}

pub(crate) struct Ended {
    at: Instant,
    info: ExecInfo,
    outcome: Outcome,
}

/// What is kept of an ended exec.
pub(crate) enum Outcome {
    Captured(Box<ExecResult>),
    /// The output is in its journals.
    Streamed(Arc<Streamed>),
}

impl Ended {
    fn bytes(&self) -> u64 {
        match &self.outcome {
            Outcome::Captured(result) => (result.stdout.len() + result.stderr.len()) as u64,
            Outcome::Streamed(exec) => exec.kept_bytes(),
        }
    }

    fn result(&self) -> ExecResult {
        match &self.outcome {
            Outcome::Captured(result) => (**result).clone(),
            Outcome::Streamed(exec) => exec.result(),
        }
    }

    pub(crate) fn streamed(&self) -> Option<&Arc<Streamed>> {
        match &self.outcome {
            Outcome::Captured(_) => None,
            Outcome::Streamed(exec) => Some(exec),
        }
    }
}

/// The entry of a running exec. Dropping it removes the entry.
pub(crate) struct Listed {
    table: ExecTable,
    running: Arc<Running>,
}

impl Listed {
    pub(crate) fn running(&self) -> &Arc<Running> {
        &self.running
    }

    /// Keeps the ended exec for a while.
    pub(crate) fn remember(self, exit: ExecExit, outcome: Outcome) {
        let ended = Ended {
            at: Instant::now(),
            info: ExecInfo {
                state: ExecState::Ended,
                attached: false,
                exit: Some(exit),
                ..self.running.info()
            },
            outcome,
        };
        let mut execs = lock(&self.table.0.execs);
        execs.insert(self.running.note.exec_id, Entry::Ended(Arc::new(ended)));
        remove_old(&mut execs);
        // Released before `self` is dropped, which takes the same lock.
        drop(execs);
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        let id = self.running.note.exec_id;
        let mut execs = lock(&self.table.0.execs);
        if matches!(execs.get(&id), Some(Entry::Running(_))) {
            execs.remove(&id);
        }
        drop(execs);
        self.running.ended.send_replace(true);
    }
}

impl ExecTable {
    /// The box is left for the next daemon: programs are no longer killed, read or fed.
    pub(crate) fn detach(&self) {
        self.0.detach.begin();
    }

    pub(crate) fn detach_signal(&self) -> DetachSignal {
        self.0.detach.clone()
    }

    pub(crate) fn list(&self, running: Running) -> Listed {
        let running = Arc::new(running);
        let entry = Entry::Running(Arc::clone(&running));
        lock(&self.0.execs).insert(running.note.exec_id, entry);
        Listed {
            table: self.clone(),
            running,
        }
    }

    pub(crate) fn get(&self, id: u64) -> Option<Entry> {
        let mut execs = lock(&self.0.execs);
        remove_old(&mut execs);
        execs.get(&id).cloned()
    }

    pub(crate) fn running(&self) -> Vec<Arc<Running>> {
        let execs = lock(&self.0.execs);
        let running = execs.values().filter_map(|entry| match entry {
            Entry::Running(running) => Some(Arc::clone(running)),
            Entry::Ended(_) => None,
        });
        running.collect()
    }

    pub(crate) fn infos(&self) -> Vec<ExecInfo> {
        let mut execs = lock(&self.0.execs);
        remove_old(&mut execs);
        execs.values().map(Entry::info).collect()
    }
}

impl Entry {
    fn info(&self) -> ExecInfo {
        match self {
            Self::Running(running) => running.info(),
            Self::Ended(ended) => ended.info.clone(),
        }
    }

    pub(crate) fn detail(&self) -> ExecDetail {
        ExecDetail {
            info: self.info(),
            result: match self {
                Self::Running(_) => None,
                Self::Ended(ended) => Some(ended.result()),
            },
        }
    }
}

fn remove_old(execs: &mut BTreeMap<u64, Entry>) {
    let mut ended: Vec<_> = execs
        .iter()
        .filter_map(|(id, entry)| match entry {
            Entry::Running(_) => None,
            Entry::Ended(ended) => Some((ended.at, *id, ended.bytes())),
        })
        .collect();
    // Newest first.
    ended.sort_by_key(|(at, id, _)| std::cmp::Reverse((*at, *id)));
    let mut bytes = 0;
    for (number, (at, id, size)) in ended.into_iter().enumerate() {
        bytes += size;
        let too_much = number > 0 && bytes > MAX_ENDED_BYTES;
        if number >= MAX_ENDED || too_much || at.elapsed() >= MAX_ENDED_AGE {
            execs.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use boxwood_api::{ExecStatus, StreamCapture};
    use boxwood_backend::{BoxFuture, Exit, TerminalSize};

    use super::*;
    use crate::program::{BootTime, exec_exit};

    struct NoControl;

    impl ProcessControl for NoControl {
        fn wait(&self) -> BoxFuture<'_, Exit> {
            Box::pin(std::future::pending())
        }

        fn signal(&self, _: i32, _: Scope) -> BoxFuture<'_, Result<(), ControlError>> {
            Box::pin(async { Err(ControlError::Ended) })
        }

        fn resize(&self, _: TerminalSize) -> Result<(), ControlError> {
            Err(ControlError::NoTerminal)
        }
    }

    fn listed(table: &ExecTable, exec_id: u64) -> Listed {
        let note = ExecNote {
            exec_id,
            command: "true".to_owned(),
            started_at: Timestamp::now(),
            began: BootTime::now(),
            deadline: BootTime::now(),
            kind: KindNote::Captured,
            notices: Vec::new(),
            capture_bytes: None,
        };
        let session = SessionId::new("s").expect("a legal id");
        let journal = Arc::new(Journal::once("test").expect("a journal"));
        let outputs = [&journal, &journal];
        table.list(Running::new(
            session,
            note,
            Arc::new(NoControl),
            outputs,
            true,
        ))
    }

    fn captured(stdout_bytes: usize) -> Outcome {
        Outcome::Captured(Box::new(ExecResult {
            session_id: SessionId::new("s").expect("a legal id"),
            backend_name: "fake".to_owned(),
            status: ExecStatus::Completed,
            exit_code: Some(0),
            stdout: "x".repeat(stdout_bytes),
            stderr: String::new(),
            duration_ms: 1,
            reason: None,
            stdout_capture: StreamCapture::default(),
            stderr_capture: StreamCapture::default(),
            notices: Vec::new(),
        }))
    }

    fn ids(table: &ExecTable) -> Vec<u64> {
        table.infos().iter().map(|info| info.exec_id).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn running_execs_are_listed_until_they_end() {
        let table = ExecTable::default();
        let (first, second) = (listed(&table, 1), listed(&table, 2));
        assert_eq!(ids(&table), [1, 2]);
        drop(first);
        assert_eq!(ids(&table), [2]);
        second.remember(exec_exit(Some(0), None), captured(3));
        assert_eq!(ids(&table), [2]);
        let detail = table.get(2).expect("remembered").detail();
        assert_eq!(detail.info.state, ExecState::Ended);
        assert_eq!(detail.result.expect("a result").stdout, "xxx");
        tokio::time::advance(MAX_ENDED_AGE).await;
        assert!(table.get(2).is_none(), "removed after a while");
    }

    #[tokio::test(start_paused = true)]
    async fn ended_execs_are_limited_in_number_and_bytes() {
        let table = ExecTable::default();
        let running = listed(&table, 1);
        for id in 2..102 {
            listed(&table, id).remember(exec_exit(Some(0), None), captured(10));
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        let ids_left = ids(&table);
        assert_eq!(ids_left.len(), MAX_ENDED + 1);
        assert_eq!((ids_left[0], ids_left[1]), (1, 38), "the oldest went first");
        listed(&table, 200).remember(exec_exit(Some(0), None), captured(4 * 1024 * 1024 + 1));
        assert_eq!(
            ids(&table),
            [1, 200],
            "the newest stays, whatever it weighs"
        );
        drop(running);
    }

    #[tokio::test]
    async fn a_kill_returns_when_the_command_has_ended() {
        let table = ExecTable::default();
        let listed = listed(&table, 7);
        let running = Arc::clone(listed.running());
        let kill = tokio::spawn(async move { running.kill().await });
        tokio::task::yield_now().await;
        assert!(!kill.is_finished());
        drop(listed);
        kill.await.expect("no panic").expect("killed");
    }

    #[test]
    fn exec_ids_are_exact_in_javascript() {
        assert!(first_id() < 1 << 53);
        assert!(first_id() > 1_700_000_000_000_000);
    }
}
