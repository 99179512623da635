//! LangBot's `box:` section, as `box_init` and `LANGBOT_BOX_CONFIG` bring it.
//!
//! Comes in: the section, whole or in part, with keys we know and keys we do not. Goes out: the few
//! settings that concern us. Never here: acting on them. Nothing in it is a reason to fail: it is
//! LangBot's configuration, and much of it is meant for others.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

/// The variable with which LangBot starts a runtime of its own.
const VARIABLE: &str = "LANGBOT_BOX_CONFIG";

#[derive(Clone, Debug, Default)]
pub(crate) struct BoxSection(Map<String, Value>);

impl BoxSection {
    pub(crate) fn from_environment() -> Self {
        let Some(text) = std::env::var_os(VARIABLE) else {
            return Self::default();
        };
        match serde_json::from_str(&text.to_string_lossy()) {
            Ok(section) => Self(section),
            // Its text may hold an API key, so it is not shown.
            Err(error) => {
                tracing::warn!(%error, "{VARIABLE} is not a JSON object and is ignored");
                Self::default()
            }
        }
    }

    /// Top-level keys replace those of before; the rest stays.
    pub(crate) fn merge(&mut self, update: Map<String, Value>) {
        self.0.extend(update);
    }

    /// The backend that LangBot was configured for; empty when it leaves the choice to us.
    pub(crate) fn backend(&self) -> &str {
        self.0
            .get("backend")
            .and_then(Value::as_str)
            .map_or("", str::trim)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    pub(crate) fn section(&self, name: &str) -> Option<&Map<String, Value>> {
        self.0.get(name)?.as_object()
    }

    /// Where LangBot keeps its skills. `None` when it says nothing of the kind. `root` is where
    /// relative paths start.
    pub(crate) fn skills_root(&self, root: &Path) -> Option<PathBuf> {
        let local = self.section("local")?;
        let given = |key: &str| {
            let text = local.get(key)?.as_str()?.trim();
            (!text.is_empty()).then(|| expand_home(text))
        };
        let (host_root, skills_root) = (given("host_root"), given("skills_root"));
        if host_root.is_none() && skills_root.is_none() {
            return None;
        }
        let host_root = host_root.unwrap_or_else(|| PathBuf::from("data/box"));
        let skills_root = skills_root.unwrap_or_else(|| PathBuf::from("skills"));
        // Joining an absolute path replaces what was before it, which is what LangBot means too.
        let joined = root.join(host_root).join(skills_root);
        Some(joined.components().collect())
    }
}

fn expand_home(text: &str) -> PathBuf {
    let home = || std::env::var_os("HOME").filter(|home| !home.is_empty());
    match (text.strip_prefix('~'), home()) {
        (Some(""), Some(home)) => PathBuf::from(home),
        (Some(rest), Some(home)) if rest.starts_with('/') => {
            PathBuf::from(home).join(rest.trim_start_matches('/'))
        }
        _ => PathBuf::from(text),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn section(value: Value) -> BoxSection {
        let mut section = BoxSection::default();
        let Value::Object(map) = value else {
            panic!("an object");
        };
        section.merge(map);
        section
    }

    #[test]
    fn the_place_of_skills_is_found_as_langbot_means_it() {
        let root = Path::new("/srv/langbot");
        let check = |local: Value, expected: Option<&str>| {
            let found = section(json!({ "local": local })).skills_root(root);
            assert_eq!(found.as_deref(), expected.map(Path::new), "{local}");
        };
        check(
            json!({"host_root": "./data/box", "skills_root": "skills"}),
            Some("/srv/langbot/data/box/skills"),
        );
        check(json!({"host_root": "/boxes"}), Some("/boxes/skills"));
        check(json!({"skills_root": "/my/skills"}), Some("/my/skills"));
        check(
            json!({"skills_root": "mine"}),
            Some("/srv/langbot/data/box/mine"),
        );
        check(json!({"profile": "default"}), None);
        check(json!({"host_root": 7, "skills_root": " "}), None);
    }

    #[test]
    fn later_sections_replace_whole_keys() {
        let mut merged = section(json!({"backend": "docker", "local": {"host_root": "/a"}}));
        merged.merge(section(json!({"backend": " local ", "e2b": {}})).0);
        assert_eq!(merged.backend(), "local");
        assert_eq!(
            merged.skills_root(Path::new("/")).as_deref(),
            Some(Path::new("/a/skills"))
        );
        merged.merge(section(json!({"local": null, "backend": 3})).0);
        assert_eq!(merged.backend(), "");
        assert_eq!(merged.skills_root(Path::new("/")), None);
    }
}
