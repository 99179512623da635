//! Watches one managed process from its start to its last word.

use std::sync::{Arc, Mutex};

use boxwood_api::{EventKind, ProcessSpec};
use boxwood_backend::{Exit, ExitStatus, Process};
use jiff::Timestamp;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;

use super::logs::{LogStream, Logs};
use super::outlet::{Outlet, Room};
use super::preview::Preview;
use super::stdin::Stdin;
use super::{Ended, Managed};
use crate::activity::lock;
use crate::admission::Seat;
use crate::drain::{LastWords, Tap, Taps};
use crate::reason::{Asked, reason};
use crate::session::Session;

/// Takes a fresh process into care. One task per process: it reads both streams and waits for the
/// end.
pub(crate) fn launch(
    session: &Arc<Session>,
    spec: ProcessSpec,
    mut process: Process,
    seat: Seat,
) -> Arc<Managed> {
    let taps = Taps::of(&mut process);
    let managed = Arc::new(Managed {
        session: session.id.clone(),
        spec,
        started_at: Timestamp::now(),
        control: process.control,
        activity: Arc::clone(&session.activity),
        ended: watch::Sender::new(None),
        asked: watch::Sender::new(false),
        attachment: Arc::new(Semaphore::new(1)),
        stdin: Stdin::new(process.stdin),
        outlet: Outlet::default(),
        preview: Mutex::new(Preview::default()),
        logs: Mutex::new(Logs::default()),
    });
    session
        .events
        .emit(&session.id, || EventKind::ProcessStarted {
            process_id: managed.id().clone(),
        });
    tokio::spawn(follow(
        Arc::clone(&managed),
        Arc::clone(session),
        taps,
        seat,
    ));
    managed
}

async fn follow(managed: Arc<Managed>, session: Arc<Session>, taps: Taps, seat: Seat) {
    let (exit_sender, exit) = watch::channel(false);
    // Each stream says when it has nothing more that is worth waiting for.
    let (stdout_done, mut stdout_over) = watch::channel(false);
    let (stderr_done, mut stderr_over) = watch::channel(false);
    let waiting = async {
        let exit = managed.control.wait().await;
        let at = Timestamp::now();
        exit_sender.send_replace(true);
        // Told only now: whoever learns of the end finds the last words already there.
        let _ = stdout_over.wait_for(|done| *done).await;
        let _ = stderr_over.wait_for(|done| *done).await;
        record_end(&managed, &session, &exit, at);
        drop(seat);
    };
    tokio::join!(
        waiting,
        read_stdout(&managed, taps.stdout, exit.clone(), stdout_done),
        read_stderr(&managed, taps.stderr, exit.clone(), stderr_done),
    );
}

fn record_end(managed: &Managed, session: &Session, exit: &Exit, at: Timestamp) {
    let asked = match exit.status {
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
    session
        .events
        .emit(&session.id, || EventKind::ProcessExited {
            process_id: managed.id().clone(),
            exit_code: ended.exit_code,
            reason: ended.reason.clone(),
        });
    managed.ended.send_replace(Some(ended));
}

/// Reads as long as there is room for it; a full buffer is the process's to wait for.
async fn read_stdout(
    managed: &Managed,
    mut tap: Tap,
    mut exit: watch::Receiver<bool>,
    done: watch::Sender<bool>,
) {
    let outlet = &managed.outlet;
    let mut last_words: Option<LastWords> = None;
    while tap.is_open() {
        match outlet.room() {
            Room::Some => {}
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
        }
        tokio::select! {
            () = tap.fill() => {
                if let Some(last_words) = &mut last_words {
                    last_words.heard(tap.bytes().len());
                }
                if !tap.bytes().is_empty() {
                    managed.activity.stir();
                    lock(&managed.logs).push(LogStream::Stdout, tap.bytes());
                    outlet.push(tap.bytes());
                }
            }
            () = exited(&mut exit), if last_words.is_none() => {
                last_words = Some(LastWords::begin());
            }
            () = over(last_words.as_ref()) => break,
        }
    }
    outlet.end();
    done.send_replace(true);
    tap.discard_rest();
}

/// Never waits for anybody: stderr is kept in part only.
async fn read_stderr(
    managed: &Managed,
    mut tap: Tap,
    mut exit: watch::Receiver<bool>,
    done: watch::Sender<bool>,
) {
    let mut last_words: Option<LastWords> = None;
    while tap.is_open() {
        tokio::select! {
            () = tap.fill() => {
                if let Some(last_words) = &mut last_words {
                    last_words.heard(tap.bytes().len());
                }
                if !tap.bytes().is_empty() {
                    managed.activity.stir();
                    lock(&managed.logs).push(LogStream::Stderr, tap.bytes());
                    lock(&managed.preview).push(tap.bytes());
                }
            }
            () = exited(&mut exit), if last_words.is_none() => {
                last_words = Some(LastWords::begin());
            }
            () = over(last_words.as_ref()) => break,
        }
    }
    done.send_replace(true);
    tap.discard_rest();
}

async fn exited(exit: &mut watch::Receiver<bool>) {
    // The sender lives in the same task, next to this future.
    let _ = exit.wait_for(|exited| *exited).await;
}

async fn over(last_words: Option<&LastWords>) {
    match last_words {
        Some(last_words) => last_words.over().await,
        None => std::future::pending().await,
    }
}
