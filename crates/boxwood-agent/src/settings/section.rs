//! Parses and validates the `box` section.
//!
//! The only file access is resolving symbolic links in paths of this machine.

use std::fmt;
use std::path::{Path, PathBuf};

use boxwood_client::Endpoint;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::realpath::Files;
use super::{
    AgentSettings, BUILT_IN_PROFILES, ConfigError, OUTPUT_LIMIT_CHARS, START_TIMEOUT_SEC,
    TOOL_TIMEOUT_SEC, environment,
};
use crate::remote::runtime_endpoint;
use crate::template::Template;
use crate::tools::arguments;
use crate::tools::schemas::DEFAULT_TIMEOUT_SEC;

const MAX_OUTPUT_LIMIT_CHARS: u64 = 1_000_000;
const MAX_GUIDANCE_BYTES: usize = 64 * 1024;

/// The `box` section as configured. Lists and numbers may be written as text.
#[derive(Clone, PartialEq, Deserialize)]
#[serde(from = "Map<String, Value>")]
pub struct BoxSection {
    tree: Map<String, Value>,
    unused: Vec<String>,
}

impl Default for BoxSection {
    fn default() -> Self {
        Self::from(Map::new())
    }
}

impl From<Map<String, Value>> for BoxSection {
    fn from(written: Map<String, Value>) -> Self {
        let mut tree = defaults();
        merge(&mut tree, written);
        Self {
            tree,
            unused: Vec::new(),
        }
    }
}

