//! Profiles, including the four built-in ones. `set` adds the configured ones.

pub(crate) mod set;

use std::collections::BTreeSet;

use boxwood_api::{
    DEFAULT_IMAGES, LockableField, Mechanism, MountMode, Network, ProfileInfo, SpecRequest,
};

use crate::{BoxUser, HOST_IMAGE};

/// Default size of the private `/tmp`.
pub const DEFAULT_TMP_MB: u64 = 64;

/// Defaults, locked fields and limits for boxes.
#[derive(Clone, Debug, PartialEq)]
pub struct Profile {
    pub name: String,
    pub image: String,
    pub network: Network,
    pub host_path_mode: MountMode,
    pub timeout_sec: u64,
    pub cpus: f64,
    pub memory_mb: u64,
    pub pids_limit: u64,
    pub read_only_rootfs: bool,
    pub workspace_quota_mb: u64,
    /// Size of the private `/tmp`.
    pub tmp_mb: u64,
    pub user: BoxUser,
    /// The backend; `None` leaves the choice to the daemon.
    pub backend: Option<String>,
    pub max: Maxima,
    pub locked: BTreeSet<LockableField>,
    pub require: BTreeSet<Mechanism>,
    /// Maximum number of prewarmed boxes.
    pub warm: usize,
    /// Idle time before a box is frozen; zero disables it, `None` uses the daemon's setting.
    pub freeze_after_sec: Option<u64>,
}

/// Maximum values for requests. `None` means unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Maxima {
    /// A longer timeout is reduced to this, with a notice.
    #[serde(rename = "max_timeout_sec")]
    pub timeout_sec: Option<u64>,
    #[serde(rename = "max_cpus")]
    pub cpus: Option<f64>,
    #[serde(rename = "max_memory_mb")]
    pub memory_mb: Option<u64>,
    #[serde(rename = "max_pids_limit")]
    pub pids_limit: Option<u64>,
    #[serde(rename = "max_workspace_quota_mb")]
    pub workspace_quota_mb: Option<u64>,
}

impl Maxima {
    /// Each maximum must itself be a valid value. The message continues after `max_`.
    pub(crate) fn check(&self) -> Result<(), String> {
        let as_request = SpecRequest {
            timeout_sec: self.timeout_sec,
            cpus: self.cpus,
            memory_mb: self.memory_mb,
            pids_limit: self.pids_limit,
            workspace_quota_mb: self.workspace_quota_mb,
            ..SpecRequest::default()
        };
        as_request.validate().map_err(|fault| fault.to_string())?;
        if self.workspace_quota_mb == Some(0) {
            return Err("workspace_quota_mb must be at least 1".to_owned());
        }
        Ok(())
    }
}

impl Profile {
    /// `default`: no network, one CPU, 512 MiB of memory.
    pub fn standard() -> Self {
        Self {
            name: "default".to_owned(),
            image: HOST_IMAGE.to_owned(),
            network: Network::Off,
            host_path_mode: MountMode::Rw,
            timeout_sec: 30,
            cpus: 1.0,
            memory_mb: 512,
            pids_limit: 128,
            read_only_rootfs: true,
            workspace_quota_mb: 0,
            tmp_mb: DEFAULT_TMP_MB,
            user: BoxUser::Box,
            backend: None,
            max: Maxima {
                timeout_sec: Some(120),
                ..Maxima::default()
            },
            locked: BTreeSet::new(),
            require: BTreeSet::new(),
            warm: 0,
            freeze_after_sec: None,
        }
    }

    /// The built-in profiles.
    pub fn built_in() -> [Self; 4] {
        let standard = Self::standard();
        let max_timeout = |timeout_sec| Maxima {
            timeout_sec: Some(timeout_sec),
            ..Maxima::default()
        };
        let offline_readonly = Self {
            name: "offline_readonly".to_owned(),
            host_path_mode: MountMode::Ro,
            cpus: 0.5,
            memory_mb: 256,
            pids_limit: 64,
            max: max_timeout(60),
            locked: BTreeSet::from([
                LockableField::Network,
                LockableField::HostPathMode,
                LockableField::ReadOnlyRootfs,
            ]),
            ..standard.clone()
        };
        let network_basic = Self {
            name: "network_basic".to_owned(),
            network: Network::On,
            ..standard.clone()
        };
        let network_extended = Self {
            name: "network_extended".to_owned(),
            network: Network::On,
            cpus: 2.0,
            memory_mb: 1024,
            pids_limit: 256,
            read_only_rootfs: false,
            max: max_timeout(300),
            ..standard.clone()
        };
        [standard, offline_readonly, network_basic, network_extended]
    }

    /// Used for a platform that applies its own profile: the defaults of the wire format, without
    /// maxima. Settings that its requests cannot express (box user, size of `/tmp`, required
    /// mechanisms, backend) come from the operator's default profile.
    pub(crate) fn for_platform(operator_default: &Self) -> Self {
        Self {
            name: "platform".to_owned(),
            image: DEFAULT_IMAGES[0].to_owned(),
            max: Maxima::default(),
            tmp_mb: operator_default.tmp_mb,
            user: operator_default.user,
            backend: operator_default.backend.clone(),
            require: operator_default.require.clone(),
            ..Self::standard()
        }
    }

    pub fn is_locked(&self, field: LockableField) -> bool {
        self.locked.contains(&field)
    }
}

impl From<&Profile> for ProfileInfo {
    fn from(profile: &Profile) -> Self {
        Self {
            name: profile.name.clone(),
            image: profile.image.clone(),
            network: profile.network,
            host_path_mode: profile.host_path_mode,
            timeout_sec: profile.timeout_sec,
            // Profiles of a validated set always have one.
            max_timeout_sec: profile.max.timeout_sec.unwrap_or(u64::MAX),
            cpus: profile.cpus,
            memory_mb: profile.memory_mb,
            pids_limit: profile.pids_limit,
            read_only_rootfs: profile.read_only_rootfs,
            workspace_quota_mb: profile.workspace_quota_mb,
            tmp_mb: profile.tmp_mb,
            user: match profile.user {
                BoxUser::Box => "box".to_owned(),
                BoxUser::Root => "root".to_owned(),
            },
            max_cpus: profile.max.cpus,
            max_memory_mb: profile.max.memory_mb,
            max_pids_limit: profile.max.pids_limit,
            max_workspace_quota_mb: profile.max.workspace_quota_mb,
            backend: profile.backend.clone(),
            locked: profile.locked.iter().copied().collect(),
            require: profile.require.iter().copied().collect(),
            warm: profile.warm as u64,
            freeze_after_sec: profile.freeze_after_sec,
        }
    }
}
