//! Follows one managed process from its start, or its adoption, until it has ended.

use std::sync::Arc;

use boxwood_api::{EventKind, ProcessExit, ProcessSpec};
use boxwood_backend::{Exit, ExitStatus, Process};
use jiff::Timestamp;
use tokio::sync::{Semaphore, watch};

use super::Managed;
use super::logs::LOG_BYTES;
use crate::admission::RunPermit;
use crate::program::{
    EndCause, EndFact, Ended, Fact, Feeder, Files, Pipes, Program, Stream, exec_exit, follow,
    reason,
};
use crate::quota::KillCount;
use crate::session::Session;

pub(crate) struct Start {
    pub(crate) spec: ProcessSpec,
    pub(crate) started_at: Timestamp,
    pub(crate) quota_kills: KillCount,
    pub(crate) process: Process,
    pub(crate) files: Files,
    pub(crate) permit: RunPermit,
    pub(crate) replay_bytes: u64,
}

/// Follows the process in a task. `facts` are what an earlier daemon recorded; they may contain its end.
pub(crate) fn follow_process(session: &Arc<Session>, start: Start, facts: &[Fact]) -> Arc<Managed> {
    let end = Fact::end(facts).map(|end| ProcessExit {
        exit_code: end.exit.exit_code,
        reason: end.exit.reason.clone(),
        exited_at: end.at,
    });
    let has_ended = end.is_some();
    let (program, mut pipes, feeder) = Program::new(
        start.process,
        start.files,
        start.replay_bytes,
        &session.read_rate,
    );
    // Only stdout waits for clients; of stderr the last `LOG_BYTES` are kept.
    pipes.limit_stdout(&program.stdout);
    program.restore_stop_request(facts);
    let managed = Arc::new(Managed {
        session: session.id.clone(),
        spec: start.spec,
        started_at: start.started_at,
        quota_kills: start.quota_kills,
        program,
        activity: Arc::clone(&session.activity),
        end: watch::Sender::new(end),
        attachment: Arc::new(Semaphore::new(1)),
    });
    managed.release_stderr();
    let detach = session.execs.detach_signal();
    let task = Task {
        managed: Arc::clone(&managed),
        session: Arc::clone(session),
        pipes,
        // Dropped if the process has ended, which closes its input.
        feeder: (!has_ended).then_some(feeder),
        _permit: (!has_ended).then_some(start.permit),
    };
    tokio::spawn(async move { detach.until(task.run()).await });
    managed
}

struct Task {
    managed: Arc<Managed>,
    session: Arc<Session>,
    pipes: Pipes,
    /// `None` if an earlier daemon has reported the end.
    feeder: Option<Feeder>,
    _permit: Option<RunPermit>,
}

impl Task {
    async fn run(mut self) {
        let managed = &self.managed;
        let on_output = |stream, count| managed.on_output(stream, count);
        if let Some(feeder) = self.feeder {
            let control = &*managed.program.control;
            let never = std::future::pending();
            let ended = follow(control, &mut self.pipes, Some(feeder), never, on_output).await;
            if let Ended::Exited(exit) = ended {
                record_end(managed, &self.session, &exit);
            }
        } else {
            self.pipes.drain(on_output).await;
        }
        managed.program.stdout.end();
        self.pipes.discard_rest();
    }
}

fn record_end(managed: &Managed, session: &Session, exit: &Exit) {
    let cause = match exit.status {
        _ if session.quota.killed_since(managed.quota_kills) => EndCause::Quota,
        _ if managed.program.is_stop_requested() => EndCause::Caller,
        ExitStatus::BoxGone => session.end_cause(),
        ExitStatus::Code(_) | ExitStatus::Signal(_) => EndCause::Unknown,
    };
    let end = ProcessExit {
        exit_code: exit.code(),
        reason: reason(exit, cause),
        exited_at: Timestamp::now(),
    };
    session.activity.touch();
    managed.program.facts.add(&Fact::Ended(EndFact {
        at: end.exited_at,
        exit: exec_exit(end.exit_code, end.reason.clone()),
    }));
    session
        .events
        .emit_inside(session, || EventKind::ProcessExited {
            process_id: managed.id().clone(),
            exit_code: end.exit_code,
            reason: end.reason.clone(),
        });
    managed.end.send_replace(Some(end));
}

impl Managed {
    /// Called when the last `count` bytes of a stream were added to its journal. Zero means end of file.
    fn on_output(&self, stream: Stream, count: usize) {
        if count > 0 {
            self.activity.record_io();
        }
        match stream {
            // A process can close its stdout and keep running; clients have to know.
            Stream::Stdout if count == 0 => self.program.stdout.end(),
            Stream::Stdout => {}
            Stream::Stderr => self.release_stderr(),
        }
    }

    /// No client reads stderr, so all of it counts as delivered. The part for the logs is kept.
    fn release_stderr(&self) {
        let journal = self.program.stderr.journal();
        let end = journal.end();
        if let Err(error) = journal.set_delivered(end) {
            tracing::warn!(%error, process = %self.id(), "failed to release the budget of stderr");
        }
        journal.forget_before(end.saturating_sub(LOG_BYTES));
    }
}
