//! What the operator decided, beside the profiles.
//!
//! Comes in: the policy branch of the configuration file. Goes out: [`PolicyRules`], ready for
//! judgement. Never here: reading files. The server reads, resolves symlinks in the operator's own
//! paths, and hands both in.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::profile::Maxima;
use crate::profile_set::{ProfileConfig, ProfileError, Profiles};

/// The policy branch of the configuration tree.
#[derive(Clone, Debug, Default, PartialEq, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PolicyConfig {
    /// The profile for callers that name none.
    pub default_profile: Option<String>,
    pub profiles: BTreeMap<String, ProfileConfig>,
    pub mounts: MountsConfig,
    /// Image name to a directory with an unpacked root file system.
    pub images: BTreeMap<String, PathBuf>,
    /// Hard maxima for every caller, whatever the profile.
    pub limits: Maxima,
    pub network: NetworkConfig,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MountsConfig {
    /// Directories below which clients may mount. Empty: clients mount nothing.
    pub allowed_roots: Vec<PathBuf>,
    /// Directories that nobody may mount, beside the built-in ones.
    pub extra_blocked: Vec<PathBuf>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NetworkConfig {
    /// Whether `network: on` may share the host's own network where no private one can be had.
    pub allow_host: bool,
    /// Where boxes get their addresses from, such as `10.213.0.0/16`; chosen when left out.
    pub pool: Option<String>,
    /// Name servers for boxes, instead of the host's.
    pub dns: Vec<std::net::Ipv4Addr>,
    /// Networks that no box may reach, such as `192.168.0.0/16`.
    pub denied: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RulesError {
    #[error(transparent)]
    Profile(#[from] ProfileError),
    #[error("{key}: `{}` must be an absolute path", path.display())]
    Relative { key: String, path: PathBuf },
    #[error("limits.max_{message}")]
    Limit { message: String },
    #[error("images: an image's name must not be empty")]
    EmptyImageName,
}

/// Everything [`crate::admit`] judges by. The default is the daemon without any configuration:
/// built-in profiles, no mounts, no hard maxima.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PolicyRules {
    pub profiles: Profiles,
    /// Where clients may mount. Symlinks in these are the operator's own, so the server adds the
    /// resolved form of each.
    pub allowed_roots: Vec<PathBuf>,
    /// A cap on what the platform may mount; `None` leaves that to the platform.
    pub platform_roots: Option<Vec<PathBuf>>,
    /// Beside the built-in list: the operator's own, and Boxwood's state and run directories.
    pub blocked: Vec<PathBuf>,
    /// The skill store, which lies in Boxwood's own state directory: the platform may mount what is
    /// below it, although nothing else of that directory.
    pub skills_dir: Option<PathBuf>,
    /// What the kernel calls [`PolicyRules::skills_dir`].
    pub skills_dir_real: Option<PathBuf>,
    /// Where hosting keeps what its servers' boxes see, as the kernel calls it. `None`: nowhere.
    pub hosting_dir: Option<PathBuf>,
    pub images: BTreeMap<String, PathBuf>,
    pub maxima: Maxima,
    pub allow_host_network: bool,
}

impl PolicyRules {
    /// `own_directories` are the ones in which Boxwood keeps its state and its sockets.
    pub fn new(
        config: &PolicyConfig,
        own_directories: impl IntoIterator<Item = PathBuf>,
    ) -> Result<Self, RulesError> {
        let rules = Self {
            profiles: Profiles::new(&config.profiles, config.default_profile.as_deref())?,
            allowed_roots: config.mounts.allowed_roots.clone(),
            platform_roots: None,
            blocked: config
                .mounts
                .extra_blocked
                .iter()
                .cloned()
                .chain(own_directories)
                .collect(),
            skills_dir: None,
            skills_dir_real: None,
            hosting_dir: None,
            images: config.images.clone(),
            maxima: config.limits,
            allow_host_network: config.network.allow_host,
        };
        all_absolute("mounts.allowed_roots", &rules.allowed_roots)?;
        all_absolute("mounts.extra_blocked", &rules.blocked)?;
        for (name, path) in &rules.images {
            if name.trim().is_empty() {
                return Err(RulesError::EmptyImageName);
            }
            absolute(&format!("images.{name}"), path)?;
        }
        rules
            .maxima
            .check()
            .map_err(|message| RulesError::Limit { message })?;
        Ok(rules)
    }

    /// Caps what the platform may mount (`[langbot] allowed_roots`).
    pub fn with_platform_roots(mut self, roots: Option<Vec<PathBuf>>) -> Result<Self, RulesError> {
        if let Some(roots) = &roots {
            all_absolute("langbot.allowed_roots", roots)?;
        }
        self.platform_roots = roots;
        Ok(self)
    }

    /// Says where the skill store is, as configured and with every symlink resolved.
    pub fn with_skills_dir(mut self, dir: PathBuf, real: PathBuf) -> Result<Self, RulesError> {
        absolute("skills.dir", &dir)?;
        absolute("skills.dir", &real)?;
        self.skills_dir = Some(dir);
        self.skills_dir_real = Some(real);
        Ok(self)
    }
}

fn all_absolute(key: &str, paths: &[PathBuf]) -> Result<(), RulesError> {
    paths.iter().try_for_each(|path| absolute(key, path))
}

fn absolute(key: &str, path: &Path) -> Result<(), RulesError> {
    if path.is_absolute() {
        return Ok(());
    }
    Err(RulesError::Relative {
        key: key.to_owned(),
        path: path.to_owned(),
    })
}
