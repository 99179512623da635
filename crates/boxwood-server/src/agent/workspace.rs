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
    let path_text = path.to_string_lossy();
    check_place(FIELD, &path_text, &missing, Origin::Client, rules).map_err(AgentError::Denied)?;
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
        let workspace = home.join("box/default");
        assert_eq!(
            refusal(&workspace, &[]),
            "box.local.default_workspace cannot be created because no allowed_mount_roots are configured"
        );
        let other = home.join("other");
        assert_eq!(
            refusal(&workspace, &[&other]),
            format!(
                "box.local.default_workspace is outside allowed_mount_roots: {}",
                other.display()
            )
        );
        assert!(!workspace.exists());
        attempt(&workspace, &[&other, &home.join("box")]).expect("made");
        assert!(workspace.is_dir());
        attempt(&workspace, &[]).expect("there already");
    }

    #[test]
    fn a_file_at_the_path_of_the_workspace_is_an_error() {
        let home = tempfile::tempdir().expect("a directory");
        let file = home.path().join("file");
        std::fs::write(&file, "").expect("written");
        let expected = "box.local.default_workspace must point to a directory on the host";
        assert_eq!(refusal(&file, &[home.path()]), expected);
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
        let message = denied.expect_err("refused").to_string();
        assert!(message.contains("blocked for security"), "{message}");
        assert!(!home.join("state").exists());
    }
}
