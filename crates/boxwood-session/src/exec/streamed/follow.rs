//! Follows one streamed exec until it has ended.

use std::sync::Arc;

use boxwood_api::ExecExit;
use jiff::Timestamp;
use tokio::time::{sleep, timeout};

use super::{Resume, Streamed};
use crate::exec::captured::{cancelled, end_of, timed_out};
use crate::exec::table::Listed;
use crate::program::{BootTime, EndFact, Ended, Fact, Feeder, Pipes, Stop, follow};
use crate::quota;
use crate::session::ExecRecord;

/// What an earlier daemon recorded.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    pub(super) timed_out: bool,
    pub(super) abandoned: bool,
    pub(super) ended: Option<ExecExit>,
}

pub(super) struct Task {
    pub(super) exec: Arc<Streamed>,
    pub(super) record: ExecRecord,
    pub(super) listed: Listed,
    pub(super) pipes: Pipes,
    pub(super) feeder: Feeder,
    pub(super) known: Known,
}

impl Task {
    pub(super) fn spawn(self, unkillable: impl FnOnce() + Send + 'static) {
        let detach = self.record.session().execs.detach_signal();
        tokio::spawn(async move { detach.until(self.run(unkillable)).await });
    }

    async fn run(self, unkillable: impl FnOnce()) {
        let Self {
            exec,
            record,
            listed,
            mut pipes,
            feeder,
            known,
        } = self;
        let session = Arc::clone(record.session());
        let exit = if let Some(exit) = known.ended {
            // The earlier daemon has reported the end.
            record.skip_event();
            pipes.drain(|_, _| {}).await;
            exit
        } else {
            let control = &*exec.program.control;
            let stop = exec.stop(known.abandoned);
            let ended = follow(control, &mut pipes, Some(feeder), stop, |_, _| {}).await;
            if ended.is_unkillable() {
                unkillable();
            }
            let mut exit = match &ended {
                Ended::Exited(_) if known.timed_out => timed_out(),
                Ended::Exited(_) if known.abandoned => cancelled(),
                ended => end_of(ended, &record, exec.program.is_stop_requested()),
            };
            quota::after(&session, &mut exit).await;
            record.finish(&mut exit);
            exit
        };
        exec.program.facts.add(&Fact::Ended(EndFact {
            at: Timestamp::now(),
            exit: exit.clone(),
        }));
        pipes.discard_rest();
        exec.exit.get_or_init(|| exit.clone());
        if exec.adopted || exec.resume == Resume::Allowed {
            listed.remember_streamed(exit, &exec, session.backend.name());
        } else {
            drop(listed);
        }
        // Last: clients receive the exit after the rest of the output.
        exec.program.stdout.end();
        exec.program.stderr.end();
    }
}

impl Streamed {
    /// Resolves when the command has to be killed.
    async fn stop(&self, abandoned: bool) -> Stop {
        let left = self.note.deadline.since(BootTime::now());
        let (stop, fact) = tokio::select! {
            () = sleep(left) => (Stop::Timeout, Fact::TimedOut),
            () = self.client_gone(abandoned) => (Stop::ClientGone, Fact::Abandoned),
        };
        self.program.facts.add(&fact);
        stop
    }

    /// Resolves when there is no client and none can be expected. A command that was adopted is not
    /// killed before its first client.
    async fn client_gone(&self, abandoned: bool) {
        if abandoned {
            return;
        }
        // The sender is part of `self`, so the channel cannot close.
        let mut client = self.client.subscribe();
        if self.adopted {
            let _ = client.wait_for(Option::is_some).await;
        }
        loop {
            let _ = client.wait_for(Option::is_none).await;
            if self.resume == Resume::Never {
                return;
            }
            let returned = client.wait_for(Option::is_some);
            if timeout(self.resume_grace, returned).await.is_err() {
                return;
            }
        }
    }
}
