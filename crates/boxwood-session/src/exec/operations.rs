//! Lists, kills and resumes execs.

use boxwood_api::{ExecDetail, ExecInfo, ProcessId, SessionId};

use crate::exec::streamed::StreamedExec;
use crate::exec::table::Entry;
use crate::managed::Attachable;
use crate::program::{DetachSignal, Since};
use crate::sessions::Sessions;
use crate::{Result, SessionError};

impl Sessions {
    /// Running and kept execs of the session, by id.
    pub fn execs(&self, id: &SessionId) -> Result<Vec<ExecInfo>> {
        Ok(self.registry.peek(self.handle(id))?.execs.infos())
    }

    pub fn exec_detail(&self, id: &SessionId, exec_id: u64) -> Result<ExecDetail> {
        Ok(self.find_exec(id, exec_id)?.0.detail())
    }

    /// Kills a command and its children, and returns when it has ended. Does nothing if it has ended already.
    pub async fn kill_exec(&self, id: &SessionId, exec_id: u64) -> Result<()> {
        let (entry, detach) = self.find_exec(id, exec_id)?;
        let Entry::Running(running) = entry else {
            return Ok(());
        };
        // After a detach, this daemon does not observe the end.
        tokio::select! {
            biased;
            () = detach.begun() => Err(SessionError::ShuttingDown),
            outcome = running.kill() => outcome,
        }
    }

    /// Attaches to a streamed exec, also to an ended one that is kept. The events of an attached client end
    /// without `Exited`.
    pub fn resume_exec(
        &self,
        id: &SessionId,
        exec_id: u64,
        stdout: Since,
        stderr: Since,
    ) -> Result<StreamedExec> {
        let (entry, detach) = self.find_exec(id, exec_id)?;
        let exec = match &entry {
            Entry::Running(_) if detach.has_begun() => return Err(SessionError::ShuttingDown),
            Entry::Running(running) => running.streamed.as_ref(),
            Entry::Ended(ended) => ended.streamed(),
        };
        let exec = exec.ok_or_else(|| {
            SessionError::invalid(format!(
                "command {exec_id} is captured and cannot be attached to; request its result"
            ))
        })?;
        exec.resume(stdout, stderr)
    }

    /// As [`Sessions::check_attachable`], with the output from an offset on. An ended process can be attached
    /// to while its output is kept.
    pub fn check_attachable_at(
        &self,
        id: &SessionId,
        process: &ProcessId,
        since: Since,
    ) -> Result<Attachable> {
        Attachable::new(self.managed(id, process)?, since)
    }

    fn find_exec(&self, id: &SessionId, exec_id: u64) -> Result<(Entry, DetachSignal)> {
        let session = self.registry.peek(self.handle(id))?;
        let entry = session.execs.get(exec_id);
        let entry = entry.ok_or_else(|| SessionError::ExecNotFound {
            session: id.clone(),
            exec_id,
        })?;
        Ok((entry, session.execs.detach_signal()))
    }
}
