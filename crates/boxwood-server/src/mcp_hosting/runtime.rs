//! Implements hosting's `Runtime` with the daemon's sessions.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use boxwood_agent::{Answer, Begun};
use boxwood_api::{
    ErrorCode, McpBoxSettings, ProcessId, ProcessInfo, ProcessSpec, SessionId, SessionInfo,
    SpecRequest,
};
use boxwood_mcp::{BoxAvailability, BoxKind, CreatedBox, HostingMount, ProcessIo, Runtime};
use boxwood_policy::{Admission, Facts, Origin, PolicyRules};
use boxwood_session::{Access, Replace, Sessions};
use boxwood_skills::SkillStore;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;

use super::{directories, process_io};
use crate::agent::follow;
use crate::facts;
use crate::http::{ApiResult, BACKEND_TIMEOUT, with_timeout};
use crate::state_dir::private_dir;

/// Session id for availability checks, which create no box.
const PROBE_SESSION: &str = "mcp-probe";
/// Timeout of the availability check.
const AVAILABILITY_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) struct DaemonRuntime {
    /// With access to the sessions of hosted servers.
    sessions: Sessions,
    /// Including hosting's directory.
    rules: PolicyRules,
    skills: SkillStore,
    /// Hosting's directory as a canonical path.
    home: PathBuf,
    /// Timeout for creating a box.
    start_timeout: Duration,
    boxes_enabled: bool,
}

impl DaemonRuntime {
    /// Creates the directory, so that it can be canonicalized.
    pub(crate) fn new(
        home: &Path,
        sessions: &Sessions,
        rules: &PolicyRules,
        skills: SkillStore,
        start_timeout: Duration,
        boxes_enabled: bool,
    ) -> io::Result<Self> {
        private_dir(home)?;
        let home = home.canonicalize()?;
        Ok(Self {
            sessions: sessions.with_access(Access::Hosting),
            rules: PolicyRules {
                hosting_dir: Some(home.clone()),
                ..rules.clone()
            },
            skills,
            home,
            start_timeout,
            boxes_enabled,
        })
    }

    pub(crate) fn home(&self) -> &Path {
        &self.home
    }

    /// Gathers facts and applies policy.
    async fn admit(
        &self,
        request: &SpecRequest,
        mounts: Vec<HostingMount>,
    ) -> ApiResult<Admission> {
        let own = directories::open_all(&self.home, mounts).await?;
        let origin = Origin::Hosting;
        Ok(facts::admit(request, origin, own, &self.skills, &self.rules).await?)
    }

    async fn check_availability(&self, settings: &McpBoxSettings) -> BoxAvailability {
        if !self.boxes_enabled {
            return BoxAvailability::Disabled;
        }
        let request = SpecRequest {
            session_id: SessionId::new(PROBE_SESSION).ok(),
            profile: settings.profile.clone(),
            backend: settings.backend.clone(),
            ..SpecRequest::default()
        };
        let facts = Facts::default();
        let admitted = boxwood_policy::admit(&request, Origin::Hosting, &facts, &self.rules);
        // A policy denial is reported when the box is created. Waiting would not help.
        let Ok(Admission { spec, .. }) = admitted else {
            return BoxAvailability::Ready;
        };
        let probing = self.sessions.backends().probe_for_box(&spec);
        match tokio::time::timeout(AVAILABILITY_TIMEOUT, probing).await {
            Ok(Err(error)) if error.code() == ErrorCode::BackendUnavailable => {
                BoxAvailability::Unavailable {
                    message: error.to_string(),
                    hint: error.hint(),
                }
            }
            Ok(_) => BoxAvailability::Ready,
            Err(_) => BoxAvailability::Unavailable {
                message: format!(
                    "the backend did not answer within {} s",
                    AVAILABILITY_TIMEOUT.as_secs()
                ),
                hint: Some("run `boxwood doctor` to see what is missing".to_owned()),
            },
        }
    }
}

/// Converts the error of an [`ApiResult`].
fn to_answer<'a, T: 'a>(
    work: impl Future<Output = ApiResult<T>> + Send + 'a,
) -> BoxFuture<'a, Answer<T>> {
    work.map(|outcome| outcome.map_err(Into::into)).boxed()
}

