//! Watches one managed process from its start, or its adoption, to its last word.

use std::io;
use std::sync::{Arc, Mutex};

use boxwood_api::{EventKind, ExecStatus, ProcessSpec};
use boxwood_backend::{Exit, ExitStatus, Process};
use jiff::Timestamp;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

use super::logs::{LogStream, Logs};
use super::outlet::{Outlet, Room};
use super::preview::Preview;
use super::{Ended, Managed};
use crate::activity::lock;
use crate::admission::Seat;
use crate::drain::{Intake, LastWords, outputs};
use crate::facts::{EndFact, Fact};
use crate::files::Files;
use crate::input;
use crate::journal::Journal;
use crate::quota::Before;
use crate::reason::{Asked, reason};
use crate::replay::ReplayLimits;
use crate::session::Session;

/// Of stderr.
const STDERR_BYTES: u64 = 256 * 1024;

/// A program and everything that belongs to it.
pub(crate) struct Start {
    pub(crate) spec: ProcessSpec,
    pub(crate) started_at: Timestamp,
    pub(crate) began_after: Before,
    pub(crate) process: Process,
    pub(crate) files: Files,
    pub(crate) seat: Seat,
    pub(crate) limits: ReplayLimits,
}

/// Takes a fresh process into care.
pub(crate) fn launch(session: &Arc<Session>, start: Start) -> Arc<Managed> {
    let managed = care_for(session, start, &[]);
    session
        .events
        .emit_inside(session, || EventKind::ProcessStarted {
            process_id: managed.id().clone(),
        });
    managed
}

/// Takes one into care that an earlier daemon started. It may have ended since, or before.
pub(crate) fn adopt(session: &Arc<Session>, start: Start, facts: &[Fact]) -> Arc<Managed> {
    care_for(session, start, facts)
}

/// One task per process: it reads both streams and waits for the end; another one feeds it.
fn care_for(session: &Arc<Session>, start: Start, facts: &[Fact]) -> Arc<Managed> {
    let Start {
        spec,
        started_at,
        began_after,
        mut process,
        files,
        seat,
        limits,
    } = start;
    let (stdout, stderr) = outputs(&mut process);
    let (stdout_journal, stderr_journal) = (Arc::new(files.stdout), Arc::new(files.stderr));
    let ended = facts.iter().find_map(|fact| match fact {
        Fact::Ended(end) => Some(Ended::from(end.clone())),
        Fact::Asked | Fact::TimedOut | Fact::Abandoned => None,
    });
    let seat = ended.is_none().then_some(seat);
    // Nothing is promised to a program that will not read it.
    let writer = process.stdin.filter(|_| ended.is_none());
    let (stdin, feeder) = input::begin(writer, files.stdin);
    let managed = Arc::new(Managed {
        session: session.id.clone(),
        spec,
        started_at,
        began_after,
        control: process.control,
        activity: Arc::clone(&session.activity),
        ended: watch::Sender::new(ended),
        asked: watch::Sender::new(facts.contains(&Fact::Asked)),
        facts: files.facts,
        attachment: Arc::new(Semaphore::new(1)),
        stdin,
        outlet: Outlet::new(Arc::clone(&stdout_journal), limits),
        preview: Mutex::new(Preview::default()),
        logs: Mutex::new(Logs::default()),
    });
    managed.recall(&stdout_journal, &stderr_journal);
    let parting = session.execs.parting();
    let feeding = parting.clone();
    tokio::spawn(async move { feeding.until(feeder.run()).await });
    let following = follow(
        Arc::clone(&managed),
        Arc::clone(session),
        Intake::new(Some(stdout), stdout_journal, &session.pace),
        Intake::new(stderr, stderr_journal, &session.pace),
        seat,
    );
    tokio::spawn(async move { parting.until(following).await });
    managed
}

impl From<EndFact> for Ended {
    fn from(end: EndFact) -> Self {
        Self {
            at: end.at,
            exit_code: end.exit_code,
            reason: end.reason,
        }
    }
}

impl Managed {
    /// What an earlier daemon read. When and in which order the streams were read is not known any
    /// more.
    fn recall(&self, stdout: &Journal, stderr: &Journal) {
        let recalled = |journal: &Journal| -> io::Result<Vec<u8>> {
            let from = journal.end().saturating_sub(STDERR_BYTES);
            let from = from.max(journal.start());
            lock(&self.logs).missed(from);
            journal.read(from, usize::MAX)
        };
        let both = recalled(stderr).and_then(|stderr| Ok((stderr, recalled(stdout)?)));
        let (stderr, stdout) = match both {
            Ok(both) => both,
            Err(error) => {
                tracing::warn!(%error, process = %self.id(), "its earlier output cannot be read");
                return;
            }
        };
        lock(&self.preview).push(&stderr);
        let mut logs = lock(&self.logs);
        for (stream, bytes) in [(LogStream::Stderr, stderr), (LogStream::Stdout, stdout)] {
            if !bytes.is_empty() {
                logs.push(stream, &bytes);
            }
        }
    }
}

