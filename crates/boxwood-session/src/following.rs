//! Coming back to what one has begun.

use boxwood_api::{ExecDetail, ExecInfo, ProcessId, SessionId};

use crate::execs::Entry;
use crate::live::LiveExec;
use crate::managed::Attachable;
use crate::parting::Parting;
use crate::replay::Since;
use crate::sessions::Sessions;
use crate::{SessionError, processes};

impl Sessions {
    /// The session's commands, those that run and those that are remembered, by their number.
    pub fn execs(&self, id: &SessionId) -> Result<Vec<ExecInfo>, SessionError> {
        Ok(self.registry.peek(self.handle(id))?.execs.infos())
    }

    pub fn exec_detail(&self, id: &SessionId, exec_id: u64) -> Result<ExecDetail, SessionError> {
        Ok(self.found(id, exec_id)?.0.detail())
    }

    /// Kills a command's tree, and returns when it is over. One that has ended is left as it is.
    pub async fn kill_exec(&self, id: &SessionId, exec_id: u64) -> Result<(), SessionError> {
        let (entry, parting) = self.found(id, exec_id)?;
        let Entry::Running(running) = entry else {
            return Ok(());
        };
        // From then on another daemon has the command, and nobody here learns of its end.
        tokio::select! {
            biased;
            () = parting.begun() => Err(SessionError::ShuttingDown),
            outcome = running.kill() => outcome,
        }
    }

    /// Goes on with a live command, in the place of whoever followed it before: that one's events end
    /// without an `Exited`. Also when the command has ended, as long as it is remembered.
    pub fn resume_exec(
        &self,
        id: &SessionId,
        exec_id: u64,
        stdout: Since,
        stderr: Since,
    ) -> Result<LiveExec, SessionError> {
        let (entry, parting) = self.found(id, exec_id)?;
        let live = match &entry {
            Entry::Running(_) if parting.has_begun() => return Err(SessionError::ShuttingDown),
            Entry::Running(running) => running.live.as_ref(),
            Entry::Ended(ended) => ended.live(),
        };
        let live = live.ok_or_else(|| SessionError::Invalid {
            what: format!("command {exec_id} is not a live one; ask for its result"),
        })?;
        live.follow_again(stdout, stderr)
    }

    /// As [`Sessions::check_attachable`], for whoever wants the output from a certain byte on. A process
    /// that has ended can be attached to as long as its output is kept.
    pub fn check_attachable_at(
        &self,
        id: &SessionId,
        process: &ProcessId,
        since: Since,
    ) -> Result<Attachable, SessionError> {
        let managed = processes::get(&self.registry, self.handle(id), process)?;
        Attachable::since(managed, since)
    }

    fn found(&self, id: &SessionId, exec_id: u64) -> Result<(Entry, Parting), SessionError> {
        let session = self.registry.peek(self.handle(id))?;
        let entry = session.execs.get(exec_id);
        let entry = entry.ok_or_else(|| SessionError::ExecNotFound {
            session: id.clone(),
            exec_id,
        })?;
        Ok((entry, session.execs.parting()))
    }
}
