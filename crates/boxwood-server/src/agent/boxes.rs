//! The agent tools' access to boxes of this daemon.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::sync::Arc;
use std::time::Duration;

use boxwood_agent::{Answer, Begun, Boxes, Content};
use boxwood_api::{
    BackendReport, CreateSkillRequest, EditTextRequest, EditedText, ErrorCode, FileList,
    GlobMatches, GlobRequest, GrepMatches, GrepRequest, ReadTextRequest, SessionId, SessionInfo,
    SkillDetail, SkillInfo, SpecRequest, Status, TextSlice, WriteTextRequest, WrittenText,
};
use boxwood_policy::{Admission, Denial, Origin, PolicyRules};
use boxwood_session::{Choice, FileCall, Sessions};
use boxwood_skills::SkillStore;
use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, TryFutureExt as _};

use super::command;
use super::package::register;
use crate::facts;
use crate::http::{
    ApiError, ApiResult, BACKEND_TIMEOUT, InSession, UploadGate, put_file, with_timeout,
};

/// Upper limit of one read.
const MOST_READ: u64 = 16 * 1024 * 1024;

/// Entries in one listing.
const MOST_LISTED: usize = 10_000;

pub(crate) struct DaemonBoxes {
    pub(crate) sessions: Sessions,
    /// Including the agent's mount roots.
    pub(crate) rules: PolicyRules,
    pub(crate) skills: SkillStore,
    pub(crate) skill_uploads: Arc<UploadGate>,
    /// Timeout for starting a box.
    pub(crate) start_timeout: Duration,
    /// The backend of the agent's boxes, if it differs from the daemon's default.
    pub(crate) backend: Option<String>,
}

impl DaemonBoxes {
    /// Gathers facts, then applies policy.
    pub(super) async fn admit(&self, request: SpecRequest) -> ApiResult<Admission> {
        if request.session_id.is_none() {
            return Err(ApiError::validation("the request has no session_id"));
        }
        request.validate()?;
        let facts = facts::gather(&request, &self.skills).await;
        boxwood_policy::admit(&request, Origin::Client, &facts, &self.rules).map_err(refused)
    }

    fn session(&self, id: &SessionId) -> InSession {
        InSession {
            id: id.clone(),
            sessions: self.sessions.clone(),
        }
    }

    async fn create(&self, spec: SpecRequest) -> ApiResult<SessionInfo> {
        let admission = self.admit(spec).await?;
        let creating = self.sessions.get_or_create(admission.spec);
        with_timeout(self.start_timeout, creating).await
    }

    async fn read(&self, id: &SessionId, path: &str, from: u64, most: u64) -> ApiResult<Bytes> {
        let (file, _) = self.session(id).open(path).await?;
        let content = read_part(file, from, most.min(MOST_READ)).await?;
        Ok(content.into())
    }

    async fn remove_file(&self, id: &SessionId, path: &str) -> ApiResult<()> {
        let call = FileCall::Remove {
            path: path.to_owned(),
            recursive: false,
        };
        match self.session(id).file(call).await {
            Err(error) if error.code() != ErrorCode::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

/// Reads at most `most` bytes of a file of a box, which may be changing it.
pub(super) async fn read_part(mut file: File, from: u64, most: u64) -> ApiResult<Vec<u8>> {
    let reading = tokio::task::spawn_blocking(move || {
        let mut content = Vec::new();
        file.seek(SeekFrom::Start(from))?;
        file.take(most).read_to_end(&mut content)?;
        Ok(content)
    });
    let reading = async {
        reading
            .await
            .unwrap_or_else(|error| Err(io::Error::other(error)))
    };
    let failed = |error| ApiError::internal("failed to read a file of the box", &error);
    with_timeout(BACKEND_TIMEOUT, reading.map_err(failed)).await
}

/// The agent has its own mount roots, so the hint must refer to them.
fn refused(denial: Denial) -> ApiError {
    let about_roots = matches!(
        denial,
        Denial::MountsDisabled { .. } | Denial::OutsideRoots { .. }
    );
    let error = ApiError::from(denial);
    if about_roots {
        return error
            .hint("add the directory to `allowed_mount_roots` under `[box.local]` in Boxwood's configuration");
    }
    error
}

/// Converts an [`ApiResult`] future for the agent.
fn answered<'a, T: 'a>(
    work: impl Future<Output = ApiResult<T>> + Send + 'a,
) -> BoxFuture<'a, Answer<T>> {
    work.map(|outcome| outcome.map_err(Into::into)).boxed()
}

/// The same for a call to the backend, which may hang.
fn bounded<'a, T: 'a, E: Into<ApiError> + 'a>(
    work: impl Future<Output = Result<T, E>> + Send + 'a,
) -> BoxFuture<'a, Answer<T>> {
    answered(with_timeout(BACKEND_TIMEOUT, work))
}

