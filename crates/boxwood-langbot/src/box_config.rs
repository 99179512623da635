//! LangBot's `box:` configuration section, from `box_init` and `LANGBOT_BOX_CONFIG`.
//!
//! Invalid or unknown keys are not errors: the section belongs to LangBot, and most of its keys are not
//! for the runtime.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use crate::Environment;

/// Without `Debug`, because values may be secrets.
#[derive(Clone, Default)]
pub(crate) struct BoxConfig {
    keys: Map<String, Value>,
    /// The directory that `~` stands for.
    home: Option<PathBuf>,
}

impl BoxConfig {
    pub(crate) fn new(variables: &Environment) -> Self {
        let keys = match variables.section.as_deref().map(read) {
            None => Map::new(),
            Some(Ok(keys)) => keys,
            Some(Err(position)) => {
                tracing::warn!("LANGBOT_BOX_CONFIG is not a JSON object ({position}); ignoring it");
                Map::new()
            }
        };
        Self {
            keys,
            home: variables.home.as_ref().map(PathBuf::from),
        }
    }

    /// Replaces top-level keys; the others stay.
    pub(crate) fn merge(&mut self, update: Map<String, Value>) {
        self.keys.extend(update);
    }

    /// The configured backend; empty if there is none.
    pub(crate) fn backend(&self) -> &str {
        self.keys
            .get("backend")
            .and_then(Value::as_str)
            .map_or("", str::trim)
    }

    pub(crate) fn get(&self, name: &str) -> Option<&Value> {
        self.keys.get(name)
    }

    pub(crate) fn section(&self, name: &str) -> Option<&Map<String, Value>> {
        self.keys.get(name)?.as_object()
    }

    /// The directory of skills, or `None` if the section does not set it. Relative paths are resolved
    /// in `root`.
    pub(crate) fn skills_root(&self, root: &Path) -> Option<PathBuf> {
        let local = self.section("local")?;
        let path_of = |key: &str| {
            let text = local.get(key)?.as_str()?.trim();
            (!text.is_empty()).then(|| self.expand_home(text))
        };
        let (host_root, skills_root) = (path_of("host_root"), path_of("skills_root"));
        if host_root.is_none() && skills_root.is_none() {
            return None;
        }
        let host_root = host_root.unwrap_or_else(|| PathBuf::from("data/box"));
        let skills_root = skills_root.unwrap_or_else(|| PathBuf::from("skills"));
        // Joining an absolute path replaces the base, as in Python's `os.path.join`.
        let joined = root.join(host_root).join(skills_root);
        Some(joined.components().collect())
    }

    fn expand_home(&self, text: &str) -> PathBuf {
        match (text.strip_prefix('~'), &self.home) {
            (Some(""), Some(home)) => home.clone(),
            (Some(rest), Some(home)) if rest.starts_with('/') => {
                home.join(rest.trim_start_matches('/'))
            }
            _ => PathBuf::from(text),
        }
    }
}

/// The error is only the position. The text may contain an API key, which the parser's message would
/// show.
fn read(text: &str) -> Result<Map<String, Value>, String> {
    serde_json::from_str(text)
        .map_err(|error| format!("line {} column {}", error.line(), error.column()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn section(value: Value) -> BoxConfig {
        let mut section = BoxConfig::default();
        let Value::Object(map) = value else {
            panic!("an object");
        };
        section.merge(map);
        section
    }

    #[test]
    fn the_skill_directory_is_resolved_like_in_langbot() {
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
    fn an_invalid_environment_is_ignored() {
        let read = |text: &str| {
            BoxConfig::new(&Environment {
                section: Some(text.to_owned()),
                home: Some("/home/bot".to_owned()),
                ..Environment::default()
            })
        };
        let config = read(r#"{"local": {"host_root": "~/box"}, "e2b": {"api_key": "s3cret"}}"#);
        let found = config.skills_root(Path::new("/srv"));
        assert_eq!(found.as_deref(), Some(Path::new("/home/bot/box/skills")));
        for broken in ["{", "[]", "7", "{\"local\""] {
            assert_eq!(read(broken).skills_root(Path::new("/srv")), None);
        }
    }

    #[test]
    fn invalid_text_is_not_shown() {
        for text in ["\"sk-secret\"", "[\"sk-secret\"]", "{\"k\": sk-secret"] {
            let position = read(text).expect_err("no section");
            assert!(position.starts_with("line 1 column "), "{position}");
            assert!(!position.contains("secret"), "{position}");
        }
    }

    #[test]
    fn later_sections_replace_whole_keys() {
        let mut merged = section(json!({"backend": "docker", "local": {"host_root": "/a"}}));
        merged.merge(section(json!({"backend": " local ", "e2b": {}})).keys);
        assert_eq!(merged.backend(), "local");
        assert_eq!(
            merged.skills_root(Path::new("/")).as_deref(),
            Some(Path::new("/a/skills"))
        );
        merged.merge(section(json!({"local": null, "backend": 3})).keys);
        assert_eq!(merged.backend(), "");
        assert_eq!(merged.skills_root(Path::new("/")), None);
    }
}