/// Maps a missing session or process to `None`.
fn ignore_missing<T>(outcome: ApiResult<T>) -> ApiResult<Option<T>> {
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
    fn availability<'a>(&'a self, settings: &'a McpBoxSettings) -> BoxFuture<'a, BoxAvailability> {
        self.check_availability(settings).boxed()
    }

    fn check_policy(&self, spec: SpecRequest) -> BoxFuture<'_, Answer<bool>> {
        to_answer(async move {
            let admission = self.admit(&spec, Vec::new()).await?;
            Ok(admission.spec.workspace().is_some())
        })
    }

    fn resolve(&self, spec: SpecRequest) -> BoxFuture<'_, Answer<BoxKind>> {
        to_answer(async move {
            let spec = self.admit(&spec, Vec::new()).await?.spec;
            let backend = self.sessions.backends().current_of(&spec);
            Ok(BoxKind {
                image: spec.image_text().to_owned(),
                backend: backend.map_or_else(String::new, |backend| backend.name().to_owned()),
                memory_mb: spec.limits().memory_mb,
            })
        })
    }

    fn create(
        &self,
        spec: SpecRequest,
        mounts: Vec<HostingMount>,
    ) -> BoxFuture<'_, Answer<CreatedBox>> {
        to_answer(async move {
            let admission = self.admit(&spec, mounts).await?;
            let notices = admission.exec.notices().to_vec();
            for notice in &notices {
                tracing::info!(session = %admission.spec.session(), notice, "the box of a hosted MCP server differs from its definition");
            }
            let creating = self.sessions.get_or_create(admission.spec);
            let session = with_timeout(self.start_timeout, creating).await?;
            Ok(CreatedBox { session, notices })
        })
    }

    fn exec(&self, spec: SpecRequest) -> BoxFuture<'_, Answer<Begun>> {
        to_answer(async move {
            let admission = self.admit(&spec, Vec::new()).await?;
            // Never creates a box: a new one would not have the server in it.
            let detail = self.sessions.detail(admission.spec.session())?;
            let sessions = self.sessions.expecting(Some(detail.session.incarnation));
            follow(&sessions, admission, self.start_timeout).await
        })
    }

    fn delete<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Answer<()>> {
        to_answer(async move {
            let deleting = self.sessions.delete(session, "requested");
            ignore_missing(with_timeout(BACKEND_TIMEOUT, deleting).await).map(drop)
        })
    }

    fn session<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Answer<Option<SessionInfo>>> {
        to_answer(async move {
            let detail = self.sessions.detail(session).map_err(Into::into);
            Ok(ignore_missing(detail)?.map(|detail| detail.session))
        })
    }

    fn sessions(&self) -> BoxFuture<'_, Answer<Vec<SessionId>>> {
        std::future::ready(Ok(self.sessions.ids())).boxed()
    }

    fn start<'a>(
        &'a self,
        session: &'a SessionId,
        process: ProcessSpec,
    ) -> BoxFuture<'a, Answer<ProcessInfo>> {
        let starting = self
            .sessions
            .start_process(session, process, Replace::Running);
        to_answer(with_timeout(BACKEND_TIMEOUT, starting))
    }

    fn processes<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Answer<Vec<ProcessInfo>>> {
        to_answer(async move { Ok(self.sessions.processes(session)?) })
    }

    fn attach<'a>(
        &'a self,
        session: &'a SessionId,
        process: &'a ProcessId,
    ) -> BoxFuture<'a, Answer<Box<dyn ProcessIo>>> {
        to_answer(async move {
            let attached = process_io::attach(&self.sessions, session, process).await?;
            Ok(Box::new(attached) as Box<dyn ProcessIo>)
        })
    }

    fn stop<'a>(
        &'a self,
        session: &'a SessionId,
        process: &'a ProcessId,
    ) -> BoxFuture<'a, Answer<()>> {
        to_answer(async move {
            let stopping = self.sessions.stop_process(session, process);
            ignore_missing(with_timeout(BACKEND_TIMEOUT, stopping).await).map(drop)
        })
    }

    fn stderr<'a>(
        &'a self,
        session: &'a SessionId,
        process: &'a ProcessId,
    ) -> BoxFuture<'a, Answer<String>> {
        to_answer(async move { Ok(self.sessions.logs(session, process)?.stderr) })
    }
}
