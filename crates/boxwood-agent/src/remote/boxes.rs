//! The tools' words as requests to the daemon.

use std::sync::Mutex;
use std::time::Duration;

use boxwood_api::{
    AgentStatus, BackendReport, CreateSkillRequest, EditTextRequest, EditedText, ErrorCode,
    FileList, GlobMatches, GlobRequest, GrepMatches, GrepRequest, ReadTextRequest,
    RegisterSkillRequest, SessionId, SessionInfo, SkillDetail, SkillInfo, SpecRequest, Status,
    TextSlice, WriteTextRequest, WrittenText,
};
use boxwood_client::{ClientError, LiveRequest};
use bytes::Bytes;
use futures_util::future::BoxFuture;

use super::Remote;
use super::command::RemoteExec;
use super::request::Repeat;
use crate::boxes::{Answer, Begun, Boxes, BoxesError, Content};

/// A file of a skill's package that is read whole.
const MAX_SKILL_FILE_BYTES: usize = 16 << 20;

/// What files are made as that were written through a tool.
const FILE_MODE: u32 = 0o644;

impl Remote {
    /// What the daemon says of its own agent.
    pub(crate) async fn agent_status(&self) -> Answer<AgentStatus> {
        let within = self.deadlines.question;
        self.request(within, Repeat::Always, |client| async move {
            client.agent_status().await
        })
        .await
    }
}

impl Boxes for Remote {
    fn shares_filesystem(&self) -> bool {
        self.connector.shares_filesystem()
    }

