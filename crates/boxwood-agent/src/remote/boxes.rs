//! The [`Boxes`] of a daemon: each call is a request of its HTTP API.

use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use boxwood_api::{
    AgentStatus, BackendReport, CreateSkillRequest, EditTextRequest, EditedText, ErrorCode,
    FileList, GlobMatches, GlobRequest, GrepMatches, GrepRequest, ReadTextRequest,
    RegisterSkillRequest, SessionId, SessionInfo, SkillDetail, SkillInfo, SpecRequest, Status,
    TextSlice, WriteTextRequest, WrittenText,
};
use boxwood_client::{Client, ClientError, LiveRequest};
use bytes::Bytes;

use super::Remote;
use super::command::RemoteExec;
use super::request::Repeat;
use crate::boxes::{Answer, Begun, Boxes, BoxesError, Content};

/// Limit of a file of a skill's package that is read whole.
const MAX_SKILL_FILE_BYTES: usize = 16 << 20;

/// Mode of files that were written through a tool.
const FILE_MODE: u32 = 0o644;

impl Remote {
    /// The status of the daemon's own agent.
    pub(crate) async fn agent_status(&self) -> Answer<AgentStatus> {
        self.question(|client| async move { client.agent_status().await })
            .await
    }

    /// An idempotent request about the daemon.
    async fn question<T, F>(&self, request: impl Fn(Client) -> F) -> Answer<T>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        self.request(self.deadlines.question, Repeat::Always, request)
            .await
    }

    /// A request about files or skills.
    async fn files<T, F>(&self, repeat: Repeat, request: impl Fn(Client) -> F) -> Answer<T>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        self.request(self.deadlines.files, repeat, request).await
    }
}

#[async_trait]
impl Boxes for Remote {
    fn shares_filesystem(&self) -> bool {
        self.connector.shares_filesystem()
    }

    async fn status(&self) -> Answer<Status> {
        self.question(|client| async move { client.status().await })
            .await
    }

    async fn backends(&self) -> Answer<Vec<BackendReport>> {
        self.question(|client| async move { client.backends().await })
            .await
    }

    async fn sessions(&self) -> Answer<Vec<SessionInfo>> {
        self.question(|client| async move { client.sessions().await })
            .await
    }

    async fn get_or_create(&self, spec: SpecRequest) -> Answer<SessionInfo> {
        let (id, spec) = (&session_of(&spec)?, &spec);
        // Idempotent: the same session has the same answer.
        self.request(self.deadlines.start, Repeat::Always, |client| async move {
            client.create_session(id, spec).await
        })
        .await
    }

    async fn delete(&self, id: &SessionId) -> Answer<()> {
        let repeat = Repeat::Unsent("the session is deleted");
        self.files(repeat, |client| async move {
            client.delete_session(id).await.map(drop)
        })
        .await
    }

    async fn exec(&self, spec: SpecRequest) -> Answer<Begun> {
        self.begin(spec).await
    }

    async fn read_text(&self, id: &SessionId, request: ReadTextRequest) -> Answer<TextSlice> {
        let request = &request;
        self.files(Repeat::Always, |client| async move {
            client.read_text(id, request).await
        })
        .await
    }

    async fn read_bytes(&self, id: &SessionId, path: &str, from: u64, most: u64) -> Answer<Bytes> {
        self.files(Repeat::Always, |client| async move {
            client.read_file_part(id, path, from, most).await
        })
        .await
    }

    async fn write_text(&self, id: &SessionId, request: WriteTextRequest) -> Answer<WrittenText> {
        let request = &request;
        // Idempotent, except that the file is not new the second time.
        self.files(Repeat::Always, |client| async move {
            client.write_text(id, request).await
        })
        .await
    }

    async fn write_stream(&self, id: &SessionId, path: &str, content: Content) -> Answer<()> {
        if let Some((above, _)) = path.rsplit_once('/').filter(|(above, _)| !above.is_empty()) {
            self.files(Repeat::Always, |client| async move {
                client.make_directory(id, above).await
            })
            .await?;
        }
        // The content can be read once.
        let content = &Mutex::new(Some(content));
        let repeat = Repeat::Unsent("the whole file was written");
        self.files(repeat, |client| async move {
            let content = content.lock().ok().and_then(|mut content| content.take());
            let content = content.ok_or_else(|| ClientError::Lost {
                operation: "upload".to_owned(),
                source: "the content was already read".into(),
            })?;
            let uploaded = client.upload_file(id, path, FILE_MODE, content).await;
            uploaded.map(drop)
        })
        .await
    }

