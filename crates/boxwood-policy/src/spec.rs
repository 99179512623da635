//! What policy has allowed: types whose only constructor is [`crate::admit`].

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use boxwood_api::{Mechanism, MountMode, Network, SessionId};

use crate::{Denial, SpecField};

/// A host file or directory that was opened once, and is mounted by that very descriptor.
///
/// `real_path` is where the kernel says the descriptor is, after every symlink and `..`; policy
/// judges that, and nobody can swap what the descriptor points to afterwards.
#[derive(Clone, Debug)]
pub struct OpenedPath {
    pub handle: Arc<OwnedFd>,
    pub given: String,
    pub real_path: PathBuf,
    pub is_dir: bool,
}

impl OpenedPath {
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.handle.as_fd()
    }
}

/// Where a box's root comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Image {
    /// The host's own system directories, read-only (native), or the engine's default image.
    Default,
    /// A directory the operator configured under `[images]`.
    Directory { name: String, path: PathBuf },
    /// A name that only an engine can resolve.
    Named(String),
}

impl Image {
    pub fn name(&self) -> &str {
        match self {
            Self::Default => "host",
            Self::Directory { name, .. } | Self::Named(name) => name,
        }
    }
}

/// Under which user commands run inside the box.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BoxUser {
    #[default]
    Box,
    Root,
}

/// When a mount may enter a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Joining {
    /// Part of what the box is: a request that brings another set means another box.
    WhenMade,
    /// May also be added to a box that is running.
    Living,
}

/// Whose session it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Owner {
    /// Whoever knows its name.
    #[default]
    Callers,
    Hosting,
}

#[derive(Clone, Debug)]
pub struct AdmittedMount {
    pub(crate) source: OpenedPath,
    pub(crate) mount_path: String,
    pub(crate) mode: MountMode,
    pub(crate) joining: Joining,
    /// Where it is below the workspace, for mounts that belong to the workspace wherever that is.
    pub(crate) below_workspace: Option<String>,
}

impl AdmittedMount {
    pub fn source(&self) -> &OpenedPath {
        &self.source
    }

    /// Absolute and normalised: no `.`, `..`, double slash or trailing slash.
    pub fn mount_path(&self) -> &str {
        &self.mount_path
    }

    /// `Ro` or `Rw`; mounts of mode `none` never get this far.
    pub fn mode(&self) -> MountMode {
        self.mode
    }

