//! The daemon's boxes, as hosting sees them.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use boxwood_agent::{Answer, Begun};
use boxwood_api::{
    ErrorCode, McpBoxSettings, ProcessId, ProcessInfo, ProcessSpec, SessionId, SessionInfo,
    SpecRequest,
};
use boxwood_mcp::{BoxKind, HostDirectory, MadeBox, OwnMount, Runtime, Standing, Wire};
use boxwood_policy::{Admission, Denial, Facts, Origin, PolicyRules};
use boxwood_session::{LogStream, Reach, Replace, Sessions};
use boxwood_skills::SkillStore;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::{directories, wire};
use crate::agent::follow;
use crate::facts;
use crate::http::{ApiError, ApiResult, PATIENCE, within};
use crate::places::private_dir;

/// A box that is only thought of has a name as well.
const NOBODY: &str = "mcp-look";
/// For the backends to be looked at.
const LOOK: Duration = Duration::from_secs(10);

pub(crate) struct DaemonRuntime {
    /// Those of hosted servers.
    sessions: Sessions,
    /// With hosting's own directory.
    rules: PolicyRules,
    skills: SkillStore,
    /// Where hosting keeps everything, as the kernel calls it.
    home: PathBuf,
    /// For a box to start.
    start_patience: Duration,
    /// Whether the operator lets anything run in boxes on an agent's behalf.
    boxes_enabled: bool,
}

impl DaemonRuntime {
    /// Makes the directory, so that its real path is known from here on.
    pub(crate) fn new(
        home: &Path,
        sessions: &Sessions,
        rules: &PolicyRules,
        skills: SkillStore,
        start_patience: Duration,
        boxes_enabled: bool,
    ) -> io::Result<Self> {
        private_dir(home)?;
        let home = home.canonicalize()?;
        Ok(Self {
            sessions: sessions.reaching(Reach::Hosting),
            rules: PolicyRules {
                hosting_dir: Some(home.clone()),
                ..rules.clone()
            },
            skills,
            home,
            start_patience,
            boxes_enabled,
        })
    }

    pub(crate) fn home(&self) -> &Path {
        &self.home
    }

    /// The one door: facts, then policy.
    async fn admit(&self, request: &SpecRequest, mounts: Vec<OwnMount>) -> ApiResult<Admission> {
        if request.session_id.is_none() {
            return Err(ApiError::validation("the request names no session"));
        }
        request.validate()?;
        let mut facts = facts::gather(request, &self.skills).await;
        facts.own = directories::open_all(&self.home, mounts).await?;
        Ok(boxwood_policy::admit(
            request,
            Origin::Hosting,
            &facts,
            &self.rules,
        )?)
    }

    async fn look(&self, settings: &McpBoxSettings) -> Standing {
        if !self.boxes_enabled {
            return Standing::Disabled;
        }
        let request = SpecRequest {
            session_id: SessionId::new(NOBODY).ok(),
            profile: settings.profile.clone(),
            backend: settings.backend.clone(),
            ..SpecRequest::default()
        };
        let facts = Facts::default();
        let admitted = boxwood_policy::admit(&request, Origin::Hosting, &facts, &self.rules);
        // What policy refuses is told when the box is to be made, and is no matter of waiting.
        let Ok(Admission { spec, .. }) = admitted else {
            return Standing::Ready;
        };
        let looking = self.sessions.backends().look_for_box(&spec);
        match tokio::time::timeout(LOOK, looking).await {
            Ok(Err(error)) if error.code() == ErrorCode::BackendUnavailable => {
                Standing::Unavailable {
                    message: error.to_string(),
                    hint: error.hint(),
                }
            }
            Ok(_) => Standing::Ready,
            Err(_) => Standing::Unavailable {
                message: format!("the backend did not answer within {} s", LOOK.as_secs()),
                hint: Some("run `boxwood doctor` to see what is missing".to_owned()),
            },
        }
    }

    async fn make(&self, spec: SpecRequest, mounts: Vec<OwnMount>) -> ApiResult<MadeBox> {
        let admission = self.admit(&spec, mounts).await?;
        let notices = admission.exec.notices().to_vec();
        for notice in &notices {
            tracing::info!(session = %admission.spec.session(), notice, "a server's box differs from what was asked");
        }
        let making = self.sessions.get_or_create(admission.spec);
        let session = within(self.start_patience, making).await?;
        Ok(MadeBox { session, notices })
    }

