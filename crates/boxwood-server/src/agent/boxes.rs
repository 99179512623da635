//! The agent tools' access to boxes of this daemon.

use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use boxwood_agent::{Answer, Begun, Boxes, Content};
use boxwood_api::{
    BackendReport, CreateSkillRequest, EditTextRequest, EditedText, ErrorCode, FileList,
    GlobMatches, GlobRequest, GrepMatches, GrepRequest, ReadTextRequest, SessionId, SessionInfo,
    SkillDetail, SkillInfo, SpecRequest, Status, TextSlice, WriteTextRequest, WrittenText,
};
use boxwood_policy::{Admission, Denial, Origin, PolicyRules};
use boxwood_session::{Choice, FileAnswer, FileCall, OpenFor, Sessions};
use boxwood_skills::SkillStore;
use bytes::Bytes;

use super::command;
use super::package::{Source, register};
use crate::facts;
use crate::http::{
    ApiError, ApiResult, BACKEND_TIMEOUT, InSession, UploadGate, put_file, unexpected_answer,
    with_timeout,
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
    pub(super) async fn judge(&self, request: SpecRequest) -> ApiResult<Admission> {
        if request.session_id.is_none() {
            return Err(ApiError::validation("the request has no session_id"));
        }
        request.validate()?;
        let facts = facts::gather(&request, &self.skills).await;
        boxwood_policy::admit(&request, Origin::Client, &facts, &self.rules).map_err(refused)
    }

    pub(super) async fn file(&self, id: &SessionId, call: FileCall) -> ApiResult<FileAnswer> {
        with_timeout(BACKEND_TIMEOUT, self.sessions.file(id, call)).await
    }

    fn look(&self) -> Status {
        let mut status = self.sessions.status();
        if let Some(backend) = &self.backend {
            status.backend = self.sessions.backends().info_for(&Choice::new(backend));
        }
        status
    }

    async fn make(&self, spec: SpecRequest) -> ApiResult<SessionInfo> {
        let admission = self.judge(spec).await?;
        let making = self.sessions.get_or_create(admission.spec);
        with_timeout(self.start_timeout, making).await
    }

    async fn read(&self, id: &SessionId, path: &str, from: u64, most: u64) -> ApiResult<Bytes> {
        let call = FileCall::Open {
            path: path.to_owned(),
            how: OpenFor::Read,
        };
        let (file, size) = match self.file(id, call).await? {
            FileAnswer::Opened { file, entry } => (file, entry.size),
            other => return Err(unexpected_answer("open", &other)),
        };
        let length = size.saturating_sub(from).min(most).min(MOST_READ);
        if length == 0 {
            return Ok(Bytes::new());
        }
        let reading = tokio::task::spawn_blocking(move || {
            let mut buffer = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
            let mut filled = 0;
            while filled < buffer.len() {
                match file.read_at(&mut buffer[filled..], from + filled as u64)? {
                    0 => break,
                    read => filled += read,
                }
            }
            buffer.truncate(filled);
            Ok::<_, std::io::Error>(Bytes::from(buffer))
        });
        let read = async {
            let failed = |error: &(dyn std::error::Error + 'static)| {
                ApiError::internal("failed to read the file", error)
            };
            reading
                .await
                .map_err(|error| failed(&error))?
                .map_err(|error| failed(&error))
        };
        with_timeout(BACKEND_TIMEOUT, read).await
    }

    async fn store(&self, id: &SessionId, path: &str, content: Content) -> ApiResult<()> {
        let session = InSession {
            id: id.clone(),
            sessions: self.sessions.clone(),
        };
        put_file(&session, path, content).await
    }

    async fn forget(&self, id: &SessionId, path: &str) -> ApiResult<()> {
        let call = FileCall::Remove {
            path: path.to_owned(),
            recursive: false,
        };
        match self.file(id, call).await {
            Ok(_) => Ok(()),
            Err(error) if error.code() == ErrorCode::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn entries(&self, id: &SessionId, path: &str) -> ApiResult<FileList> {
        let call = FileCall::List {
            path: path.to_owned(),
            limit: MOST_LISTED,
        };
        match self.file(id, call).await? {
            FileAnswer::Entries { entries, truncated } => Ok(FileList {
                path: path.to_owned(),
                entries,
                truncated,
            }),
            other => Err(unexpected_answer("list", &other)),
        }
    }
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

#[async_trait]
impl Boxes for DaemonBoxes {
    fn shares_filesystem(&self) -> bool {
        true
    }

    async fn status(&self) -> Answer<Status> {
        Ok(self.look())
    }

    async fn backends(&self) -> Answer<Vec<BackendReport>> {
        let backends = self.sessions.backends();
        let looking =
            async { Ok::<_, ApiError>(backends.survey_for(self.backend.as_deref()).await) };
        Ok(with_timeout(BACKEND_TIMEOUT, looking).await?)
    }

    async fn sessions(&self) -> Answer<Vec<SessionInfo>> {
        Ok(self.sessions.list())
    }

    async fn get_or_create(&self, spec: SpecRequest) -> Answer<SessionInfo> {
        Ok(self.make(spec).await?)
    }

    async fn delete(&self, id: &SessionId) -> Answer<()> {
        Ok(with_timeout(BACKEND_TIMEOUT, self.sessions.delete(id, "requested")).await?)
    }

    async fn exec(&self, spec: SpecRequest) -> Answer<Begun> {
        Ok(command::begin(self, spec).await?)
    }

    async fn read_text(&self, id: &SessionId, request: ReadTextRequest) -> Answer<TextSlice> {
        Ok(with_timeout(BACKEND_TIMEOUT, self.sessions.read_text(id, request)).await?)
    }

    async fn read_bytes(&self, id: &SessionId, path: &str, from: u64, most: u64) -> Answer<Bytes> {
        Ok(self.read(id, path, from, most).await?)
    }

    async fn write_text(&self, id: &SessionId, request: WriteTextRequest) -> Answer<WrittenText> {
        Ok(with_timeout(BACKEND_TIMEOUT, self.sessions.write_text(id, request)).await?)
    }

    async fn write_stream(&self, id: &SessionId, path: &str, content: Content) -> Answer<()> {
        Ok(with_timeout(BACKEND_TIMEOUT, self.store(id, path, content)).await?)
    }

    async fn remove(&self, id: &SessionId, path: &str) -> Answer<()> {
        Ok(self.forget(id, path).await?)
    }

    async fn edit_text(&self, id: &SessionId, request: EditTextRequest) -> Answer<EditedText> {
        Ok(with_timeout(BACKEND_TIMEOUT, self.sessions.edit_text(id, request)).await?)
    }

    async fn glob(&self, id: &SessionId, request: GlobRequest) -> Answer<GlobMatches> {
        Ok(with_timeout(BACKEND_TIMEOUT, self.sessions.glob(id, request)).await?)
    }

    async fn grep(&self, id: &SessionId, request: GrepRequest) -> Answer<GrepMatches> {
        Ok(with_timeout(BACKEND_TIMEOUT, self.sessions.grep(id, request)).await?)
    }

    async fn list(&self, id: &SessionId, path: &str) -> Answer<FileList> {
        Ok(self.entries(id, path).await?)
    }

    async fn skills(&self) -> Answer<Vec<SkillInfo>> {
        Ok(self.all_skills().await?)
    }

    async fn skill(&self, name: &str) -> Answer<Option<SkillDetail>> {
        Ok(self.one_skill(name).await?)
    }

    async fn write_skill_file(&self, name: &str, path: &str, content: Bytes) -> Answer<()> {
        Ok(self.put_skill_file(name, path, content).await?)
    }

    async fn read_skill_file(&self, name: &str, path: &str) -> Answer<Bytes> {
        Ok(self.get_skill_file(name, path).await?)
    }

    async fn register_skill(
        &self,
        id: &SessionId,
        path: &str,
        request: CreateSkillRequest,
    ) -> Answer<SkillDetail> {
        let from = Source {
            sessions: &self.sessions,
            session_id: id,
            path,
        };
        Ok(with_timeout(
            BACKEND_TIMEOUT,
            register(from, &self.skills, &self.skill_uploads, request),
        )
        .await?)
    }
}
