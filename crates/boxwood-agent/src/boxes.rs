//! The boxes of a daemon: of this process, or behind a connection.

use std::time::Duration;

use async_trait::async_trait;
use boxwood_api::{
    BackendReport, CreateSkillRequest, EditTextRequest, EditedText, ErrorCode, ErrorDetail,
    ExecExit, FileList, GlobMatches, GlobRequest, GrepMatches, GrepRequest, ReadTextRequest,
    SessionId, SessionInfo, SkillDetail, SkillInfo, SpecRequest, Status, TextSlice,
    WriteTextRequest, WrittenText,
};
use bytes::Bytes;

pub type Answer<T> = Result<T, BoxesError>;

/// An error of the runtime, with its own text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct BoxesError {
    pub code: ErrorCode,
    pub message: String,
    pub hint: Option<String>,
    /// False if the runtime could not be reached.
    pub reached: bool,
}

impl From<ErrorDetail> for BoxesError {
    fn from(detail: ErrorDetail) -> Self {
        Self {
            code: detail.code,
            message: detail.message,
            hint: detail.hint,
            reached: true,
        }
    }
}

/// An event of a running command.
#[derive(Clone, Debug, PartialEq)]
pub enum Running {
    Stdout(Bytes),
    Stderr(Bytes),
    /// The last event.
    Exited(ExecExit),
}

/// A running command. Dropping it before its end kills its whole process tree.
#[async_trait]
pub trait Command: Send {
    /// Waits for the next event. An error ends the command.
    async fn next(&mut self) -> Answer<Running>;
}

/// A command that was started.
pub struct Begun {
    pub session_id: SessionId,
    pub backend: String,
    /// What the profile changed about the request, in words.
    pub notices: Vec<String>,
    /// The timeout that the runtime applies.
    pub timeout: Duration,
    pub command: Box<dyn Command>,
}

/// One runtime. Requests are not validated yet; the runtime does that.
#[async_trait]
pub trait Boxes: Send + Sync + 'static {
    /// Whether paths of the host have the same meaning for the runtime.
    fn shares_filesystem(&self) -> bool;

    async fn status(&self) -> Answer<Status>;

    /// All backends, with the reasons why some are not available. Quick: results of the last survey.
    async fn backends(&self) -> Answer<Vec<BackendReport>>;

    async fn sessions(&self) -> Answer<Vec<SessionInfo>>;

    async fn get_or_create(&self, spec: SpecRequest) -> Answer<SessionInfo>;

    /// Starts `spec.cmd`. Creates the session if it does not exist.
    async fn exec(&self, spec: SpecRequest) -> Answer<Begun>;

    async fn read_text(&self, id: &SessionId, request: ReadTextRequest) -> Answer<TextSlice>;

    /// At most `max_bytes` bytes from `from` on.
    async fn read_bytes(
        &self,
        id: &SessionId,
        path: &str,
        from: u64,
        max_bytes: u64,
    ) -> Answer<Bytes>;

    /// Creates missing parent directories.
    async fn write_text(&self, id: &SessionId, request: WriteTextRequest) -> Answer<WrittenText>;

    /// Writes a file for the agent itself, and creates missing parent directories. A runtime in this process does not count
    /// it against the quota.
    async fn write_file(&self, id: &SessionId, path: &str, content: Bytes) -> Answer<()>;

    /// Removes one file. Succeeds if it does not exist.
    async fn remove(&self, id: &SessionId, path: &str) -> Answer<()>;

    async fn edit_text(&self, id: &SessionId, request: EditTextRequest) -> Answer<EditedText>;

    async fn glob(&self, id: &SessionId, request: GlobRequest) -> Answer<GlobMatches>;

    async fn grep(&self, id: &SessionId, request: GrepRequest) -> Answer<GrepMatches>;

    async fn list(&self, id: &SessionId, path: &str) -> Answer<FileList>;

    /// All skills of the store.
    async fn skills(&self) -> Answer<Vec<SkillInfo>>;

    async fn skill(&self, name: &str) -> Answer<Option<SkillDetail>>;

    async fn read_skill_file(&self, name: &str, path: &str) -> Answer<Bytes>;

    /// Writes one file of a skill's package in the store.
    async fn write_skill_file(&self, name: &str, path: &str, content: Bytes) -> Answer<()>;

    /// Creates a skill from a directory in a box, by copying its files into the store.
    async fn register_skill(
        &self,
        id: &SessionId,
        path: &str,
        request: CreateSkillRequest,
    ) -> Answer<SkillDetail>;
}
