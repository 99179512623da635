//! The daemon's boxes as hosting uses them.
//!
//! Every request passes the daemon's policy with the hosting origin.

use boxwood_agent::{Answer, Begun};
use boxwood_api::{
    McpBoxSettings, ProcessId, ProcessInfo, ProcessSpec, Reason, SessionId, SessionInfo,
    SpecRequest,
};
use bytes::Bytes;
use futures_util::future::BoxFuture;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BoxAvailability {
    Ready,
    /// Boxes are disabled in the configuration.
    Disabled,
    Unavailable {
        message: String,
        hint: Option<String>,
    },
}

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessExit {
    pub exit_code: Option<i32>,
    /// Reason, for display: for example, that the box reached its memory limit.
    pub why: Option<String>,
}

impl ProcessExit {
    pub fn new(exit_code: Option<i32>, reason: Option<&Reason>) -> Self {
        let why = reason.map(description);
        Self { exit_code, why }
    }
}

fn description(reason: &Reason) -> String {
    match reason {
        Reason::Timeout => "it ran longer than its timeout".to_owned(),
        Reason::Oom => "its box reached the memory limit".to_owned(),
        Reason::PidsLimit => "its box reached the process limit".to_owned(),
        Reason::DiskQuota => "its box has no disk space left".to_owned(),
        Reason::OutputLimit => "it exceeded the output limit".to_owned(),
        Reason::Seccomp { syscall } => {
            format!("it used the forbidden system call `{syscall}`")
        }
        Reason::NetworkDenied { host } => format!("its box is not allowed to connect to {host}"),
        Reason::Signal { signal } => format!("it was killed by signal {signal}"),
        Reason::BoxGone => "its box is gone".to_owned(),
        Reason::Cancelled => "it was stopped".to_owned(),
    }
}

/// A host directory created by hosting itself, never from a client's path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostingMount {
    pub host_path: std::path::PathBuf,
    pub mount_path: String,
    pub is_writable: bool,
}

/// What a box consists of. An install is valid only for the same kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoxKind {
    pub image: String,
    pub backend: String,
    /// Not part of the kind, but resolved by the same call.
    pub memory_mb: u64,
}

/// A created box and how it differs from the request.
#[derive(Clone, Debug)]
pub struct CreatedBox {
    pub session: SessionInfo,
    /// For display, such as a setting that the profile locks.
    pub notices: Vec<String>,
}

/// Standard input and output of one process. Dropping this detaches from the process, which keeps running.
pub trait ProcessIo: Send + Sync {
    /// The next output. `None` once the output has ended or another reader has attached.
    fn next(&self) -> BoxFuture<'_, Option<Bytes>>;

    /// Resolves once the bytes are accepted.
    fn send(&self, bytes: Bytes) -> BoxFuture<'_, Answer<()>>;

    fn close_input(&self);

    fn exited(&self) -> BoxFuture<'_, ProcessExit>;
}

pub trait Runtime: Send + Sync + 'static {
    /// Availability of the backend that a box with these settings would use.
    fn availability<'a>(&'a self, settings: &'a McpBoxSettings) -> BoxFuture<'a, BoxAvailability>;

    /// Checks `spec` like [`Runtime::create`] without creating anything. Returns false if its `host_path` would not
    /// be mounted, because the profile hides it.
    fn check_policy(&self, spec: SpecRequest) -> BoxFuture<'_, Answer<bool>>;

    /// The kind of box that `spec` would get now, with the defaults of its profile and of the daemon.
    fn resolve(&self, spec: SpecRequest) -> BoxFuture<'_, Answer<BoxKind>>;

    /// `spec` is checked by policy. `mounts` are hosting's own directories.
    fn create(
        &self,
        spec: SpecRequest,
        mounts: Vec<HostingMount>,
    ) -> BoxFuture<'_, Answer<CreatedBox>>;

    /// Runs `spec.cmd` in an existing session. Dropping the result kills the command.
    fn exec(&self, spec: SpecRequest) -> BoxFuture<'_, Answer<Begun>>;

    /// A missing session, or one of another client, is not an error and is left alone.
    fn delete<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Answer<()>>;

    /// `None` also for a session that another client created.
    fn session<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Answer<Option<SessionInfo>>>;

    /// The sessions that hosting created, also in an earlier daemon.
    fn sessions(&self) -> BoxFuture<'_, Answer<Vec<SessionId>>>;

    fn start<'a>(
        &'a self,
        session: &'a SessionId,
        process: ProcessSpec,
    ) -> BoxFuture<'a, Answer<ProcessInfo>>;

    fn processes<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Answer<Vec<ProcessInfo>>>;

    /// Output continues where the last reader stopped.
    fn attach<'a>(
        &'a self,
        session: &'a SessionId,
        process: &'a ProcessId,
    ) -> BoxFuture<'a, Answer<Box<dyn ProcessIo>>>;

    /// Closes stdin, then terminates, then kills. A missing process is not an error.
    fn stop<'a>(
        &'a self,
        session: &'a SessionId,
        process: &'a ProcessId,
    ) -> BoxFuture<'a, Answer<()>>;

    fn stderr<'a>(
        &'a self,
        session: &'a SessionId,
        process: &'a ProcessId,
    ) -> BoxFuture<'a, Answer<String>>;
}