    /// Only in a box that is there: one that is made for a command would not be the server's.
    async fn run(&self, spec: SpecRequest) -> ApiResult<Begun> {
        if spec.cmd.trim().is_empty() {
            return Err(Denial::EmptyCommand.into());
        }
        let admission = self.admit(&spec, Vec::new()).await?;
        let detail = self.sessions.detail(admission.spec.session())?;
        let sessions = self.sessions.expecting(Some(detail.session.incarnation));
        follow(&sessions, admission, self.start_patience).await
    }
}

/// What comes back of an [`ApiResult`] future, as hosting wants it.
fn told<'a, T: 'a>(
    work: impl Future<Output = ApiResult<T>> + Send + 'a,
) -> BoxFuture<'a, Answer<T>> {
    work.map(|outcome| outcome.map_err(Into::into)).boxed()
}

/// The same, where it is no failure that there is nothing.
fn unless_gone<T>(outcome: ApiResult<T>) -> ApiResult<Option<T>> {
    match outcome {
        Ok(found) => Ok(Some(found)),
        Err(error) => match error.code() {
            ErrorCode::SessionNotFound
            | ErrorCode::SessionGone
            | ErrorCode::ManagedProcessNotFound => Ok(None),
            _ => Err(error),
        },
    }
}

impl Runtime for DaemonRuntime {
    fn standing<'a>(&'a self, settings: &'a McpBoxSettings) -> BoxFuture<'a, Standing> {
        self.look(settings).boxed()
    }

    fn judge(&self, spec: SpecRequest) -> BoxFuture<'_, Answer<Option<HostDirectory>>> {
        told(async move {
            let admission = self.admit(&spec, Vec::new()).await?;
            Ok(admission.spec.workspace().map(|mount| HostDirectory {
                handle: Arc::clone(&mount.source().handle),
                real_path: mount.source().real_path.clone(),
            }))
        })
    }

    fn resolve(&self, spec: SpecRequest) -> BoxFuture<'_, Answer<BoxKind>> {
        told(async move {
            let spec = self.admit(&spec, Vec::new()).await?.spec;
            let backend = self.sessions.backends().current_of(&spec);
            Ok(BoxKind {
                image: spec.image_text().to_owned(),
                backend: backend.map_or_else(String::new, |backend| backend.name().to_owned()),
                memory_mb: spec.limits().memory_mb,
            })
        })
    }

    fn create(&self, spec: SpecRequest, mounts: Vec<OwnMount>) -> BoxFuture<'_, Answer<MadeBox>> {
        told(self.make(spec, mounts))
    }

    fn exec(&self, spec: SpecRequest) -> BoxFuture<'_, Answer<Begun>> {
        told(self.run(spec))
    }

    fn delete<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Answer<()>> {
        told(async move {
            let deleting = self.sessions.delete(session, "requested");
            unless_gone(within(PATIENCE, deleting).await).map(drop)
        })
    }

    fn session<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Answer<Option<SessionInfo>>> {
        told(async move {
            let detail = self.sessions.detail(session).map_err(Into::into);
            Ok(unless_gone(detail)?.map(|detail| detail.session))
        })
    }

    fn sessions<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Answer<Vec<SessionInfo>>> {
        async move {
            let mut sessions = self.sessions.list();
            sessions.retain(|session| session.session_id.as_str().starts_with(prefix));
            Ok(sessions)
        }
        .boxed()
    }

    fn start<'a>(
        &'a self,
        session: &'a SessionId,
        process: ProcessSpec,
    ) -> BoxFuture<'a, Answer<ProcessInfo>> {
        let starting = self
            .sessions
            .start_process(session, process, Replace::Running);
        told(within(PATIENCE, starting))
    }

    fn processes<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Answer<Vec<ProcessInfo>>> {
        told(async move { Ok(self.sessions.processes(session)?) })
    }

    fn attach<'a>(
        &'a self,
        session: &'a SessionId,
        process: &'a ProcessId,
    ) -> BoxFuture<'a, Answer<Box<dyn Wire>>> {
        told(async move {
            let attached = wire::attach(&self.sessions, session, process).await?;
            Ok(Box::new(attached) as Box<dyn Wire>)
        })
    }

    fn stop<'a>(
        &'a self,
        session: &'a SessionId,
        process: &'a ProcessId,
    ) -> BoxFuture<'a, Answer<()>> {
        told(async move {
            let stopping = self.sessions.stop_process(session, process);
            unless_gone(within(PATIENCE, stopping).await).map(drop)
        })
    }

    fn stderr<'a>(
        &'a self,
        session: &'a SessionId,
        process: &'a ProcessId,
    ) -> BoxFuture<'a, Answer<String>> {
        told(async move {
            let logs = self.sessions.logs(session, process)?;
            Ok(logs.text(LogStream::Stderr))
        })
    }
}
