//! Where the boxes are: in this process, or behind a connection. The tools do not know which.

use std::time::Duration;

use boxwood_api::{
    BackendReport, CreateSkillRequest, EditTextRequest, EditedText, ErrorCode, ErrorDetail,
    ExecExit, FileList, GlobMatches, GlobRequest, GrepMatches, GrepRequest, ReadTextRequest,
    SessionId, SessionInfo, SkillDetail, SkillInfo, SpecRequest, Status, TextSlice,
    WriteTextRequest, WrittenText,
};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use tokio::io::AsyncRead;

/// What a runtime answers, or why it does not.
pub type Answer<T> = Result<T, BoxesError>;

/// A failure in the runtime's own words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct BoxesError {
    pub code: ErrorCode,
    pub message: String,
    pub hint: Option<String>,
    /// Whether the runtime was reached at all.
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

/// What a command does while it runs.
#[derive(Clone, Debug, PartialEq)]
pub enum Running {
    Stdout(Bytes),
    Stderr(Bytes),
    /// The last one.
    Exited(ExecExit),
}

/// A command that runs. Dropping it before its end kills the command's whole tree.
pub trait Command: Send {
    /// Waits for what it does next. An error ends it.
    fn next(&mut self) -> BoxFuture<'_, Answer<Running>>;
}

/// A command that has begun.
pub struct Begun {
    pub session_id: SessionId,
    pub backend: String,
    /// What the profile changed about the request, in words.
    pub notices: Vec<String>,
    /// The runtime ends it then, whatever was asked for.
    pub timeout: Duration,
    pub command: Box<dyn Command>,
}

/// Bytes of any number, read as they are needed.
pub type Content = Box<dyn AsyncRead + Send + Unpin>;

/// One runtime. Every request has passed no judgement yet: the runtime's own door does that.
pub trait Boxes: Send + Sync + 'static {
    /// Whether paths of the host mean the same there as here.
    fn shares_filesystem(&self) -> bool;

    fn status(&self) -> BoxFuture<'_, Answer<Status>>;

    /// Every backend it has, and why one of them is not available. Quick: of the last look.
    fn backends(&self) -> BoxFuture<'_, Answer<Vec<BackendReport>>>;

    fn sessions(&self) -> BoxFuture<'_, Answer<Vec<SessionInfo>>>;

    fn get_or_create(&self, spec: SpecRequest) -> BoxFuture<'_, Answer<SessionInfo>>;

    fn delete<'a>(&'a self, id: &'a SessionId) -> BoxFuture<'a, Answer<()>>;

    /// Starts `spec.cmd`, in a session that is made when it is missing.
    fn exec(&self, spec: SpecRequest) -> BoxFuture<'_, Answer<Begun>>;

    fn read_text<'a>(
        &'a self,
        id: &'a SessionId,
        wish: ReadTextRequest,
    ) -> BoxFuture<'a, Answer<TextSlice>>;

    /// At most `most` bytes from `from` on.
    fn read_bytes<'a>(
        &'a self,
        id: &'a SessionId,
        path: &'a str,
        from: u64,
        most: u64,
    ) -> BoxFuture<'a, Answer<Bytes>>;

    /// With the directories above it.
    fn write_text<'a>(
        &'a self,
        id: &'a SessionId,
        wish: WriteTextRequest,
    ) -> BoxFuture<'a, Answer<WrittenText>>;

    /// What the agent itself keeps in a box: a whole file of any size, with the directories above it. A runtime in
    /// this process asks no quota for it.
    fn write_stream<'a>(
        &'a self,
        id: &'a SessionId,
        path: &'a str,
        content: Content,
    ) -> BoxFuture<'a, Answer<()>>;

    /// One file. That it is not there is no failure.
    fn remove<'a>(&'a self, id: &'a SessionId, path: &'a str) -> BoxFuture<'a, Answer<()>>;

    fn edit_text<'a>(
        &'a self,
        id: &'a SessionId,
        wish: EditTextRequest,
    ) -> BoxFuture<'a, Answer<EditedText>>;

    fn glob<'a>(
        &'a self,
        id: &'a SessionId,
        wish: GlobRequest,
    ) -> BoxFuture<'a, Answer<GlobMatches>>;

    fn grep<'a>(
        &'a self,
        id: &'a SessionId,
        wish: GrepRequest,
    ) -> BoxFuture<'a, Answer<GrepMatches>>;

    fn list<'a>(&'a self, id: &'a SessionId, path: &'a str) -> BoxFuture<'a, Answer<FileList>>;

    /// All skills of the store.
    fn skills(&self) -> BoxFuture<'_, Answer<Vec<SkillInfo>>>;

    fn skill<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Answer<Option<SkillDetail>>>;

    /// Writes one file of a skill's package, in the store.
    fn write_skill_file<'a>(
        &'a self,
        name: &'a str,
        path: &'a str,
        content: Bytes,
    ) -> BoxFuture<'a, Answer<()>>;

    fn read_skill_file<'a>(&'a self, name: &'a str, path: &'a str) -> BoxFuture<'a, Answer<Bytes>>;

    /// Makes a skill of a directory in a box: its files are copied out of the box into the store.
    fn register_skill<'a>(
        &'a self,
        id: &'a SessionId,
        path: &'a str,
        wish: CreateSkillRequest,
    ) -> BoxFuture<'a, Answer<SkillDetail>>;
}
