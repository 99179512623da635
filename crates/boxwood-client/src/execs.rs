//! Running and recently finished commands of a session.

use boxwood_api::{ExecDetail, ExecInfo, KilledExec, SessionId};

use crate::live::exec;
use crate::sessions::session;
use crate::{Client, ClientError};

impl Client {
    /// Oldest first.
    pub async fn execs(&self, id: &SessionId) -> Result<Vec<ExecInfo>, ClientError> {
        self.get(&session(id).fixed("execs")).await
    }

    /// With its result, once it has finished and as long as the daemon keeps it.
    pub async fn exec_detail(
        &self,
        id: &SessionId,
        exec_id: u64,
    ) -> Result<ExecDetail, ClientError> {
        self.get(&exec(id, exec_id)).await
    }

    /// Kills the command and its child processes; returns when it has ended.
    pub async fn kill_exec(&self, id: &SessionId, exec_id: u64) -> Result<(), ClientError> {
        let _: KilledExec = self.delete(&exec(id, exec_id)).await?;
        Ok(())
    }
}
