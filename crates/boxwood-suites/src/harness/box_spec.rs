//! The box of a case, admitted by the policy as in the daemon.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use boxwood_api::{Mechanism, MountMode, MountSpec, Network, SessionId, SpecRequest};
use boxwood_policy::{
    Admission, AdmittedSpec, BoxUser, Facts, OpenedPath, Origin, PolicyConfig, PolicyRules,
    ProfileConfig, admit,
};
use rustix::fs::{Mode, OFlags};

use crate::Host;

#[derive(Clone, Debug, Default)]
pub struct BoxSpec {
    request: SpecRequest,
    user: BoxUser,
    tmp_mb: Option<u64>,
    image: Option<PathBuf>,
}

impl BoxSpec {
    /// Network off, 256 MiB, one processor and 128 processes, a writable root.
    pub fn new() -> Self {
        Self {
            request: SpecRequest {
                network: Some(Network::Off),
                memory_mb: Some(256),
                cpus: Some(1.0),
                pids_limit: Some(128),
                read_only_rootfs: Some(false),
                ..SpecRequest::default()
            },
            ..Self::default()
        }
    }

    #[must_use]
    pub fn network(mut self, network: Network) -> Self {
        self.request.network = Some(network);
        self
    }

    #[must_use]
    pub fn read_only_root(mut self, read_only: bool) -> Self {
        self.request.read_only_rootfs = Some(read_only);
        self
    }

    /// Makes the root read-only if a writable one has no size limit on this host, so that every writable directory
    /// has one.
    #[must_use]
    pub fn bounded(self, host: &Host) -> Self {
        if host.unbounded_writable_root {
            self.read_only_root(true)
        } else {
            self
        }
    }

    #[must_use]
    pub fn memory_mb(mut self, memory_mb: u64) -> Self {
        self.request.memory_mb = Some(memory_mb);
        self
    }

    #[must_use]
    pub fn cpus(mut self, cpus: f64) -> Self {
        self.request.cpus = Some(cpus);
        self
    }

    #[must_use]
    pub fn pids(mut self, pids: u64) -> Self {
        self.request.pids_limit = Some(pids);
        self
    }

    #[must_use]
    pub fn quota_mb(mut self, quota_mb: u64) -> Self {
        self.request.workspace_quota_mb = Some(quota_mb);
        self
    }

    #[must_use]
    pub fn tmp_mb(mut self, tmp_mb: u64) -> Self {
        self.tmp_mb = Some(tmp_mb);
        self
    }

    #[must_use]
    pub fn user(mut self, user: BoxUser) -> Self {
        self.user = user;
        self
    }

    /// An unpacked root file system, as an operator would configure it.
    #[must_use]
    pub fn image(mut self, directory: &Path) -> Self {
        self.image = Some(directory.to_owned());
        self.request.image = Some(SUITE_IMAGE.to_owned());
        self
    }

    /// The directory given to [`BoxSpec::image`].
    pub(crate) fn image_directory(&self) -> Option<&Path> {
        self.image.as_deref()
    }

    /// An image by the name that the backend knows it by.
    #[must_use]
    pub(crate) fn image_named(mut self, name: &str) -> Self {
        self.image = None;
        self.request.image = Some(name.to_owned());
        self
    }

    #[must_use]
    pub fn workspace(mut self, directory: &Path, mode: MountMode) -> Self {
        self.request.host_path = Some(directory.display().to_string());
        self.request.host_path_mode = Some(mode);
        self
    }

    #[must_use]
    pub fn mount_path(mut self, mount_path: &str) -> Self {
        self.request.mount_path = Some(mount_path.to_owned());
        self
    }

    #[must_use]
    pub fn extra(mut self, host_path: &Path, mount_path: &str, mode: MountMode) -> Self {
        self.request.extra_mounts.push(MountSpec {
            host_path: host_path.display().to_string(),
            mount_path: mount_path.to_owned(),
            mode,
        });
        self
    }

    #[must_use]
    pub fn require(mut self, mechanism: Mechanism) -> Self {
        self.request.require.push(mechanism);
        self
    }

    /// Opens the paths, then applies policy, like the daemon.
    pub fn admit(&self, session: &str) -> anyhow::Result<AdmittedSpec> {
        Ok(self.admit_command(session, "true")?.spec)
    }

    /// The same for one command.
    pub fn admit_command(&self, session: &str, command: &str) -> anyhow::Result<Admission> {
        let mut request = self.request.clone();
        request.session_id = Some(SessionId::new(session)?);
        request.profile = Some(SUITE_PROFILE.to_owned());
        command.clone_into(&mut request.cmd);
        let rules = self.rules().context("the suite's own policy rules")?;
        let facts = facts(&request)?;
        admit(&request, Origin::Operator, &facts, &rules)
            .context("policy refused the suite's own request")
    }

    fn rules(&self) -> anyhow::Result<PolicyRules> {
        let profile = ProfileConfig {
            user: Some(self.user),
            tmp_mb: self.tmp_mb,
            locked: Some(Vec::new()),
            max_memory_mb: Some(16_384),
            max_cpus: Some(64.0),
            max_pids_limit: Some(8_192),
            max_workspace_quota_mb: Some(8_192),
            ..ProfileConfig::default()
        };
        let images = self.image.iter();
        let config = PolicyConfig {
            profiles: BTreeMap::from([(SUITE_PROFILE.to_owned(), profile)]),
            images: images
                .map(|path| (SUITE_IMAGE.to_owned(), path.clone()))
                .collect(),
            ..PolicyConfig::default()
        };
        Ok(PolicyRules::new(&config, [])?)
    }
}

const SUITE_PROFILE: &str = "suite";
const SUITE_IMAGE: &str = "suite-image";

fn facts(request: &SpecRequest) -> anyhow::Result<Facts> {
    let mounted = request.host_path_mode != Some(MountMode::None);
    let host_path = request.host_path.as_deref().filter(|_| mounted);
    Ok(Facts {
        host_path: host_path.map(open).transpose()?,
        extra_mounts: request
            .extra_mounts
            .iter()
            .filter(|mount| mount.mode != MountMode::None)
            .map(|mount| open(&mount.host_path))
            .collect::<anyhow::Result<_>>()?,
        ..Facts::default()
    })
}

fn open(given: &str) -> anyhow::Result<OpenedPath> {
    let handle = rustix::fs::open(given, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .with_context(|| format!("opening `{given}`"))?;
    let is_dir = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&handle)?.st_mode).is_dir();
    let real_path = std::fs::canonicalize(given)?;
    Ok(OpenedPath {
        handle: Arc::new(handle),
        given: given.to_owned(),
        real_path,
        is_dir,
    })
}
