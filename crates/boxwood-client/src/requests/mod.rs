//! One method for each request. Here: the daemon itself, sessions and their commands.

mod agent;
pub(crate) mod events;
mod file_tools;
pub(crate) mod files;
pub(crate) mod gateway;
pub(crate) mod images;
pub(crate) mod mcp;
pub(crate) mod processes;
pub(crate) mod skills;

use boxwood_api::{
    BackendReport, DeletedSession, DoctorReport, ExecDetail, ExecInfo, ExecResult, KilledExec,
    ProfileInfo, SessionDetail, SessionId, SessionInfo, SpecRequest, Status,
};

use crate::http::target::Target;
use crate::{Client, Result};

pub(crate) fn session(id: &SessionId) -> Target {
    Target::new("/v1/sessions").segment(id.as_str())
}

pub(crate) fn exec(id: &SessionId, exec_id: u64) -> Target {
    session(id).fixed("execs").segment(&exec_id.to_string())
}

impl Client {
    pub async fn status(&self) -> Result<Status> {
        self.get(&Target::new("/v1/status")).await
    }

    /// Probes all isolation mechanisms of the daemon's host, for the named backend or the default one.
    pub async fn doctor(&self, backend: Option<&str>) -> Result<DoctorReport> {
        self.get(&Target::new("/v1/doctor").maybe_query("backend", backend))
            .await
    }

    /// All backends, in order of preference.
    pub async fn backends(&self) -> Result<Vec<BackendReport>> {
        self.get(&Target::new("/v1/backends")).await
    }

    pub async fn profiles(&self) -> Result<Vec<ProfileInfo>> {
        self.get(&Target::new("/v1/profiles")).await
    }

    pub async fn sessions(&self) -> Result<Vec<SessionInfo>> {
        self.get(&Target::new("/v1/sessions")).await
    }

    pub async fn session(&self, id: &SessionId) -> Result<SessionDetail> {
        self.get(&session(id)).await
    }

    /// Creates the session, or returns the matching existing one.
    pub async fn create_session(&self, id: &SessionId, spec: &SpecRequest) -> Result<SessionInfo> {
        self.post(&session(id), spec).await
    }

    pub async fn delete_session(&self, id: &SessionId) -> Result<SessionId> {
        let response: DeletedSession = self.delete(&session(id)).await?;
        Ok(response.deleted)
    }

    /// Runs `spec.cmd` to completion and returns its output. Creates the session if needed.
    pub async fn exec(&self, id: &SessionId, spec: &SpecRequest) -> Result<ExecResult> {
        self.post(&session(id).fixed("exec"), spec).await
    }

    /// Oldest first.
    pub async fn execs(&self, id: &SessionId) -> Result<Vec<ExecInfo>> {
        self.get(&session(id).fixed("execs")).await
    }

    /// With its result, once it has finished and as long as the daemon keeps it.
    pub async fn exec_detail(&self, id: &SessionId, exec_id: u64) -> Result<ExecDetail> {
        self.get(&exec(id, exec_id)).await
    }

    /// Kills the command and its child processes; returns when it has ended.
    pub async fn kill_exec(&self, id: &SessionId, exec_id: u64) -> Result<()> {
        let _: KilledExec = self.delete(&exec(id, exec_id)).await?;
        Ok(())
    }
}
