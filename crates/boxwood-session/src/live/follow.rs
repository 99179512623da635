//! Follows one live command from its start, or its adoption, to its last word.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use boxwood_api::{ExecExit, ExecStatus, Reason};
use boxwood_backend::{Exit, ExitStatus};
use jiff::Timestamp;
use tokio::time::{Instant, sleep, sleep_until};

use super::delivery::{Reader, Strands};
use super::{Live, Resume};
use crate::drain::{Intakes, LastWords};
use crate::exec::timed_out;
use crate::execs::Listed;
use crate::facts::{EndFact, Fact};
use crate::leash::{Killed, Leash, kill_tree};
use crate::notes::BootTime;
use crate::quota;
use crate::reason::{Asked, reason};
use crate::session::{ExecEnd, ExecRecord};

/// What an earlier daemon knew of a command.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    pub(super) timed_out: bool,
    pub(super) abandoned: bool,
    pub(super) ended: Option<ExecExit>,
}

pub(super) struct Task {
    pub(super) live: Arc<Live>,
    pub(super) record: ExecRecord,
    pub(super) listed: Listed,
    /// The backend's name.
    pub(super) backend: String,
    pub(super) intakes: Intakes,
    /// `None`: nobody has come back for it yet.
    pub(super) reader: Option<Reader>,
    pub(super) known: Known,
}

enum Ended {
    Exited(Exit),
    TimedOut(Killed),
    /// Nobody came back in time.
    Abandoned(Killed),
    /// Its reader is gone and nobody may come back.
    Lost,
}

impl Task {
    /// `unkillable` is called when the box has to go.
    pub(super) async fn run(mut self, unkillable: impl FnOnce()) {
        let parting = self.record.session().execs.parting();
        let leash = Leash::new(Arc::clone(&self.live.control), parting);
        let mut strands = self.live.strands();
        let exit = if let Some(exit) = self.known.ended.take() {
            // The earlier daemon has told of it.
            self.record.forget();
            leash.let_go();
            exit
        } else {
            let ended = self.follow(&mut strands).await;
            if matches!(ended, Ended::Lost) {
                // The leash kills the tree, the record says `cancelled`.
                return;
            }
            leash.let_go();
            let killed = match &ended {
                Ended::TimedOut(killed) | Ended::Abandoned(killed) => Some(killed),
                Ended::Exited(_) | Ended::Lost => None,
            };
            if matches!(killed, Some(Killed::Alive)) {
                unkillable();
            }
            let mut end = self.end_of(&ended);
            let over = quota::after(self.record.session(), &mut end).await;
            let duration_ms = self.record.finish(&end);
            ExecExit {
                exit_code: end.exit_code,
                status: end.status,
                reason: end.reason,
                duration_ms,
                notices: over.iter().map(ToString::to_string).collect(),
            }
        };
        last_words(&mut self.intakes).await;
        self.live.facts.add(&Fact::Ended(EndFact {
            at: Timestamp::now(),
            status: exit.status,
            exit_code: exit.exit_code,
            reason: exit.reason.clone(),
            duration_ms: exit.duration_ms,
        }));
        self.intakes.discard_rest();
        // Nobody sets it twice.
        let _ = self.live.end.set(exit.clone());
        let live = self.live;
        let late = live.close_door();
        live.attached.store(false, Ordering::Release);
        if live.adopted || live.resume == Resume::Allowed {
            self.listed.remember_live(exit, &live, &self.backend);
        } else {
            drop(self.listed);
        }
        if let Some(reader) = late.or(self.reader) {
            strands.deliver_rest(reader, live.exited()).await;
        }
    }

    async fn follow(&mut self, strands: &mut Strands) -> Ended {
        let live = Arc::clone(&self.live);
        let mut wait = live.control.wait();
        let left = live.note.deadline.since(BootTime::now());
        let mut deadline = std::pin::pin!(sleep(left));
        // Nobody has to hurry to a command that was adopted; from then on it is as ever.
        let mut come_back = self.known.abandoned.then(Instant::now);
        loop {
            let (stdout_room, stderr_room) = (strands.stdout.room(), strands.stderr.room());
            let Intakes { stdout, stderr } = &mut self.intakes;
            tokio::select! {
                exit = &mut wait => return Ended::Exited(exit),
                () = &mut deadline => {
                    live.facts.add(&Fact::TimedOut);
                    return Ended::TimedOut(kill_tree(&*live.control).await);
                }
                () = live.knock.notified() => {
                    if let Some(reader) = live.caller() {
                        self.reader = Some(reader);
                        live.attached.store(true, Ordering::Release);
                        come_back = None;
                    }
                }
                served = serve(strands, self.reader.as_mut()) => {
                    if !served {
                        self.reader = None;
                        live.attached.store(false, Ordering::Release);
                        if live.resume == Resume::Never {
                            return Ended::Lost;
                        }
                        come_back = Some(Instant::now() + live.limits.resume_grace);
                    }
                }
                () = at(come_back) => {
                    live.facts.add(&Fact::Abandoned);
                    return Ended::Abandoned(kill_tree(&*live.control).await);
                }
                _ = stdout.fill(stdout_room), if stdout_room > 0 && stdout.is_open() => {}
                _ = stderr.fill(stderr_room), if stderr_room > 0 && stderr.is_open() => {}
            }
        }
    }

    fn end_of(&self, ended: &Ended) -> ExecEnd {
        match ended {
            Ended::TimedOut(_) => timed_out(),
            Ended::Exited(_) if self.known.timed_out => timed_out(),
            Ended::Abandoned(_) | Ended::Lost => cancelled(),
            Ended::Exited(_) if self.known.abandoned => cancelled(),
            Ended::Exited(exit) => {
                let signalled = self.live.signalled.load(Ordering::Acquire);
                let asked = match exit.status {
                    ExitStatus::BoxGone => self.record.session().asked(),
                    _ if self.record.is_over_quota() => Asked::Quota,
                    ExitStatus::Signal(_) if signalled => Asked::Caller,
                    ExitStatus::Code(_) | ExitStatus::Signal(_) => Asked::Nobody,
                };
                ExecEnd {
                    status: ExecStatus::Completed,
                    exit_code: exit.code(),
                    reason: reason(exit, asked),
                }
            }
        }
    }
}

fn cancelled() -> ExecEnd {
    ExecEnd {
        status: ExecStatus::Completed,
        exit_code: None,
        reason: Some(Reason::Cancelled),
    }
}

async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// Does the next thing for the reader. False when it is gone. Cancel-safe.
async fn serve(strands: &mut Strands, reader: Option<&mut Reader>) -> bool {
    let Some(reader) = reader else {
        return std::future::pending().await;
    };
    if strands.has_more(reader) {
        return strands.deliver(reader).await;
    }
    let gone = tokio::select! {
        () = reader.sender.closed() => true,
        () = reader.acks.news.notified() => false,
    };
    if gone {
        return false;
    }
    strands.stdout.forget(reader);
    strands.stderr.forget(reader);
    true
}

/// Takes in what the command itself wrote, however slow its reader is: no pipe holds much.
async fn last_words(intakes: &mut Intakes) {
    let mut last_words = LastWords::begin();
    while intakes.is_open() && !last_words.had_enough() {
        tokio::select! {
            biased;
            moved = intakes.fill() => last_words.heard(moved),
            () = last_words.over() => break,
        }
    }
}
