//! The [`Boxes`] of a daemon: each call is a request of its HTTP API.

use std::time::Duration;

use async_trait::async_trait;
use boxwood_api::{
    AgentStatus, BackendReport, CreateSkillRequest, EditTextRequest, EditedText, ErrorCode,
    FileList, GlobMatches, GlobRequest, GrepMatches, GrepRequest, ReadTextRequest,
    RegisterSkillRequest, SessionId, SessionInfo, SkillDetail, SkillInfo, SpecRequest, Status,
    TextSlice, WriteTextRequest, WrittenText,
};
use boxwood_client::{ClientError, LiveRequest};
use bytes::Bytes;
use tokio::time::Instant;

use super::Remote;
use super::command::RemoteExec;
use super::request::Repeat;
use crate::boxes::{Answer, Begun, Boxes, BoxesError};

/// Limit of a file of a skill's package that is read whole.
const MAX_SKILL_FILE_BYTES: usize = 16 << 20;

/// Mode of files that were written through a tool.
const FILE_MODE: u32 = 0o644;

impl Remote {
    /// The status of the daemon's own agent.
    pub(crate) async fn agent_status(&self) -> Answer<AgentStatus> {
        self.runtime_request(|| self.client.agent_status()).await
    }

    /// An idempotent request about the daemon.
    async fn runtime_request<T, F>(&self, request: impl Fn() -> F) -> Answer<T>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        self.request(self.deadlines.runtime, Repeat::Always, request)
            .await
    }

    /// A request about files or skills.
    async fn files<T, F>(&self, repeat: Repeat, request: impl Fn() -> F) -> Answer<T>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        self.request(self.deadlines.files, repeat, request).await
    }
}

#[async_trait]
impl Boxes for Remote {
    fn shares_filesystem(&self) -> bool {
        self.shares_filesystem
    }

    async fn status(&self) -> Answer<Status> {
        self.runtime_request(|| self.client.status()).await
    }

    async fn backends(&self) -> Answer<Vec<BackendReport>> {
        self.runtime_request(|| self.client.backends()).await
    }

    async fn sessions(&self) -> Answer<Vec<SessionInfo>> {
        self.runtime_request(|| self.client.sessions()).await
    }

    async fn get_or_create(&self, spec: SpecRequest) -> Answer<SessionInfo> {
        let id = session_of(&spec)?;
        // Idempotent: an existing session with the same settings is returned.
        let create = || self.client.create_session(&id, &spec);
        self.request(self.deadlines.start, Repeat::Always, create)
            .await
    }

    async fn exec(&self, spec: SpecRequest) -> Answer<Begun> {
        self.begin(spec).await
    }

    async fn read_text(&self, id: &SessionId, request: ReadTextRequest) -> Answer<TextSlice> {
        let read = || self.client.read_text(id, &request);
        self.files(Repeat::Always, read).await
    }

    async fn read_bytes(
        &self,
        id: &SessionId,
        path: &str,
        from: u64,
        max_bytes: u64,
    ) -> Answer<Bytes> {
        let read = || self.client.read_file_part(id, path, from, max_bytes);
        self.files(Repeat::Always, read).await
    }

    async fn write_text(&self, id: &SessionId, request: WriteTextRequest) -> Answer<WrittenText> {
        // Idempotent, except that the file is not new the second time.
        let write = || self.client.write_text(id, &request);
        self.files(Repeat::Always, write).await
    }

    async fn write_file(&self, id: &SessionId, path: &str, content: Bytes) -> Answer<()> {
        if let Some((above, _)) = path.rsplit_once('/').filter(|(above, _)| !above.is_empty()) {
            let make = || self.client.make_directory(id, above);
            self.files(Repeat::Always, make).await?;
        }
        let upload = || {
            let content = std::io::Cursor::new(content.clone());
            self.client.upload_file(id, path, FILE_MODE, content)
        };
        self.files(Repeat::Always, upload).await.map(drop)
    }

    async fn remove(&self, id: &SessionId, path: &str) -> Answer<()> {
        let remove = || async { found(self.client.remove_file(id, path).await) };
        self.files(Repeat::Always, remove).await.map(drop)
    }

    async fn edit_text(&self, id: &SessionId, request: EditTextRequest) -> Answer<EditedText> {
        let edit = || self.client.edit_text(id, &request);
        self.files(Repeat::Never("the file was edited"), edit).await
    }

    async fn glob(&self, id: &SessionId, request: GlobRequest) -> Answer<GlobMatches> {
        let glob = || self.client.glob(id, &request);
        self.files(Repeat::Always, glob).await
    }