impl Boxes for DaemonBoxes {
    fn shares_filesystem(&self) -> bool {
        true
    }

    fn status(&self) -> BoxFuture<'_, Answer<Status>> {
        let mut status = self.sessions.status();
        if let Some(backend) = &self.backend {
            status.backend = self.sessions.backends().info_for(&Choice::new(backend));
        }
        std::future::ready(Ok(status)).boxed()
    }

    fn backends(&self) -> BoxFuture<'_, Answer<Vec<BackendReport>>> {
        let backends = self.sessions.backends();
        let own = self.backend.as_deref();
        bounded(async move { Ok::<_, ApiError>(backends.survey_for(own).await) })
    }

    fn sessions(&self) -> BoxFuture<'_, Answer<Vec<SessionInfo>>> {
        async { Ok(self.sessions.list()) }.boxed()
    }

    fn get_or_create(&self, spec: SpecRequest) -> BoxFuture<'_, Answer<SessionInfo>> {
        answered(self.create(spec))
    }

    fn delete<'a>(&'a self, id: &'a SessionId) -> BoxFuture<'a, Answer<()>> {
        bounded(self.sessions.delete(id, "requested"))
    }

    fn exec(&self, spec: SpecRequest) -> BoxFuture<'_, Answer<Begun>> {
        answered(command::begin(self, spec))
    }

    fn read_text<'a>(
        &'a self,
        id: &'a SessionId,
        request: ReadTextRequest,
    ) -> BoxFuture<'a, Answer<TextSlice>> {
        bounded(self.sessions.read_text(id, request))
    }

    fn read_bytes<'a>(
        &'a self,
        id: &'a SessionId,
        path: &'a str,
        from: u64,
        most: u64,
    ) -> BoxFuture<'a, Answer<Bytes>> {
        answered(self.read(id, path, from, most))
    }

    fn write_text<'a>(
        &'a self,
        id: &'a SessionId,
        request: WriteTextRequest,
    ) -> BoxFuture<'a, Answer<WrittenText>> {
        bounded(self.sessions.write_text(id, request))
    }

    fn write_stream<'a>(
        &'a self,
        id: &'a SessionId,
        path: &'a str,
        content: Content,
    ) -> BoxFuture<'a, Answer<()>> {
        bounded(async move { put_file(&self.session(id), path, content).await })
    }

    fn remove<'a>(&'a self, id: &'a SessionId, path: &'a str) -> BoxFuture<'a, Answer<()>> {
        answered(self.remove_file(id, path))
    }

    fn edit_text<'a>(
        &'a self,
        id: &'a SessionId,
        request: EditTextRequest,
    ) -> BoxFuture<'a, Answer<EditedText>> {
        bounded(self.sessions.edit_text(id, request))
    }

    fn glob<'a>(
        &'a self,
        id: &'a SessionId,
        request: GlobRequest,
    ) -> BoxFuture<'a, Answer<GlobMatches>> {
        bounded(self.sessions.glob(id, request))
    }

    fn grep<'a>(
        &'a self,
        id: &'a SessionId,
        request: GrepRequest,
    ) -> BoxFuture<'a, Answer<GrepMatches>> {
        bounded(self.sessions.grep(id, request))
    }

    fn list<'a>(&'a self, id: &'a SessionId, path: &'a str) -> BoxFuture<'a, Answer<FileList>> {
        answered(async move { self.session(id).list(path, MOST_LISTED).await })
    }

    fn skills(&self) -> BoxFuture<'_, Answer<Vec<SkillInfo>>> {
        answered(self.all_skills())
    }

    fn skill<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Answer<Option<SkillDetail>>> {
        answered(self.one_skill(name))
    }

    fn write_skill_file<'a>(
        &'a self,
        name: &'a str,
        path: &'a str,
        content: Bytes,
    ) -> BoxFuture<'a, Answer<()>> {
        answered(self.put_skill_file(name, path, content))
    }

    fn read_skill_file<'a>(&'a self, name: &'a str, path: &'a str) -> BoxFuture<'a, Answer<Bytes>> {
        answered(self.get_skill_file(name, path))
    }

    fn register_skill<'a>(
        &'a self,
        id: &'a SessionId,
        path: &'a str,
        request: CreateSkillRequest,
    ) -> BoxFuture<'a, Answer<SkillDetail>> {
        bounded(async move {
            let session = self.session(id);
            register(&session, path, &self.skills, &self.skill_uploads, request).await
        })
    }
}
