//! Sessions, commands, and the daemon itself.

use boxwood_api::{
    BackendInfo, BackendReport, DeletedSession, DoctorReport, ExecResult, ProfileInfo,
    SessionDetail, SessionId, SessionInfo, SpecRequest, Status,
};

use crate::path::Target;
use crate::{Client, ClientError};

pub(crate) fn session(id: &SessionId) -> Target {
    Target::new("/v1/sessions").segment(id.as_str())
}

impl Client {
    pub async fn health(&self) -> Result<BackendInfo, ClientError> {
        self.get(&Target::new("/v1/health")).await
    }

    pub async fn status(&self) -> Result<Status, ClientError> {
        self.get(&Target::new("/v1/status")).await
    }

    /// Probes all isolation mechanisms of the daemon's host.
    pub async fn doctor(&self) -> Result<DoctorReport, ClientError> {
        self.get(&Target::new("/v1/doctor")).await
    }

    /// For the named backend, whichever is the default.
    pub async fn doctor_of(&self, backend: &str) -> Result<DoctorReport, ClientError> {
        let target = Target::new("/v1/doctor").query("backend", backend);
        self.get(&target).await
    }

    /// All backends, in order of preference.
    pub async fn backends(&self) -> Result<Vec<BackendReport>, ClientError> {
        self.get(&Target::new("/v1/backends")).await
    }

    pub async fn profiles(&self) -> Result<Vec<ProfileInfo>, ClientError> {
        self.get(&Target::new("/v1/profiles")).await
    }

    pub async fn sessions(&self) -> Result<Vec<SessionInfo>, ClientError> {
        self.get(&Target::new("/v1/sessions")).await
    }

    pub async fn session(&self, id: &SessionId) -> Result<SessionDetail, ClientError> {
        self.get(&session(id)).await
    }

    /// Creates the session, or returns the matching existing one.
    pub async fn create_session(
        &self,
        id: &SessionId,
        spec: &SpecRequest,
    ) -> Result<SessionInfo, ClientError> {
        self.post(&session(id), spec).await
    }

    pub async fn delete_session(&self, id: &SessionId) -> Result<SessionId, ClientError> {
        let answer: DeletedSession = self.delete(&session(id)).await?;
        Ok(answer.deleted)
    }

    /// Runs `spec.cmd` to completion and returns its output. Creates the session if needed.
    pub async fn exec(
        &self,
        id: &SessionId,
        spec: &SpecRequest,
    ) -> Result<ExecResult, ClientError> {
        self.post(&session(id).fixed("exec"), spec).await
    }
}