    pub fn joining(&self) -> Joining {
        self.joining
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    pub cpus: f64,
    pub memory_mb: u64,
    pub pids: u64,
    /// Size of the private `/tmp`.
    pub tmp_mb: u64,
    /// Size of the other private areas (home, private workspace) together; 0 means the default.
    pub workspace_quota_mb: u64,
}

/// A request that policy has allowed, with every default filled in.
///
/// The fields are private and [`crate::admit`] is the only constructor ([`AdmittedSpec::with_mounts`]
/// and its neighbours put together what it made, and [`AdmittedSpec::restored`] brings back what it
/// made for a box that is still there), so holding one of these *is* the proof that policy ran.
/// Backends accept nothing else. (It never derives `Deserialize`: that would be a second constructor.)
#[derive(Clone, Debug)]
pub struct AdmittedSpec {
    pub(crate) session: SessionId,
    pub(crate) profile: String,
    pub(crate) image: Image,
    /// The image as the caller or the profile spelled it, for the session object.
    pub(crate) image_text: String,
    pub(crate) network: Network,
    pub(crate) limits: Limits,
    pub(crate) read_only_root: bool,
    /// `None`: a private workspace.
    pub(crate) workspace: Option<AdmittedMount>,
    /// As asked, also when the mode is `none` and nothing is mounted.
    pub(crate) host_path: Option<String>,
    pub(crate) host_path_mode: MountMode,
    pub(crate) mount_path: String,
    pub(crate) extra_mounts: Vec<AdmittedMount>,
    pub(crate) persistent: bool,
    pub(crate) user: BoxUser,
    pub(crate) require: Vec<Mechanism>,
    pub(crate) host_network_allowed: bool,
    /// As the caller or the profile named it.
    pub(crate) backend: Option<String>,
    pub(crate) owner: Owner,
    pub(crate) asked: BTreeSet<SpecField>,
}

macro_rules! getters {
    ($($(#[$doc:meta])* $name:ident -> $ty:ty = |$spec:ident| $body:expr;)*) => {
        impl AdmittedSpec {
            $($(#[$doc])* pub fn $name(&self) -> $ty { let $spec = self; $body })*
        }
    };
}

getters! {
    session -> &SessionId = |s| &s.session;
    profile -> &str = |s| &s.profile;
    image -> &Image = |s| &s.image;
    image_text -> &str = |s| &s.image_text;
    network -> Network = |s| s.network;
    limits -> Limits = |s| s.limits;
    read_only_root -> bool = |s| s.read_only_root;
    workspace -> Option<&AdmittedMount> = |s| s.workspace.as_ref();
    host_path -> Option<&str> = |s| s.host_path.as_deref();
    host_path_mode -> MountMode = |s| s.host_path_mode;
    mount_path -> &str = |s| &s.mount_path;
    extra_mounts -> &[AdmittedMount] = |s| &s.extra_mounts;
    persistent -> bool = |s| s.persistent;
    user -> BoxUser = |s| s.user;
    require -> &[Mechanism] = |s| &s.require;
    /// Whether `network: on` may share the host's own network, because the operator said so.
    host_network_allowed -> bool = |s| s.host_network_allowed;
    /// What is to run the box, or runs it; `None` while that is the daemon's choice.
    backend -> Option<&str> = |s| s.backend.as_deref();
    /// Made for an MCP server of this daemon, whose secrets are in it: nobody else's commands are.
    is_hosted -> bool = |s| s.owner == Owner::Hosting;
    /// The fields that the caller named; every other value came from the profile.
    asked -> &BTreeSet<SpecField> = |s| &s.asked;
}

/// How a spec and a box that is there already come together.
impl AdmittedSpec {
    /// The mounts of this spec that may join `living`, at their places in it: a caller who named no
    /// workspace means the one that is there.
    pub fn joining(&self, living: &Self) -> Vec<AdmittedMount> {
        let workspace = if self.asked.contains(&SpecField::MountPath) {
            &self.mount_path
        } else {
            &living.mount_path
        };
        self.extra_mounts
            .iter()
            .filter(|mount| mount.joining == Joining::Living)
            .map(|mount| match &mount.below_workspace {
                Some(below) => AdmittedMount {
                    mount_path: format!("{workspace}/{below}"),
                    ..mount.clone()
                },
                None => mount.clone(),
            })
            .collect()
    }

    /// The same box, run by the backend that was chosen for it.
    #[must_use]
    pub fn on_backend(&self, name: &str) -> Self {
        Self {
            backend: Some(name.to_owned()),
            ..self.clone()
        }
    }

    /// The same box with another set of mounts. Each was admitted, so the whole is.
    #[must_use]
    pub fn with_mounts(&self, mut extra_mounts: Vec<AdmittedMount>) -> Self {
        outer_first(&mut extra_mounts);
        Self {
            extra_mounts,
            ..self.clone()
        }
    }
}

/// Outer before inner, so that none hides another whichever way they were listed.
pub(crate) fn outer_first(mounts: &mut [AdmittedMount]) {
    mounts.sort_by(|one, other| one.mount_path.split('/').cmp(other.mount_path.split('/')));
}

/// One command that policy has allowed.
#[derive(Clone)]
pub struct AdmittedExec {
    pub(crate) cmd: String,
    pub(crate) workdir: String,
    pub(crate) workdir_named: bool,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) timeout: Duration,
    pub(crate) stdin: Option<String>,
    pub(crate) notices: Vec<String>,
}

impl AdmittedExec {
    pub fn cmd(&self) -> &str {
        &self.cmd
    }
    /// Where the command starts in `living`: a caller who named no directory means the workspace of
    /// the session that is there.
    pub fn workdir<'a>(&'a self, living: &'a AdmittedSpec) -> &'a str {
        if self.workdir_named {
            &self.workdir
        } else {
            living.mount_path()
        }
    }
    pub fn env(&self) -> &BTreeMap<String, String> {
        &self.env
    }
    pub fn timeout(&self) -> Duration {
        self.timeout
    }
    pub fn stdin(&self) -> Option<&str> {
        self.stdin.as_deref()
    }
    /// What policy changed, in words for the caller.
    pub fn notices(&self) -> &[String] {
        &self.notices
    }
}

/// Environment values and standard input may be secrets, so only names and lengths are shown.
impl fmt::Debug for AdmittedExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdmittedExec")
            .field("cmd", &self.cmd)
            .field("workdir", &self.workdir)
            .field("workdir_named", &self.workdir_named)
            .field("env_keys", &self.env.keys().collect::<Vec<_>>())
            .field("timeout", &self.timeout)
            .field("stdin_bytes", &self.stdin.as_ref().map(String::len))
            .field("notices", &self.notices)
            .finish()
    }
}

/// Everything one request was allowed.
#[derive(Clone, Debug)]
pub struct Admission {
    pub spec: AdmittedSpec,
    pub exec: AdmittedExec,
}

impl Admission {
    /// For callers about to run the command: creating a session needs none, exec does.
    pub fn require_command(&self) -> Result<(), Denial> {
        if self.exec.cmd.trim().is_empty() {
            return Err(Denial::EmptyCommand);
        }
        Ok(())
    }
}

/// What the file system says about the paths of a request, gathered before judgement.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Opened whenever the request names one, whatever its mode: a profile may change the mode.
    /// `None` when it could not be opened.
    pub host_path: Option<OpenedPath>,
    /// One per `extra_mounts` entry whose mode is not `none`, in order.
    pub extra_mounts: Vec<OpenedPath>,
    /// One per `skills` entry, in order, up to the first that the store does not have. The store
    /// vouches for these directories; `given` is the skill's name.
    pub skills: Vec<OpenedPath>,
    /// Made by Boxwood for a hosted server, so that only hosting has any. No caller names them.
    pub own: Vec<OwnDirectory>,
}

/// A directory of Boxwood's own, and where a hosted server's box sees it.
#[derive(Clone, Debug)]
pub struct OwnDirectory {
    pub source: OpenedPath,
    /// The box's `mount_path` makes it the workspace.
    pub mount_path: String,
    pub mode: MountMode,
}