/// Values may be secret, so only the keys are shown.
impl fmt::Debug for BoxSection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BoxSection")
            .field("keys", &self.tree.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

impl BoxSection {
    /// Overrides values with variables such as `BOX__LOCAL__HOST_ROOT`. Other variables are ignored.
    #[must_use]
    pub fn with_environment(mut self, vars: impl IntoIterator<Item = (String, String)>) -> Self {
        self.unused.extend(environment::apply(&mut self.tree, vars));
        self
    }

    /// Variables with the prefix `BOX__` that name no key.
    pub fn unused_variables(&self) -> &[String] {
        &self.unused
    }

    /// Validates the section for a runtime with the built-in profiles. Relative paths are resolved against `base`.
    pub fn settings(&self, base: &Path) -> Result<AgentSettings, ConfigError> {
        self.settings_with_profiles(base, BUILT_IN_PROFILES)
    }

    /// Validates the section for a runtime with these profiles. A runtime at `runtime.endpoint` has its own.
    pub fn settings_with_profiles<'a>(
        &self,
        base: &Path,
        profiles: impl IntoIterator<Item = &'a str>,
    ) -> Result<AgentSettings, ConfigError> {
        let available = profiles.into_iter().map(str::to_owned).collect();
        self.validated(base, Some(available))
    }

    /// Validates the section for another runtime, which validates the profile name itself.
    pub fn settings_elsewhere(&self, base: &Path) -> Result<AgentSettings, ConfigError> {
        self.validated(base, None)
    }

    fn validated(
        &self,
        base: &Path,
        profiles: Option<Vec<String>>,
    ) -> Result<AgentSettings, ConfigError> {
        known_keys("box", &self.tree, &defaults())?;
        let base = std::path::absolute(base).map_err(|error| ConfigError::NoBase {
            why: error.to_string(),
        })?;
        let endpoint = self.text("runtime.endpoint")?;
        let profiles = profiles.filter(|_| endpoint.is_none());
        let files = files_of(endpoint.as_deref());
        let host_root = self
            .text("local.host_root")?
            .map(|path| files.path(&base, Path::new(&path)));
        let default_workspace = self.default_workspace(files, host_root.as_deref())?;
        let skills_root = self.skills_root(files, host_root.as_deref())?;
        let mut allowed_mount_roots: Vec<PathBuf> = self
            .list("local.allowed_mount_roots")?
            .iter()
            .map(|root| files.path(&base, Path::new(root)))
            .collect();
        if allowed_mount_roots.is_empty() {
            allowed_mount_roots.extend(host_root.clone());
        }
        // Not used here, but values of a wrong type are refused.
        for key in ["e2b.api_key", "e2b.api_url", "e2b.template"] {
            self.text(key)?;
        }
        Ok(AgentSettings {
            enabled: self.enabled()?,
            backend: self.text("backend")?.unwrap_or_else(|| "local".to_owned()),
            endpoint,
            exec_timeout_sec: profiles.as_ref().map(|_| DEFAULT_TIMEOUT_SEC),
            profile: self.profile(profiles)?,
            image: self.text("local.image")?,
            host_root,
            allowed_mount_roots,
            default_workspace,
            skills_root,
            workspace_quota_mb: self.workspace_quota_mb()?,
            output_limit_chars: self.output_limit_chars()?,
            forced_template: self
                .text("force_session_id_template")?
                .map(|text| Template::parse(&text))
                .transpose()
                .map_err(ConfigError::Template)?,
            guidance: self.guidance()?,
            tool_timeout_sec: TOOL_TIMEOUT_SEC,
            start_timeout_sec: START_TIMEOUT_SEC,
        })
    }

    fn enabled(&self) -> Result<bool, ConfigError> {
        match self.value("enabled") {
            Value::Null => Ok(true),
            Value::Bool(enabled) => Ok(*enabled),
            Value::String(text) => Ok(!matches!(
                text.trim().to_lowercase().as_str(),
                "false" | "0" | "no" | "off" | ""
            )),
            _ => Err(mistyped("enabled", "true or false")),
        }
    }

    fn profile(&self, known: Option<Vec<String>>) -> Result<String, ConfigError> {
        let name = self.text("local.profile")?;
        let name = name.unwrap_or_else(|| "default".to_owned());
        match known {
            Some(mut available) if !available.contains(&name) => {
                available.sort();
                Err(ConfigError::UnknownProfile { name, available })
            }
            Some(_) | None => Ok(name),
        }
    }

    fn default_workspace(
        &self,
        files: Files,
        host_root: Option<&Path>,
    ) -> Result<Option<PathBuf>, ConfigError> {
        let key = "box.local.default_workspace";
        match self.text("local.default_workspace")? {
            None => Ok(host_root.map(|root| files.path(root, Path::new("default")))),
            Some(path) => below(files, host_root, key, &path).map(Some),
        }
    }

    fn skills_root(
        &self,
        files: Files,
        host_root: Option<&Path>,
    ) -> Result<Option<PathBuf>, ConfigError> {
        let path = self.text("local.skills_root")?;
        let path = path.unwrap_or_else(|| "skills".to_owned());
        if host_root.is_none() && path == "skills" {
            return Ok(None);
        }
        below(files, host_root, "box.local.skills_root", &path).map(Some)
    }

    fn workspace_quota_mb(&self) -> Result<Option<u64>, ConfigError> {
        let quota_mb = match self.value("local.workspace_quota_mb") {
            Value::Null => return Ok(None),
            Value::String(text) if text.is_empty() => return Ok(None),
            value => integer(value).ok_or(ConfigError::QuotaNotAnInteger)?,
        };
        u64::try_from(quota_mb)
            .map(Some)
            .map_err(|_| ConfigError::QuotaNegative)
    }

    fn output_limit_chars(&self) -> Result<usize, ConfigError> {
        let value = self.value("output_limit_chars");
        if value.is_null() {
            return Ok(OUTPUT_LIMIT_CHARS);
        }
        integer(value)
            .and_then(|chars| u64::try_from(chars).ok())
            .filter(|chars| *chars <= MAX_OUTPUT_LIMIT_CHARS)
            .and_then(|chars| usize::try_from(chars).ok())
            .ok_or_else(|| {
                let expected = format!("a whole number between 0 and {MAX_OUTPUT_LIMIT_CHARS}");
                mistyped("output_limit_chars", &expected)
            })
    }

    fn guidance(&self) -> Result<Option<String>, ConfigError> {
        let text = self.text("guidance")?;
        if text
            .as_ref()
            .is_some_and(|text| text.len() > MAX_GUIDANCE_BYTES)
        {
            let expected = format!("a string of at most {MAX_GUIDANCE_BYTES} bytes");
            return Err(mistyped("guidance", &expected));
        }
        Ok(text)
    }

    /// A trimmed string. `None` if it is empty.
    fn text(&self, key: &str) -> Result<Option<String>, ConfigError> {
        match self.value(key) {
            Value::Null => Ok(None),
            Value::String(text) if text.contains('\0') => {
                Err(mistyped(key, "a string without NUL characters"))
            }
            Value::String(text) => Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty())),
            _ => Err(mistyped(key, "a string")),
        }
    }

    fn list(&self, key: &str) -> Result<Vec<String>, ConfigError> {
        let expected = "a list of paths";
        match self.value(key) {
            Value::Null => Ok(Vec::new()),
            Value::String(text) => Ok(environment::listed(text)),
            Value::Array(values) => values
                .iter()
                .map(|value| value.as_str().map(str::trim).map(str::to_owned))
                .filter(|path| path.as_deref() != Some(""))
                .collect::<Option<_>>()
                .ok_or_else(|| mistyped(key, expected)),
            _ => Err(mistyped(key, expected)),
        }
    }

    fn value(&self, key: &str) -> &Value {
        let mut names = key.split('.');
        let first = names.next().and_then(|name| self.tree.get(name));
        first
            .and_then(|first| names.try_fold(first, |table, name| table.get(name)))
            .unwrap_or(&Value::Null)
    }
}

