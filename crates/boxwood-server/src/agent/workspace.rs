//! Creates the agent's default workspace at startup.
//!
//! The error texts are LangBot's, so that its documentation applies.

use boxwood_agent::AgentSettings;
use boxwood_langbot::workspace::{create_directory, missing_directory};
use boxwood_policy::{Origin, PolicyRules, check_place};

use super::AgentError;

const FIELD: &str = "box.local.default_workspace";

pub(super) fn prepare(settings: &AgentSettings, rules: &PolicyRules) -> Result<(), AgentError> {
    let Some(path) = &settings.default_workspace else {
        return Ok(());
    };
    if path.is_dir() {
        return Ok(());
    }
    let Some(missing) = missing_directory(path) else {
        return Err(AgentError::NotADirectory);
    };
    if rules.allowed_roots.is_empty() {
        return Err(AgentError::NoRoots);
    }
    let given = path.to_string_lossy();
    check_place(FIELD, &given, &missing, Origin::Client, rules).map_err(AgentError::Denied)?;
    create_directory(&missing).map_err(|source| AgentError::Make {
        path: path.clone(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn refusal(path: &Path, roots: &[&Path]) -> String {
        attempt(path, roots).expect_err("refused").to_string()
    }

    fn attempt(path: &Path, roots: &[&Path]) -> Result<(), AgentError> {
        let settings = AgentSettings {
            default_workspace: Some(path.to_owned()),
            allowed_mount_roots: roots.iter().map(|&root| root.to_owned()).collect(),
            ..AgentSettings::default()
        };
        prepare(
            &settings,
            &super::super::rules(&settings, &PolicyRules::default()),
        )
    }

    #[test]
    fn a_workspace_is_created_only_below_an_allowed_root() {
        let home = tempfile::tempdir().expect("a directory");
        let home = home.path().canonicalize().expect("real");
        let wanted = home.join("box/default");
        assert_eq!(
            refusal(&wanted, &[]),
            "box.local.default_workspace cannot be created because no allowed_mount_roots are configured"
        );
        let other = home.join("other");
        assert_eq!(
            refusal(&wanted, &[&other]),
            format!(
                "box.local.default_workspace is outside allowed_mount_roots: {}",
                other.display()
            )
        );
        assert!(!wanted.exists());
        attempt(&wanted, &[&other, &home.join("box")]).expect("made");
        assert!(wanted.is_dir());
        attempt(&wanted, &[]).expect("there already");
    }

    #[test]
    fn a_file_at_the_path_of_the_workspace_is_an_error() {
        let home = tempfile::tempdir().expect("a directory");
        let file = home.path().join("file");
        std::fs::write(&file, "").expect("written");
        let words = "box.local.default_workspace must point to a directory on the host";
        assert_eq!(refusal(&file, &[home.path()]), words);
    }

    #[test]
    fn a_workspace_is_not_created_in_a_blocked_directory() {
        let home = tempfile::tempdir().expect("a directory");
        let home = home.path().canonicalize().expect("real");
        let settings = AgentSettings {
            default_workspace: Some(home.join("state/box")),
            allowed_mount_roots: vec![home.clone()],
            ..AgentSettings::default()
        };
        let own = PolicyRules {
            blocked: vec![home.join("state")],
            ..PolicyRules::default()
        };
        let denied = prepare(&settings, &super::super::rules(&settings, &own));
        let words = denied.expect_err("refused").to_string();
        assert!(words.contains("blocked for security"), "{words}");
        assert!(!home.join("state").exists());
    }
}
