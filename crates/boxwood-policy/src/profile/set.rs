//! The profiles of a daemon: the built-in ones and those in `[profiles.NAME]`, validated at
//! startup.

use std::collections::{BTreeMap, BTreeSet};

use boxwood_api::{LockableField, Mechanism, MountMode, Network, ProfileInfo, SpecRequest};

use crate::{BoxUser, Denial, Profile, RulesError};

/// Upper limit for `warm`.
const MAX_WARM: usize = 256;

/// A `[profiles.NAME]` table: a base and the differences from it.
#[derive(Clone, Debug, Default, PartialEq, serde::Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProfileConfig {
    /// The base profile. Default: the built-in profile of the same name, else `default`.
    pub extends: Option<String>,
    pub image: Option<String>,
    pub network: Option<Network>,
    pub host_path_mode: Option<MountMode>,
    pub timeout_sec: Option<u64>,
    pub cpus: Option<f64>,
    pub memory_mb: Option<u64>,
    pub pids_limit: Option<u64>,
    pub read_only_rootfs: Option<bool>,
    pub workspace_quota_mb: Option<u64>,
    pub tmp_mb: Option<u64>,
    pub user: Option<BoxUser>,
    /// The backend: a name, `auto` or `local`.
    pub backend: Option<String>,
    pub max_timeout_sec: Option<u64>,
    pub max_cpus: Option<f64>,
    pub max_memory_mb: Option<u64>,
    pub max_pids_limit: Option<u64>,
    pub max_workspace_quota_mb: Option<u64>,
    /// Replaces the list of the base.
    pub locked: Option<Vec<LockableField>>,
    /// Replaces the list of the base.
    pub require: Option<Vec<Mechanism>>,
    /// Maximum number of prewarmed boxes. Not inherited from the base.
    pub warm: Option<usize>,
    /// How long a session is idle before it is frozen; zero: never.
    pub freeze_after_sec: Option<u64>,
}

/// A validated set with a default.
#[derive(Clone, Debug, PartialEq)]
pub struct Profiles {
    profiles: BTreeMap<String, Profile>,
    default: String,
}

impl Default for Profiles {
    fn default() -> Self {
        Self {
            profiles: built_in(),
            default: Profile::standard().name,
        }
    }
}

impl Profiles {
    /// The built-in profiles, overridden by the configured ones.
    pub fn new(
        tables: &BTreeMap<String, ProfileConfig>,
        default: Option<&str>,
    ) -> Result<Self, RulesError> {
        let mut set = Self::default();
        let built_in = built_in();
        for name in tables.keys() {
            let profile = resolve(name, tables, &built_in)?;
            set.profiles.insert(name.clone(), profile);
        }
        if let Some(default) = default {
            let profile = set.get(default);
            let profile = profile.map_err(|error| RulesError::new("default_profile", error))?;
            let name = profile.name.clone();
            set.default = name;
        }
        Ok(set)
    }

    pub fn get(&self, name: &str) -> Result<&Profile, Denial> {
        let unknown = || unknown_profile(name, self.profiles.keys());
        self.profiles.get(name).ok_or_else(unknown)
    }

    /// The profile for requests that name none.
    pub fn default_profile(&self) -> &Profile {
        // `default` is only ever set to a key of the map, and keys are never removed.
        &self.profiles[&self.default]
    }

    pub fn iter(&self) -> impl Iterator<Item = &Profile> {
        self.profiles.values()
    }

    pub fn infos(&self) -> Vec<ProfileInfo> {
        self.iter().map(ProfileInfo::from).collect()
    }
}

fn unknown_profile<'a>(name: &str, available: impl Iterator<Item = &'a String>) -> Denial {
    Denial::UnknownProfile {
        name: name.to_owned(),
        available: available.cloned().collect(),
    }
}

fn built_in() -> BTreeMap<String, Profile> {
    Profile::built_in()
        .into_iter()
        .map(|profile| (profile.name.clone(), profile))
        .collect()
}