async fn follow(
    managed: Arc<Managed>,
    session: Arc<Session>,
    stdout: Intake,
    stderr: Intake,
    seat: Option<Seat>,
) {
    let (exit_sender, exit) = watch::channel(false);
    // Each stream says when it has nothing more that is worth waiting for.
    let (stdout_done, mut stdout_over) = watch::channel(false);
    let (stderr_done, mut stderr_over) = watch::channel(false);
    let waiting = async {
        let exit = managed.control.wait().await;
        let at = Timestamp::now();
        managed.stdin.shut();
        exit_sender.send_replace(true);
        // Told only now: whoever learns of the end finds the last words already there.
        let _ = stdout_over.wait_for(|done| *done).await;
        let _ = stderr_over.wait_for(|done| *done).await;
        // An earlier daemon may have said so already.
        if managed.is_running() {
            record_end(&managed, &session, &exit, at);
        }
        drop(seat);
    };
    tokio::join!(
        waiting,
        read_stdout(&managed, stdout, exit.clone(), stdout_done),
        read_stderr(&managed, stderr, exit.clone(), stderr_done),
    );
}

fn record_end(managed: &Managed, session: &Session, exit: &Exit, at: Timestamp) {
    let asked = match exit.status {
        _ if session.stops.met(managed.began_after) => Asked::Quota,
        _ if *managed.asked.borrow() => Asked::Caller,
        ExitStatus::BoxGone => session.asked(),
        ExitStatus::Code(_) | ExitStatus::Signal(_) => Asked::Nobody,
    };
    let ended = Ended {
        at,
        exit_code: exit.code(),
        reason: reason(exit, asked),
    };
    session.activity.touch();
    managed.facts.add(&Fact::Ended(EndFact {
        at: ended.at,
        status: ExecStatus::Completed,
        exit_code: ended.exit_code,
        reason: ended.reason.clone(),
        duration_ms: 0,
    }));
    session
        .events
        .emit_inside(session, || EventKind::ProcessExited {
            process_id: managed.id().clone(),
            exit_code: ended.exit_code,
            reason: ended.reason.clone(),
        });
    managed.ended.send_replace(Some(ended));
}

/// Reads as long as there is room for it; what has none is the process's to wait for.
async fn read_stdout(
    managed: &Managed,
    mut intake: Intake,
    mut exit: watch::Receiver<bool>,
    done: watch::Sender<bool>,
) {
    let outlet = &managed.outlet;
    let mut last_words: Option<LastWords> = None;
    while intake.is_open() && !had_enough(last_words.as_ref()) {
        let room = match outlet.room() {
            Room::Some(room) => room,
            Room::Abandoned => break,
            Room::None => {
                // What is still in the pipe is kept there, for as long as somebody may want it.
                if last_words.is_some() {
                    done.send_replace(true);
                }
                let since = Instant::now();
                tokio::select! {
                    () = outlet.room_changed() => {}
                    () = exited(&mut exit), if last_words.is_none() => {
                        last_words = Some(LastWords::begin());
                    }
                }
                if let Some(last_words) = &mut last_words {
                    last_words.held_up(since);
                }
                continue;
            }
        };
        tokio::select! {
            biased;
            () = exited(&mut exit), if last_words.is_none() => {
                last_words = Some(LastWords::begin());
            }
            moved = intake.fill(room) => {
                heard(managed, LogStream::Stdout, &intake, moved, &mut last_words);
                outlet.grown();
            }
            () = over(last_words.as_ref()) => break,
        }
    }
    outlet.end();
    done.send_replace(true);
    intake.discard_rest();
}

/// Never waits for anybody: stderr is kept in part only.
async fn read_stderr(
    managed: &Managed,
    mut intake: Intake,
    mut exit: watch::Receiver<bool>,
    done: watch::Sender<bool>,
) {
    let mut last_words: Option<LastWords> = None;
    while intake.is_open() && !had_enough(last_words.as_ref()) {
        tokio::select! {
            biased;
            () = exited(&mut exit), if last_words.is_none() => {
                last_words = Some(LastWords::begin());
            }
            moved = intake.fill(usize::MAX) => {
                heard(managed, LogStream::Stderr, &intake, moved, &mut last_words);
                let journal = intake.journal();
                journal.forget_before(journal.end().saturating_sub(STDERR_BYTES));
            }
            () = over(last_words.as_ref()) => break,
        }
    }
    done.send_replace(true);
    intake.discard_rest();
}

/// The last bytes of a journal are news.
fn heard(
    managed: &Managed,
    stream: LogStream,
    intake: &Intake,
    moved: usize,
    last_words: &mut Option<LastWords>,
) {
    if let Some(last_words) = last_words {
        last_words.heard(moved);
    }
    if moved == 0 {
        return;
    }
    managed.activity.stir();
    let journal = intake.journal();
    match journal.read(journal.end().saturating_sub(moved as u64), moved) {
        Ok(bytes) => {
            lock(&managed.logs).push(stream, &bytes);
            if stream == LogStream::Stderr {
                lock(&managed.preview).push(&bytes);
            }
        }
        Err(error) => tracing::warn!(%error, process = %managed.id(), "a piece is not in its logs"),
    }
}

async fn exited(exit: &mut watch::Receiver<bool>) {
    // The sender lives in the same task, next to this future.
    let _ = exit.wait_for(|exited| *exited).await;
}

fn had_enough(last_words: Option<&LastWords>) -> bool {
    last_words.is_some_and(LastWords::had_enough)
}

async fn over(last_words: Option<&LastWords>) {
    match last_words {
        Some(last_words) => last_words.over().await,
        None => std::future::pending().await,
    }
}
