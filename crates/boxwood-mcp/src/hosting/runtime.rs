//! Where hosted servers run: the daemon's boxes, behind a few calls.
//!
//! Every request passes the daemon's own door, with hosting as its origin. Nothing here ever runs on
//! the host.

use boxwood_agent::{Answer, Begun};
use boxwood_api::{
    McpBoxSettings, ProcessId, ProcessInfo, ProcessSpec, Reason, SessionId, SessionInfo,
    SpecRequest,
};
use bytes::Bytes;
use futures_util::future::BoxFuture;

/// Whether servers can be started at all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    Ready,
    /// Boxes are turned off in the configuration.
    Disabled,
    Unavailable {
        message: String,
        hint: Option<String>,
    },
}

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gone {
    pub exit_code: Option<i32>,
    /// In words: out of memory, stopped, its box is gone.
    pub why: Option<String>,
}

impl Gone {
    pub fn new(exit_code: Option<i32>, reason: Option<&Reason>) -> Self {
        let why = reason.map(in_words);
        Self { exit_code, why }
    }
}

fn in_words(reason: &Reason) -> String {
    match reason {
        Reason::Timeout => "it ran longer than its timeout".to_owned(),
        Reason::Oom => "its box reached the memory limit".to_owned(),
        Reason::PidsLimit => "its box reached the limit of processes".to_owned(),
        Reason::DiskQuota => "its box has no room left for files".to_owned(),
        Reason::OutputLimit => "it wrote more than is kept".to_owned(),
        Reason::Seccomp { syscall } => {
            format!("it used the system call `{syscall}`, which boxes may not")
        }
        Reason::NetworkDenied { host } => format!("its box may not reach {host}"),
        Reason::Signal { signal } => format!("it died of signal {signal}"),
        Reason::BoxGone => "its box is gone".to_owned(),
        Reason::Cancelled => "it was stopped".to_owned(),
    }
}

/// A directory of the host that a box sees. Made by hosting itself, never from a client's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnMount {
    pub host_path: std::path::PathBuf,
    pub mount_path: String,
    pub is_writable: bool,
}

/// A directory of the host that may be mounted, held open: what its path leads to later is another
/// matter, so whoever copies from it starts at the descriptor.
#[derive(Clone, Debug)]
pub struct HostDirectory {
    pub handle: std::sync::Arc<std::os::fd::OwnedFd>,
    /// Where the kernel says it is.
    pub real_path: std::path::PathBuf,
}

/// What a box is made of: whatever is installed in one may be no good in another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoxKind {
    pub image: String,
    pub backend: String,
    /// How much it has is no part of what it is made of, but is known at the same door.
    pub memory_mb: u64,
}

/// A box that was made, and what it has otherwise than it was asked for.
#[derive(Clone, Debug)]
pub struct MadeBox {
    pub session: SessionInfo,
    /// In words, such as what its profile locks.
    pub notices: Vec<String>,
}

/// The pipes of one process. Dropping it lets go of the process, which runs on.
pub trait Wire: Send + Sync {
    /// What it wrote next. `None` once its output has ended or another has taken over.
    fn next(&self) -> BoxFuture<'_, Option<Bytes>>;

    /// Resolves once the bytes are accepted.
    fn send(&self, bytes: Bytes) -> BoxFuture<'_, Answer<()>>;

    fn close_input(&self);

    fn exited(&self) -> BoxFuture<'_, Gone>;
}

pub trait Runtime: Send + Sync + 'static {
    /// Of the backend that a box with these settings would get.
    fn standing<'a>(&'a self, settings: &'a McpBoxSettings) -> BoxFuture<'a, Standing>;

    /// Judges `spec` as [`Runtime::create`] would, and makes nothing. Gives the directory that its
    /// `host_path` is, for whoever shows the box a copy instead; `None` when it names none, or the
    /// profile lets it see nothing.
    fn judge(&self, spec: SpecRequest) -> BoxFuture<'_, Answer<Option<HostDirectory>>>;

    /// What a box of `spec` would be made of now, with what its profile and the daemon decide filled in.
    fn resolve(&self, spec: SpecRequest) -> BoxFuture<'_, Answer<BoxKind>>;

    /// `spec` holds what somebody asked for and is judged; `mounts` are ours.
    fn create(&self, spec: SpecRequest, mounts: Vec<OwnMount>) -> BoxFuture<'_, Answer<MadeBox>>;

    /// Runs `spec.cmd` in a session that is there. Dropping what comes back kills it.
    fn exec(&self, spec: SpecRequest) -> BoxFuture<'_, Answer<Begun>>;

    /// That it is not there is no failure.
    fn delete<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Answer<()>>;

    fn session<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Answer<Option<SessionInfo>>>;

    /// Every session whose id begins so.
    fn sessions<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Answer<Vec<SessionInfo>>>;

    fn start<'a>(
        &'a self,
        session: &'a SessionId,
        process: ProcessSpec,
    ) -> BoxFuture<'a, Answer<ProcessInfo>>;

    fn processes<'a>(&'a self, session: &'a SessionId) -> BoxFuture<'a, Answer<Vec<ProcessInfo>>>;

    /// From where the last reader stopped.
    fn attach<'a>(
        &'a self,
        session: &'a SessionId,
        process: &'a ProcessId,
    ) -> BoxFuture<'a, Answer<Box<dyn Wire>>>;

    /// Closes stdin, asks, kills. That it is not there is no failure.
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