    async fn remove(&self, id: &SessionId, path: &str) -> Answer<()> {
        self.files(Repeat::Always, |client| async move {
            found(client.remove_file(id, path).await).map(drop)
        })
        .await
    }

    async fn edit_text(&self, id: &SessionId, request: EditTextRequest) -> Answer<EditedText> {
        let request = &request;
        self.files(Repeat::Unsent("the file was edited"), |client| async move {
            client.edit_text(id, request).await
        })
        .await
    }

    async fn glob(&self, id: &SessionId, request: GlobRequest) -> Answer<GlobMatches> {
        let request = &request;
        self.files(Repeat::Always, |client| async move {
            client.glob(id, request).await
        })
        .await
    }

    async fn grep(&self, id: &SessionId, request: GrepRequest) -> Answer<GrepMatches> {
        let request = &request;
        self.files(Repeat::Always, |client| async move {
            client.grep(id, request).await
        })
        .await
    }

    async fn list(&self, id: &SessionId, path: &str) -> Answer<FileList> {
        self.files(Repeat::Always, |client| async move {
            client.list_files(id, path).await
        })
        .await
    }

    async fn skills(&self) -> Answer<Vec<SkillInfo>> {
        self.files(Repeat::Always, |client| async move {
            client.skills().await.map(|list| list.skills)
        })
        .await
    }

    async fn skill(&self, name: &str) -> Answer<Option<SkillDetail>> {
        self.files(Repeat::Always, |client| async move {
            found(client.skill(name).await)
        })
        .await
    }

    async fn read_skill_file(&self, name: &str, path: &str) -> Answer<Bytes> {
        self.files(Repeat::Always, |client| async move {
            let download = client.read_skill_file(name, path).await?;
            Ok(download.whole(MAX_SKILL_FILE_BYTES).await?.into())
        })
        .await
    }

    async fn write_skill_file(&self, name: &str, path: &str, content: Bytes) -> Answer<()> {
        let content = &content;
        self.files(Repeat::Always, |client| async move {
            let written = client.write_skill_file(name, path, content.clone(), None);
            written.await.map(drop)
        })
        .await
    }

    async fn register_skill(
        &self,
        id: &SessionId,
        path: &str,
        request: CreateSkillRequest,
    ) -> Answer<SkillDetail> {
        let request = &RegisterSkillRequest {
            path: path.to_owned(),
            name: request.name,
            display_name: request.display_name,
            description: request.description,
            instructions: request.instructions,
        };
        let repeat = Repeat::Unsent("the skill was registered");
        self.files(repeat, |client| async move {
            client.register_skill(id, request).await
        })
        .await
    }
}

impl Remote {
    async fn begin(&self, spec: SpecRequest) -> Answer<Begun> {
        let id = session_of(&spec)?;
        let asked = spec.timeout_sec;
        let request = LiveRequest {
            spec,
            ..LiveRequest::default()
        };
        let repeat = Repeat::Unsent("the command was started");
        let started = self.request_on(self.deadlines.start, repeat, |client| {
            let (id, request) = (id.clone(), request.clone());
            // In a task: if the caller is cancelled, a command that has started must still be ended.
            let starting = tokio::spawn(async move { client.live_exec(&id, request).await });
            async move {
                let ended = |error: tokio::task::JoinError| ClientError::Lost {
                    operation: "exec".to_owned(),
                    source: Box::new(error),
                };
                starting.await.map_err(ended)?
            }
        });
        let (live, generation) = started.await?;
        let notices = live.notices.clone();
        // A daemon of another version may leave it out.
        let timeout = live.timeout_sec.or(asked);
        let timeout = timeout.map_or(self.deadlines.command, Duration::from_secs);
        let within = timeout.saturating_add(self.deadlines.slack);
        let command = RemoteExec::new(&self.connector, live, generation, within);
        let session = &id;
        let detail = self.question(|client| async move { client.session(session).await });
        // Unknown if the session has already ended with its command.
        let backend = detail.await.map(|detail| detail.session.backend_name);
        Ok(Begun {
            session_id: id,
            backend: backend.unwrap_or_default(),
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