/// Follows `extends` to a built-in profile, then applies the tables from there outwards.
fn resolve(
    name: &str,
    tables: &BTreeMap<String, ProfileConfig>,
    built_in: &BTreeMap<String, Profile>,
) -> Result<Profile, RulesError> {
    let is_plain = |c: char| c.is_alphanumeric() || "-_".contains(c);
    if name.is_empty() || !name.chars().all(is_plain) {
        let rule = "a profile's name must be one word of letters, digits, `-` and `_`";
        return Err(RulesError::new("profiles", format!("{rule}, not `{name}`")));
    }
    let extends = format!("profiles.{name}.extends");
    let mut layers: Vec<&ProfileConfig> = Vec::new();
    let mut seen = BTreeSet::new();
    let mut current = name;
    let base = loop {
        let Some(table) = tables.get(current) else {
            break built_in.get(current);
        };
        if !seen.insert(current) {
            let message = format!("`{name}` extends itself, directly or through other profiles");
            return Err(RulesError::new(&extends, message));
        }
        layers.push(table);
        match table.extends.as_deref() {
            // A table with the name of a built-in profile extends that profile.
            None if built_in.contains_key(current) => break built_in.get(current),
            Some(base) if base == current && built_in.contains_key(base) => {
                break built_in.get(base);
            }
            None => current = "default",
            Some(base) => current = base,
        }
    };
    let mut profile = base.cloned().ok_or_else(|| {
        let known: BTreeSet<_> = built_in.keys().chain(tables.keys()).collect();
        RulesError::new(&extends, unknown_profile(current, known.into_iter()))
    })?;
    name.clone_into(&mut profile.name);
    for table in layers.into_iter().rev() {
        overlay(&mut profile, table);
    }
    let invalid = |message| RulesError::new(&format!("profiles.{name}"), message);
    check(&profile).map_err(invalid)?;
    Ok(profile)
}

fn overlay(profile: &mut Profile, table: &ProfileConfig) {
    fn set<T>(target: &mut T, value: Option<T>) {
        if let Some(value) = value {
            *target = value;
        }
    }
    set(&mut profile.image, table.image.clone());
    set(&mut profile.network, table.network);
    set(&mut profile.host_path_mode, table.host_path_mode);
    set(&mut profile.timeout_sec, table.timeout_sec);
    set(&mut profile.cpus, table.cpus);
    set(&mut profile.memory_mb, table.memory_mb);
    set(&mut profile.pids_limit, table.pids_limit);
    set(&mut profile.read_only_rootfs, table.read_only_rootfs);
    set(&mut profile.workspace_quota_mb, table.workspace_quota_mb);
    set(&mut profile.tmp_mb, table.tmp_mb);
    set(&mut profile.user, table.user);
    let backend = table.backend.as_deref().map(|name| name.trim().to_owned());
    profile.backend = backend.or(profile.backend.take());
    let max = &mut profile.max;
    max.timeout_sec = table.max_timeout_sec.or(max.timeout_sec);
    max.cpus = table.max_cpus.or(max.cpus);
    max.memory_mb = table.max_memory_mb.or(max.memory_mb);
    max.pids_limit = table.max_pids_limit.or(max.pids_limit);
    max.workspace_quota_mb = table.max_workspace_quota_mb.or(max.workspace_quota_mb);
    let locked = table.locked.as_ref();
    let locked = locked.map(|locked| locked.iter().copied().collect());
    set(&mut profile.locked, locked);
    let require = table.require.as_ref();
    let require = require.map(|require| require.iter().copied().collect());
    set(&mut profile.require, require);
    // Prewarmed boxes use resources, so each profile must set this itself.
    profile.warm = table.warm.unwrap_or(0);
    profile.freeze_after_sec = table.freeze_after_sec.or(profile.freeze_after_sec);
}

fn exceeds<T: PartialOrd + Copy>(value: T, max: Option<T>) -> bool {
    max.is_some_and(|max| value > max)
}

/// The values of a profile must be valid in a request too.
fn check(profile: &Profile) -> Result<(), String> {
    let as_request = SpecRequest {
        timeout_sec: Some(profile.timeout_sec),
        cpus: Some(profile.cpus),
        memory_mb: Some(profile.memory_mb),
        pids_limit: Some(profile.pids_limit),
        workspace_quota_mb: Some(profile.workspace_quota_mb),
        image: Some(profile.image.clone()),
        backend: profile.backend.clone(),
        ..SpecRequest::default()
    };
    as_request.validate().map_err(|fault| fault.to_string())?;
    let max = &profile.max;
    max.check().map_err(|message| format!("max_{message}"))?;
    let quota = exceeds(profile.workspace_quota_mb, max.workspace_quota_mb);
    let above = [
        ("timeout_sec", exceeds(profile.timeout_sec, max.timeout_sec)),
        ("cpus", exceeds(profile.cpus, max.cpus)),
        ("memory_mb", exceeds(profile.memory_mb, max.memory_mb)),
        ("pids_limit", exceeds(profile.pids_limit, max.pids_limit)),
        ("workspace_quota_mb", quota),
    ];
    if let Some((field, _)) = above.into_iter().find(|(_, above)| *above) {
        return Err(format!("{field} must not be more than max_{field}"));
    }
    if profile.backend.as_deref() == Some("") {
        return Err(
            "backend must not be empty; leave it out for the daemon's own choice".to_owned(),
        );
    }
    if profile.warm > MAX_WARM {
        return Err(format!("warm must not be more than {MAX_WARM}"));
    }
    if !(1..=1 << 20).contains(&profile.tmp_mb) {
        return Err(format!("tmp_mb must be between 1 and {}", 1 << 20));
    }
    Ok(())
}