    fn status(&self) -> BoxFuture<'_, Answer<Status>> {
        let within = self.deadlines.question;
        Box::pin(self.request(within, Repeat::Always, |client| async move {
            client.status().await
        }))
    }

    fn backends(&self) -> BoxFuture<'_, Answer<Vec<BackendReport>>> {
        let within = self.deadlines.question;
        Box::pin(self.request(within, Repeat::Always, |client| async move {
            client.backends().await
        }))
    }

    fn sessions(&self) -> BoxFuture<'_, Answer<Vec<SessionInfo>>> {
        let within = self.deadlines.question;
        Box::pin(self.request(within, Repeat::Always, |client| async move {
            client.sessions().await
        }))
    }

    fn get_or_create(&self, spec: SpecRequest) -> BoxFuture<'_, Answer<SessionInfo>> {
        Box::pin(async move {
            let id = session_of(&spec)?;
            let (id, spec) = (&id, &spec);
            // The same session again is the same answer.
            self.request(self.deadlines.start, Repeat::Always, |client| async move {
                client.create_session(id, spec).await
            })
            .await
        })
    }

    fn delete<'a>(&'a self, id: &'a SessionId) -> BoxFuture<'a, Answer<()>> {
        let repeat = Repeat::Unsent("the session is deleted");
        Box::pin(
            self.request(self.deadlines.files, repeat, move |client| async move {
                client.delete_session(id).await.map(drop)
            }),
        )
    }

    fn exec(&self, spec: SpecRequest) -> BoxFuture<'_, Answer<Begun>> {
        Box::pin(self.begin(spec))
    }

    fn read_text<'a>(
        &'a self,
        id: &'a SessionId,
        wish: ReadTextRequest,
    ) -> BoxFuture<'a, Answer<TextSlice>> {
        Box::pin(async move {
            let wish = &wish;
            self.request(self.deadlines.files, Repeat::Always, |client| async move {
                client.read_text(id, wish).await
            })
            .await
        })
    }

    fn read_bytes<'a>(
        &'a self,
        id: &'a SessionId,
        path: &'a str,
        from: u64,
        most: u64,
    ) -> BoxFuture<'a, Answer<Bytes>> {
        let within = self.deadlines.files;
        Box::pin(
            self.request(within, Repeat::Always, move |client| async move {
                client.read_file_part(id, path, from, most).await
            }),
        )
    }

    fn write_text<'a>(
        &'a self,
        id: &'a SessionId,
        wish: WriteTextRequest,
    ) -> BoxFuture<'a, Answer<WrittenText>> {
        Box::pin(async move {
            let wish = &wish;
            // A whole file: written twice it is the same, except that it is not new any more.
            self.request(self.deadlines.files, Repeat::Always, |client| async move {
                client.write_text(id, wish).await
            })
            .await
        })
    }

    fn write_stream<'a>(
        &'a self,
        id: &'a SessionId,
        path: &'a str,
        content: Content,
    ) -> BoxFuture<'a, Answer<()>> {
        Box::pin(async move {
            let above = path.rsplit_once('/').map_or("", |(above, _)| above);
            if !above.is_empty() {
                self.request(self.deadlines.files, Repeat::Always, |client| async move {
                    client.make_directory(id, above).await
                })
                .await?;
            }
            // It can be read once.
            let content = &Mutex::new(Some(content));
            let repeat = Repeat::Unsent("the whole file was written");
            self.request(self.deadlines.files, repeat, |client| async move {
                let content = content.lock().ok().and_then(|mut content| content.take());
                let content = content.ok_or_else(spent)?;
                client
                    .upload_file(id, path, FILE_MODE, content)
                    .await
                    .map(drop)
            })
            .await
        })
    }

    fn remove<'a>(&'a self, id: &'a SessionId, path: &'a str) -> BoxFuture<'a, Answer<()>> {
        let within = self.deadlines.files;
        Box::pin(
            self.request(within, Repeat::Always, move |client| async move {
                there_or_not(client.remove_file(id, path).await).map(drop)
            }),
        )
    }

    fn edit_text<'a>(
        &'a self,
        id: &'a SessionId,
        wish: EditTextRequest,
    ) -> BoxFuture<'a, Answer<EditedText>> {
        Box::pin(async move {
            let wish = &wish;
            let repeat = Repeat::Unsent("the file was edited");
            self.request(self.deadlines.files, repeat, |client| async move {
                client.edit_text(id, wish).await
            })
            .await
        })
    }

    fn glob<'a>(
        &'a self,
        id: &'a SessionId,
        wish: GlobRequest,
    ) -> BoxFuture<'a, Answer<GlobMatches>> {
        Box::pin(async move {
            let wish = &wish;
            self.request(self.deadlines.files, Repeat::Always, |client| async move {
                client.glob(id, wish).await
            })
            .await
        })
    }

    fn grep<'a>(
        &'a self,
        id: &'a SessionId,
        wish: GrepRequest,
    ) -> BoxFuture<'a, Answer<GrepMatches>> {
        Box::pin(async move {
            let wish = &wish;
            self.request(self.deadlines.files, Repeat::Always, |client| async move {
                client.grep(id, wish).await
            })
            .await
        })
    }

    fn list<'a>(&'a self, id: &'a SessionId, path: &'a str) -> BoxFuture<'a, Answer<FileList>> {
        let within = self.deadlines.files;
        Box::pin(
            self.request(within, Repeat::Always, move |client| async move {
                client.list_files(id, path).await
            }),
        )
    }

    fn skills(&self) -> BoxFuture<'_, Answer<Vec<SkillInfo>>> {
        let within = self.deadlines.files;
        Box::pin(self.request(within, Repeat::Always, |client| async move {
            client.skills().await.map(|list| list.skills)
        }))
    }

    fn skill<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Answer<Option<SkillDetail>>> {
        let within = self.deadlines.files;
        Box::pin(
            self.request(within, Repeat::Always, move |client| async move {
                there_or_not(client.skill(name).await)
            }),
        )
    }

    fn write_skill_file<'a>(
        &'a self,
        name: &'a str,
        path: &'a str,
        content: Bytes,
    ) -> BoxFuture<'a, Answer<()>> {
        Box::pin(async move {
            let content = &content;
            self.request(self.deadlines.files, Repeat::Always, |client| async move {
                client
                    .write_skill_file(name, path, content.clone(), None)
                    .await
                    .map(drop)
            })
            .await
        })
    }

    fn read_skill_file<'a>(&'a self, name: &'a str, path: &'a str) -> BoxFuture<'a, Answer<Bytes>> {
        let within = self.deadlines.files;
        Box::pin(
            self.request(within, Repeat::Always, move |client| async move {
                let download = client.read_skill_file(name, path).await?;
                Ok(download.whole(MAX_SKILL_FILE_BYTES).await?.into())
            }),
        )
    }

    fn register_skill<'a>(
        &'a self,
        id: &'a SessionId,
        path: &'a str,
        wish: CreateSkillRequest,
    ) -> BoxFuture<'a, Answer<SkillDetail>> {
        Box::pin(async move {
            let wish = &RegisterSkillRequest {
                path: path.to_owned(),
                name: wish.name,
                display_name: wish.display_name,
                description: wish.description,
                instructions: wish.instructions,
            };
            let repeat = Repeat::Unsent("the skill was registered");
            self.request(self.deadlines.files, repeat, |client| async move {
                client.register_skill(id, wish).await
            })
            .await
        })
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
        // A daemon of another version may not tell.
        let timeout = live.timeout_sec.or(asked);
        let timeout = timeout.map_or(self.deadlines.command, Duration::from_secs);
        let within = timeout.saturating_add(self.deadlines.slack);
        let command = RemoteExec::new(&self.connector, live, generation, within);
        let detail = self.request(self.deadlines.question, Repeat::Always, |client| {
            let id = &id;
            async move { there_or_not(client.session(id).await) }
        });
        // A session that ended with its command cannot be asked any more.
        let backend = match detail.await {
            Ok(Some(detail)) => detail.session.backend_name,
            Ok(None) | Err(_) => String::new(),
        };
        Ok(Begun {
            session_id: id,
            backend,
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

/// That something is not there is an answer.
fn there_or_not<T>(asked: Result<T, ClientError>) -> Result<Option<T>, ClientError> {
    match asked {
        Ok(there) => Ok(Some(there)),
        Err(ClientError::Refused {
            code: ErrorCode::NotFound | ErrorCode::SessionNotFound | ErrorCode::SessionGone,
            ..
        }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn spent() -> ClientError {
    ClientError::Lost {
        operation: "upload".to_owned(),
        source: "what was to be written has been read already".into(),
    }
}
