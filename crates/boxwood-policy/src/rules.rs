//! The operator's rules, apart from the profiles. The server reads the file and resolves symlinks
//! in configured paths.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::profile::Maxima;
use crate::profile::set::{ProfileConfig, Profiles};

/// The policy part of the configuration.
#[derive(Clone, Debug, Default, PartialEq, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PolicyConfig {
    /// The profile for requests that name none.
    pub default_profile: Option<String>,
    pub profiles: BTreeMap<String, ProfileConfig>,
    pub mounts: MountsConfig,
    /// Image name to a directory with an unpacked root file system.
    pub images: BTreeMap<String, PathBuf>,
    /// Maximum values for all callers, independent of the profile.
    pub limits: Maxima,
    pub network: NetworkConfig,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MountsConfig {
    /// Directories below which clients may mount. Empty: clients cannot mount.
    pub allowed_roots: Vec<PathBuf>,
    /// Directories that cannot be mounted, in addition to the built-in list.
    pub extra_blocked: Vec<PathBuf>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NetworkConfig {
    /// Has no effect: boxes always have a network of their own. Still accepted so that existing
    /// files load; the daemon logs a warning when it is `true`.
    pub allow_host: bool,
    /// The address pool of boxes, such as `10.213.0.0/16`. Default: chosen automatically.
    pub pool: Option<String>,
    /// DNS servers of boxes. Default: those of the host.
    pub dns: Vec<std::net::Ipv4Addr>,
    /// Networks that no box may reach, such as `192.168.0.0/16`.
    pub denied: Vec<String>,
}

/// An invalid setting. The message begins with its key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct RulesError(String);

impl RulesError {
    pub(crate) fn new(key: &str, message: impl fmt::Display) -> Self {
        Self(format!("{key}: {message}"))
    }
}

/// The input of [`crate::admit`]. The default corresponds to an empty configuration: built-in
/// profiles, no mounts, no maxima.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PolicyRules {
    pub profiles: Profiles,
    /// Roots for clients' mounts. The server adds the resolved path of each.
    pub allowed_roots: Vec<PathBuf>,
    /// Roots for the platform's mounts; `None` leaves the decision to the platform.
    pub platform_roots: Option<Vec<PathBuf>>,
    /// In addition to the built-in list: configured directories, and Boxwood's state and run
    /// directories.
    pub blocked: Vec<PathBuf>,
    /// The skill store. The platform may mount directories below it, although it is in the blocked
    /// state directory.
    pub skills_dir: Option<PathBuf>,
    /// [`PolicyRules::skills_dir`] with symlinks resolved.
    pub skills_dir_real: Option<PathBuf>,
    /// The real path of the directory with the files of hosted servers, if there is one.
    pub hosting_dir: Option<PathBuf>,
    pub images: BTreeMap<String, PathBuf>,
    pub maxima: Maxima,
}

impl PolicyRules {
    /// `own_directories` are Boxwood's state and run directories.
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
        };
        all_absolute("mounts.allowed_roots", &rules.allowed_roots)?;
        all_absolute("mounts.extra_blocked", &rules.blocked)?;
        for (name, path) in &rules.images {
            if name.trim().is_empty() {
                let message = "an image's name must not be empty";
                return Err(RulesError::new("images", message));
            }
            absolute(&format!("images.{name}"), path)?;
        }
        rules
            .maxima
            .check()
            .map_err(|message| RulesError(format!("limits.max_{message}")))?;
        Ok(rules)
    }

    /// Restricts the platform's mounts (`[langbot] allowed_roots`).
    pub fn with_platform_roots(mut self, roots: Option<Vec<PathBuf>>) -> Result<Self, RulesError> {
        if let Some(roots) = &roots {
            all_absolute("langbot.allowed_roots", roots)?;
        }
        self.platform_roots = roots;
        Ok(self)
    }

    /// Sets the skill store, as configured and with symlinks resolved.
    pub fn with_skills_dir(mut self, dir: PathBuf, real: PathBuf) -> Result<Self, RulesError> {
        absolute("skills.root", &dir)?;
        absolute("skills.root", &real)?;
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
    let message = format!("`{}` must be an absolute path", path.display());
    Err(RulesError::new(key, message))
}
