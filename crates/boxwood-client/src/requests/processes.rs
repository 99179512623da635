//! Managed processes of a session.

use boxwood_api::{
    ProcessId, ProcessInfo, ProcessLogs, ProcessSpec, SessionId, Signal, SignalRequest,
    SignalledProcess, StoppedProcess,
};

use super::session;
use crate::http::target::Target;
use crate::{Client, Result};

pub(crate) fn process(id: &SessionId, process: &ProcessId) -> Target {
    session(id)
        .fixed("managed-process")
        .segment(process.as_str())
}

impl Client {
    pub async fn processes(&self, id: &SessionId) -> Result<Vec<ProcessInfo>> {
        self.get(&session(id).fixed("processes")).await
    }

    pub async fn process(&self, id: &SessionId, process_id: &ProcessId) -> Result<ProcessInfo> {
        self.get(&process(id, process_id)).await
    }

    pub async fn start_process(&self, id: &SessionId, spec: &ProcessSpec) -> Result<ProcessInfo> {
        self.post(&session(id).fixed("managed-process"), spec).await
    }

    /// Closes stdin, then sends SIGTERM, then SIGKILL; returns when it has exited.
    pub async fn stop_process(&self, id: &SessionId, process_id: &ProcessId) -> Result<()> {
        let _: StoppedProcess = self.delete(&process(id, process_id)).await?;
        Ok(())
    }

    /// The recent output that the daemon keeps.
    pub async fn process_logs(
        &self,
        id: &SessionId,
        process_id: &ProcessId,
    ) -> Result<ProcessLogs> {
        self.get(&process(id, process_id).fixed("logs")).await
    }

    pub async fn signal_process(
        &self,
        id: &SessionId,
        process_id: &ProcessId,
        signal: Signal,
    ) -> Result<()> {
        let target = process(id, process_id).fixed("signal");
        let _: SignalledProcess = self.post(&target, &SignalRequest { signal }).await?;
        Ok(())
    }
}
