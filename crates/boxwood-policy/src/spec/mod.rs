//! Admitted specs: types that only [`crate::admit`] constructs.

mod config_hash;
mod drift;
pub(crate) mod record;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use boxwood_api::{Mechanism, MountMode, Network, SessionId};
use serde::{Deserialize, Serialize};

use crate::SpecField;
use crate::spec::record::{bits, path_text};

/// An opened host file or directory. It is mounted through the same descriptor.
///
/// `real_path` is the path of the descriptor with symlinks resolved. Policy checks this path, and
/// the descriptor cannot be swapped afterwards.
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

/// The root file system of a box.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Image {
    /// The system directories of the host, read-only (native), or the default image of the engine.
    Default,
    /// A directory configured in `[images]`.
    Directory {
        name: String,
        #[serde(with = "path_text")]
        path: PathBuf,
    },
    /// An image name that the engine resolves.
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

/// The user that runs commands inside the box.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BoxUser {
    #[default]
    Box,
    Root,
}

/// When a mount can be added to a box.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Joining {
    /// Part of the configuration of the box: a request with other mounts means another box.
    #[serde(rename = "when_made")]
    AtStart,
    /// Can also be added to a running box.
    #[serde(rename = "living")]
    WhileRunning,
}

/// Who may use the session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Owner {
    /// All callers that know its id.
    #[default]
    Callers,
    Hosting,
}

/// A mount in a box. `S` is its source: an opened path, or in a record the path to reopen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BoxMount<S> {
    pub(crate) source: S,
    pub(crate) mount_path: String,
    pub(crate) mode: MountMode,
    pub(crate) joining: Joining,
    /// The path below the workspace, for mounts that follow the workspace.
    pub(crate) below_workspace: Option<String>,
}

pub type AdmittedMount = BoxMount<OpenedPath>;

impl<S> BoxMount<S> {
    pub(crate) fn new(source: S, mount_path: String, mode: MountMode) -> Self {
        Self {
            source,
            mount_path,
            mode,
            joining: Joining::AtStart,
            below_workspace: None,
        }
    }

    /// The same mount with another source.
    pub(crate) fn map_source<T>(self, map: impl FnOnce(S) -> T) -> BoxMount<T> {
        BoxMount {
            joining: self.joining,
            below_workspace: self.below_workspace,
            ..BoxMount::new(map(self.source), self.mount_path, self.mode)
        }
    }

    pub fn source(&self) -> &S {
        &self.source
    }

    /// Absolute and normalised: no `.`, `..`, double or trailing slashes.
    pub fn mount_path(&self) -> &str {
        &self.mount_path
    }

    /// `Ro` or `Rw`; mounts with mode `none` are dropped before.
    pub fn mode(&self) -> MountMode {
        self.mode
    }

    pub fn joining(&self) -> Joining {
        self.joining
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    #[serde(rename = "cpus_bits", with = "bits")]
    pub cpus: f64,
    pub memory_mb: u64,
    pub pids: u64,
    /// Size of the private `/tmp`.
    pub tmp_mb: u64,
    /// Size of the other private areas (home, private workspace) together; 0 means the default.
    pub workspace_quota_mb: u64,
}

/// A request that policy has allowed, with all defaults filled in.
///
/// The fields are private and [`crate::admit`] is the only constructor
/// ([`AdmittedSpec::with_mounts`] and similar methods combine admitted specs,
/// [`AdmittedSpec::restored`] restores one for a running box), so a value of this type proves that
/// policy ran. It does not derive `Deserialize`, which would be another constructor.
#[derive(Clone, Debug)]
pub struct AdmittedSpec {
    pub(crate) settings: Settings,
    /// `None`: a private workspace.
    pub(crate) workspace: Option<AdmittedMount>,
    pub(crate) extra_mounts: Vec<AdmittedMount>,
}

/// Everything of an admitted spec except its mounts, which contain descriptors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Settings {
    pub(crate) session: SessionId,
    pub(crate) profile: String,
    pub(crate) image: Image,
    /// The image as named by the caller or the profile.
    pub(crate) image_text: String,
    pub(crate) network: Network,
    pub(crate) limits: Limits,
    pub(crate) read_only_root: bool,
    /// As requested, also if the mode is `none` and nothing is mounted.
    pub(crate) host_path: Option<String>,
    pub(crate) host_path_mode: MountMode,
    pub(crate) mount_path: String,
    pub(crate) persistent: bool,
    pub(crate) user: BoxUser,
    pub(crate) require: Vec<Mechanism>,
    /// As named by the caller or the profile.
    pub(crate) backend: Option<String>,
    #[serde(default)]
    pub(crate) owner: Owner,
    #[serde(rename = "asked")]
    pub(crate) explicit_fields: BTreeSet<SpecField>,
}