/// The default section.
fn defaults() -> Map<String, Value> {
    let section = json!({
        "enabled": true,
        "backend": "local",
        "runtime": {"endpoint": ""},
        "local": {
            "profile": "default",
            "image": "",
            "host_root": "",
            "default_workspace": "",
            "skills_root": "skills",
            "allowed_mount_roots": [],
            "workspace_quota_mb": null,
        },
        "e2b": {"api_key": "", "api_url": "", "template": ""},
        "force_session_id_template": "",
        "output_limit_chars": OUTPUT_LIMIT_CHARS,
        "guidance": "",
    });
    match section {
        Value::Object(section) => section,
        _ => Map::new(),
    }
}

/// Replaces values of `tree`. An empty table in YAML is null and replaces nothing.
fn merge(tree: &mut Map<String, Value>, written: Map<String, Value>) {
    for (name, value) in written {
        match (tree.get_mut(&name), value) {
            (Some(Value::Object(table)), Value::Object(written)) => merge(table, written),
            (Some(Value::Object(_)), Value::Null) => {}
            (_, value) => {
                tree.insert(name, value);
            }
        }
    }
}

fn known_keys(
    parent: &str,
    tree: &Map<String, Value>,
    known: &Map<String, Value>,
) -> Result<(), ConfigError> {
    for (name, value) in tree {
        let key = format!("{parent}.{name}");
        match (known.get(name), value) {
            (None, _) => {
                return Err(ConfigError::UnknownKey {
                    key,
                    known: known.keys().cloned().collect(),
                });
            }
            (Some(Value::Object(known)), Value::Object(table)) => known_keys(&key, table, known)?,
            (Some(Value::Object(_)), _) => {
                return Err(ConfigError::Mistyped {
                    key,
                    expected: "a table".to_owned(),
                });
            }
            _ => {}
        }
    }
    Ok(())
}

/// A Unix socket belongs to this machine. Any other endpoint may have another file system.
fn files_of(endpoint: Option<&str>) -> Files {
    match endpoint.map(runtime_endpoint) {
        Some(Ok(Endpoint::Tcp { .. })) => Files::Elsewhere,
        // An invalid one is refused where it is used.
        Some(Ok(Endpoint::Unix { .. }) | Err(_)) | None => Files::Here,
    }
}

fn below(
    files: Files,
    host_root: Option<&Path>,
    key: &'static str,
    path: &str,
) -> Result<PathBuf, ConfigError> {
    let path = Path::new(path);
    match host_root {
        _ if path.is_absolute() => Ok(files.path(Path::new("/"), path)),
        Some(root) => Ok(files.path(root, path)),
        None => Err(ConfigError::NoHostRoot { key }),
    }
}

/// An integer, also as a string. Booleans and fractions are refused, unlike by Python's `int`.
fn integer(value: &Value) -> Option<i64> {
    match value {
        Value::String(text) => text.trim().parse().ok(),
        other => i64::try_from(arguments::integer(other)?).ok(),
    }
}

fn mistyped(key: &str, expected: &str) -> ConfigError {
    ConfigError::Mistyped {
        key: format!("box.{key}"),
        expected: expected.to_owned(),
    }
}