    async fn grep(&self, id: &SessionId, request: GrepRequest) -> Answer<GrepMatches> {
        let grep = || self.client.grep(id, &request);
        self.files(Repeat::Always, grep).await
    }

    async fn list(&self, id: &SessionId, path: &str) -> Answer<FileList> {
        let list = || self.client.list_files(id, path);
        self.files(Repeat::Always, list).await
    }

    async fn skills(&self) -> Answer<Vec<SkillInfo>> {
        let list = self.files(Repeat::Always, || self.client.skills()).await;
        list.map(|list| list.skills)
    }

    async fn skill(&self, name: &str) -> Answer<Option<SkillDetail>> {
        let skill = || async { found(self.client.skill(name).await) };
        self.files(Repeat::Always, skill).await
    }

    async fn read_skill_file(&self, name: &str, path: &str) -> Answer<Bytes> {
        let read = || async {
            let download = self.client.read_skill_file(name, path).await?;
            match download.whole(MAX_SKILL_FILE_BYTES).await {
                // Longer than the limit. The runtime has responded, so this is no error of the connection.
                Err(ClientError::Unexpected { .. }) => Ok(None),
                read => read.map(Some),
            }
        };
        let content = self.files(Repeat::Always, read).await?;
        content.map(Bytes::from).ok_or_else(|| BoxesError {
            code: ErrorCode::PayloadTooLarge,
            message: format!("{path} has more than {} MiB", MAX_SKILL_FILE_BYTES >> 20),
            hint: None,
            reached: true,
        })
    }

    async fn write_skill_file(&self, name: &str, path: &str, content: Bytes) -> Answer<()> {
        let content = &content;
        let write = || {
            self.client
                .write_skill_file(name, path, content.clone(), None)
        };
        self.files(Repeat::Always, write).await.map(drop)
    }

    async fn register_skill(
        &self,
        id: &SessionId,
        path: &str,
        request: CreateSkillRequest,
    ) -> Answer<SkillDetail> {
        let request = RegisterSkillRequest {
            path: path.to_owned(),
            name: request.name,
            display_name: request.display_name,
            description: request.description,
            instructions: request.instructions,
        };
        let register = || self.client.register_skill(id, &request);
        self.files(Repeat::Never("the skill was registered"), register)
            .await
    }
}

impl Remote {
    async fn begin(&self, spec: SpecRequest) -> Answer<Begun> {
        let id = session_of(&spec)?;
        let requested_sec = spec.timeout_sec;
        let request = LiveRequest {
            spec,
            ..LiveRequest::default()
        };
        let start = || {
            let (client, id, request) = (self.client.clone(), id.clone(), request.clone());
            // In a task: if the caller is cancelled, a command that has started must still be ended.
            let starting = tokio::spawn(async move { client.live_exec(&id, request).await });
            async move {
                let ended = |error: tokio::task::JoinError| ClientError::Lost {
                    operation: "exec".to_owned(),
                    source: Box::new(error),
                };
                starting.await.map_err(ended)?
            }
        };
        let repeat = Repeat::Never("the command was started");
        let live = self.request(self.deadlines.start, repeat, start).await?;
        let notices = live.notices.clone();
        // A daemon of another version may omit it.
        let timeout = live.timeout_sec.or(requested_sec);
        let timeout = timeout.map_or(self.deadlines.command, Duration::from_secs);
        let within = timeout.saturating_add(self.deadlines.slack);
        let command = RemoteExec {
            client: self.client.clone(),
            live: Some(live),
            deadline: Instant::now() + within,
            within,
            call: Some(self.calls.token()),
        };
        let detail = self.runtime_request(|| self.client.session(&id)).await;
        // Unknown if the session has already ended with its command.
        let backend = detail.map(|detail| detail.session.backend_name);
        Ok(Begun {
            backend: backend.unwrap_or_default(),
            session_id: id,
            notices,
            timeout,
            command: Box::new(command),
        })
    }
}

fn session_of(spec: &SpecRequest) -> Result<SessionId, BoxesError> {
    spec.session_id.clone().ok_or_else(|| BoxesError {
        code: ErrorCode::ValidationError,
        message: "session_id is required".to_owned(),
        hint: None,
        reached: true,
    })
}

/// `None` if it does not exist.
fn found<T>(result: Result<T, ClientError>) -> Result<Option<T>, ClientError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(ClientError::Refused {
            code: ErrorCode::NotFound | ErrorCode::SessionNotFound | ErrorCode::SessionGone,
            ..
        }) => Ok(None),
        Err(error) => Err(error),
    }
}