macro_rules! getters {
    ($($(#[$doc:meta])* $name:ident -> $ty:ty = |$spec:ident| $body:expr;)*) => {
        impl AdmittedSpec {
            $($(#[$doc])* pub fn $name(&self) -> $ty { let $spec = self; $body })*
        }
    };
}

getters! {
    session -> &SessionId = |s| &s.settings.session;
    profile -> &str = |s| &s.settings.profile;
    image -> &Image = |s| &s.settings.image;
    image_text -> &str = |s| &s.settings.image_text;
    network -> Network = |s| s.settings.network;
    limits -> Limits = |s| s.settings.limits;
    read_only_root -> bool = |s| s.settings.read_only_root;
    workspace -> Option<&AdmittedMount> = |s| s.workspace.as_ref();
    host_path -> Option<&str> = |s| s.settings.host_path.as_deref();
    host_path_mode -> MountMode = |s| s.settings.host_path_mode;
    mount_path -> &str = |s| &s.settings.mount_path;
    extra_mounts -> &[AdmittedMount] = |s| &s.extra_mounts;
    persistent -> bool = |s| s.settings.persistent;
    user -> BoxUser = |s| s.settings.user;
    require -> &[Mechanism] = |s| &s.settings.require;
    /// The backend; `None` until the daemon has chosen one.
    backend -> Option<&str> = |s| s.settings.backend.as_deref();
    /// Created for a hosted MCP server. Clients have no access, because the box contains its
    /// secrets.
    is_hosted -> bool = |s| s.settings.owner == Owner::Hosting;
    /// The fields that the caller set explicitly; all other values came from the profile.
    explicit_fields -> &BTreeSet<SpecField> = |s| &s.settings.explicit_fields;
}

/// Combines a spec with a running box.
impl AdmittedSpec {
    /// The mounts of this spec that can be added to the running box of `existing`. Mounts below the
    /// workspace are moved below that of `existing`, unless the caller set `mount_path`.
    pub fn joining(&self, existing: &Self) -> Vec<AdmittedMount> {
        let workspace = if self.explicit_fields().contains(&SpecField::MountPath) {
            self.mount_path()
        } else {
            existing.mount_path()
        };
        self.extra_mounts
            .iter()
            .filter(|mount| mount.joining == Joining::WhileRunning)
            .map(|mount| match &mount.below_workspace {
                Some(below) => AdmittedMount {
                    mount_path: format!("{workspace}/{below}"),
                    ..mount.clone()
                },
                None => mount.clone(),
            })
            .collect()
    }

    /// The same box with the backend that was chosen for it.
    #[must_use]
    pub fn on_backend(&self, name: &str) -> Self {
        let mut chosen = self.clone();
        chosen.settings.backend = Some(name.to_owned());
        chosen
    }

    /// The same box with other mounts, all of which have been admitted.
    #[must_use]
    pub fn with_mounts(&self, mut extra_mounts: Vec<AdmittedMount>) -> Self {
        outer_first(&mut extra_mounts);
        Self {
            extra_mounts,
            ..self.clone()
        }
    }
}

/// Outer mounts first, so that they do not hide inner ones.
pub(crate) fn outer_first(mounts: &mut [AdmittedMount]) {
    mounts.sort_by(|one, other| one.mount_path.split('/').cmp(other.mount_path.split('/')));
}

/// An admitted command.
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
    /// The working directory in the session `existing`: its workspace, unless the caller
    /// named a directory.
    pub fn workdir<'a>(&'a self, existing: &'a AdmittedSpec) -> &'a str {
        if self.workdir_named {
            &self.workdir
        } else {
            existing.mount_path()
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
    /// Changes that policy made, as text for the caller.
    pub fn notices(&self) -> &[String] {
        &self.notices
    }
}

/// Without stdin and values of the environment, because they may be secrets.
impl fmt::Debug for AdmittedExec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdmittedExec")
            .field("cmd", &self.cmd)
            .field("workdir", &self.workdir)
            .field("env_keys", &self.env.keys().collect::<Vec<_>>())
            .field("timeout", &self.timeout)
            .field("notices", &self.notices)
            .finish_non_exhaustive()
    }
}

/// The result of admitting a request.
#[derive(Clone, Debug)]
pub struct Admission {
    pub spec: AdmittedSpec,
    pub exec: AdmittedExec,
}

/// Facts about the paths of a request, gathered before policy runs.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Opened whenever the request names it, whatever its mode, because the profile may change the
    /// mode. `None` if it could not be opened.
    pub host_path: Option<OpenedPath>,
    /// One per `extra_mounts` entry whose mode is not `none`, in order, up to the first that could not
    /// be opened.
    pub extra_mounts: Vec<OpenedPath>,
    /// One per `skills` entry, in order, up to the first unknown skill. `given` is the name of the
    /// skill.
    pub skills: Vec<OpenedPath>,
    /// Directories that Boxwood created for a hosted server. Only hosting sets them.
    pub own: Vec<OwnDirectory>,
}

/// A directory of a hosted server and its path in the box.
#[derive(Clone, Debug)]
pub struct OwnDirectory {
    pub source: OpenedPath,
    /// If it equals the request's `mount_path`, the directory becomes the workspace.
    pub mount_path: String,
    pub mode: MountMode,
}
