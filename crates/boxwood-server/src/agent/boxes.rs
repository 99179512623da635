//! The agent tools' access to boxes of this daemon.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use boxwood_agent::{Answer, Begun, Boxes};
use boxwood_api::{
    BackendReport, CreateSkillRequest, EditTextRequest, EditedText, ErrorCode, FileList,
    GlobMatches, GlobRequest, GrepMatches, GrepRequest, ReadTextRequest, SessionId, SessionInfo,
    SkillDetail, SkillInfo, SpecRequest, Status, TextSlice, WriteTextRequest, WrittenText,
};
use boxwood_policy::{Admission, Denial, Origin, PolicyRules};
use boxwood_session::{Choice, FileCall, Sessions};
use boxwood_skills::SkillStore;
use bytes::Bytes;
use futures_util::TryFutureExt as _;

use super::command;
use super::package::register;
use crate::facts;
use crate::http::{
    ApiError, ApiResult, BACKEND_TIMEOUT, InSession, UploadGate, put_file, skill_detail,
    skill_info, skill_refusal, with_store, with_timeout,
};

/// Upper limit of one read.
const MAX_READ_BYTES: u64 = 16 * 1024 * 1024;

/// Entries in one listing.
const MAX_LISTED_ENTRIES: usize = 10_000;

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
        let origin = Origin::Client;
        let admitted = facts::admit(&request, origin, Vec::new(), &self.skills, &self.rules).await;
        admitted.map_err(refused)
    }

    fn session(&self, id: &SessionId) -> InSession {
        InSession {
            id: id.clone(),
            sessions: self.sessions.clone(),
        }
    }
}

/// Reads at most `max_bytes` bytes of a file of a box, which may be changing it.
pub(super) async fn read_part(mut file: File, offset: u64, max_bytes: u64) -> ApiResult<Vec<u8>> {
    let reading = tokio::task::spawn_blocking(move || {
        let mut content = Vec::new();
        file.seek(SeekFrom::Start(offset))?;
        file.take(max_bytes).read_to_end(&mut content)?;
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

#[async_trait]
impl Boxes for DaemonBoxes {
    fn shares_filesystem(&self) -> bool {
        true
    }

    async fn status(&self) -> Answer<Status> {
        let mut status = self.sessions.status();
        if let Some(backend) = &self.backend {
            status.backend = self.sessions.backends().info_for(&Choice::new(backend));
        }
        Ok(status)
    }

    async fn backends(&self) -> Answer<Vec<BackendReport>> {
        let backends = self.sessions.backends();
        let probing =
            async { Ok::<_, ApiError>(backends.survey_for(self.backend.as_deref()).await) };
        Ok(with_timeout(BACKEND_TIMEOUT, probing).await?)
    }

    async fn sessions(&self) -> Answer<Vec<SessionInfo>> {
        Ok(self.sessions.list())
    }

    async fn get_or_create(&self, spec: SpecRequest) -> Answer<SessionInfo> {
        let admission = self.admit(spec).await?;
        let creating = self.sessions.get_or_create(admission.spec);
        Ok(with_timeout(self.start_timeout, creating).await?)
    }

    async fn exec(&self, spec: SpecRequest) -> Answer<Begun> {
        Ok(command::begin(self, spec).await?)
    }

    async fn read_text(&self, id: &SessionId, request: ReadTextRequest) -> Answer<TextSlice> {
        Ok(with_timeout(BACKEND_TIMEOUT, self.sessions.read_text(id, request)).await?)
    }

    async fn read_bytes(
        &self,
        id: &SessionId,
        path: &str,
        offset: u64,
        max_bytes: u64,
    ) -> Answer<Bytes> {
        let (file, _) = self.session(id).open(path).await?;
        let content = read_part(file, offset, max_bytes.min(MAX_READ_BYTES)).await?;
        Ok(content.into())
    }

    async fn write_text(&self, id: &SessionId, request: WriteTextRequest) -> Answer<WrittenText> {
        Ok(with_timeout(BACKEND_TIMEOUT, self.sessions.write_text(id, request)).await?)
    }

    async fn write_file(&self, id: &SessionId, path: &str, content: Bytes) -> Answer<()> {
        let content = io::Cursor::new(content);
        Ok(with_timeout(BACKEND_TIMEOUT, put_file(&self.session(id), path, content)).await?)
    }

    async fn remove(&self, id: &SessionId, path: &str) -> Answer<()> {
        let call = FileCall::Remove {
            path: path.to_owned(),
            recursive: false,
        };
        match self.session(id).file(call).await {
            Err(error) if error.code() != ErrorCode::NotFound => Err(error.into()),
            _ => Ok(()),
        }
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
        Ok(self.session(id).list(path, MAX_LISTED_ENTRIES).await?)
    }

    async fn skills(&self) -> Answer<Vec<SkillInfo>> {
        let listing = with_store(&self.skills, |store| {
            let skills = store.list().map_err(|error| skill_refusal(&error))?;
            Ok(skills.iter().map(skill_info).collect())
        });
        Ok(listing.await?)
    }

    async fn skill(&self, name: &str) -> Answer<Option<SkillDetail>> {
        let name = name.to_owned();
        let reading = with_store(&self.skills, move |store| {
            let found = store.get(&name).map_err(|error| skill_refusal(&error))?;
            Ok(found.map(skill_detail))
        });
        Ok(reading.await?)
    }

    async fn write_skill_file(&self, name: &str, path: &str, content: Bytes) -> Answer<()> {
        let _permit = self.skill_uploads.permit().await?;
        let (name, path) = (name.to_owned(), path.to_owned());
        let writing = with_store(&self.skills, move |store| {
            let written = store.write(&name, &path, &content);
            written.map(drop).map_err(|error| skill_refusal(&error))
        });
        Ok(writing.await?)
    }

    async fn read_skill_file(&self, name: &str, path: &str) -> Answer<Bytes> {
        let (name, path) = (name.to_owned(), path.to_owned());
        let reading = with_store(&self.skills, move |store| {
            let read = store.read_bytes(&name, &path);
            let file = read.map_err(|error| skill_refusal(&error))?;
            Ok(Bytes::from(file.content))
        });
        Ok(reading.await?)
    }

    async fn register_skill(
        &self,
        id: &SessionId,
        path: &str,
        request: CreateSkillRequest,
    ) -> Answer<SkillDetail> {
        let session = self.session(id);
        let registering = register(&session, path, &self.skills, &self.skill_uploads, request);
        Ok(with_timeout(BACKEND_TIMEOUT, registering).await?)
    }
}
