//! Follows one streamed exec until it has ended.

use std::sync::Arc;

use jiff::Timestamp;
use tokio::time::{sleep, timeout};

use super::Streamed;
use crate::exec::captured::{cancelled, end_of, timed_out};
use crate::exec::table::{Listed, Outcome};
use crate::program::{BootTime, EndFact, Ended, Fact, Feeder, Pipes, Stop, follow};
use crate::quota;
use crate::session::ExecRecord;
use crate::session::registry::Registry;

pub(super) struct Task {
    pub(super) exec: Arc<Streamed>,
    pub(super) record: ExecRecord,
    pub(super) listed: Listed,
    pub(super) pipes: Pipes,
    pub(super) feeder: Feeder,
    /// What an earlier daemon recorded.
    pub(super) facts: Vec<Fact>,
    pub(super) registry: Arc<Registry>,
}

impl Task {
    pub(super) fn spawn(self) {
        let detach = self.record.session().execs.detach_signal();
        tokio::spawn(async move { detach.until(self.run()).await });
    }

    async fn run(self) {
        let Self {
            exec,
            record,
            listed,
            mut pipes,
            feeder,
            facts,
            registry,
        } = self;
        let session = Arc::clone(record.session());
        let exit = if let Some(end) = Fact::end(&facts) {
            // The earlier daemon has reported the end.
            record.skip_event();
            pipes.drain(|_, _| {}).await;
            end.exit.clone()
        } else {
            let control = &*exec.program.control;
            let abandoned = facts.contains(&Fact::Abandoned);
            let stop = exec.stop(abandoned);
            let ended = follow(control, &mut pipes, Some(feeder), stop, |_, _| {}).await;
            if ended.is_unkillable() {
                registry.close_unkillable(&session);
            }
            let mut exit = match &ended {
                Ended::Exited(_) if facts.contains(&Fact::TimedOut) => timed_out(),
                Ended::Exited(_) if abandoned => cancelled(),
                ended => end_of(ended, &record, exec.program.is_stop_requested()),
            };
            quota::check_after_exec(&session, &mut exit).await;
            record.finish(&mut exit);
            exit
        };
        exec.program.facts.add(&Fact::Ended(EndFact {
            at: Timestamp::now(),
            exit: exit.clone(),
        }));
        pipes.discard_rest();
        exec.exit.get_or_init(|| exit.clone());
        if exec.adopted || exec.is_resumable() {
            listed.remember(exit, Outcome::Streamed(Arc::clone(&exec)));
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
        let remaining = self.note.deadline.since(BootTime::now());
        let (stop, fact) = tokio::select! {
            () = sleep(remaining) => (Stop::Timeout, Fact::TimedOut),
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
            if !self.is_resumable() {
                return;
            }
            let returned = client.wait_for(Option::is_some);
            if timeout(self.resume_grace, returned).await.is_err() {
                return;
            }
        }
    }
}
