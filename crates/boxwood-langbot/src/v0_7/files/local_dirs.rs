//! The directories of LangBot on this host: `box.local`.
//!
//! Whether a box may mount them is checked with every request.

use std::path::{Path, PathBuf};

use boxwood_policy::{Origin, PolicyRules, check_place};
use rustix::fs::{Access, access};
use serde_json::{Map, Value};

use crate::ActionError;
use crate::error::{denied, not_ready};
use crate::v0_7::placement::Workspace;
use boxwood_skills::real_path;

/// Paths as configured. Symlinks are resolved when a path is used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LocalDirs {
    default_workspace: Option<PathBuf>,
    allowed_roots: Vec<PathBuf>,
}

impl LocalDirs {
    /// `part` is the section `box.local`. Relative paths are resolved in `root`.
    pub(crate) fn read(part: Option<&Map<String, Value>>, root: &Path) -> Self {
        let Some(part) = part else {
            return Self::default();
        };
        let text = |key: &str| {
            let text = part.get(key)?.as_str()?.trim();
            (!text.is_empty()).then(|| text.to_owned())
        };
        let host_root = text("host_root").map(|path| root.join(path));
        let default_workspace = match (text("default_workspace"), &host_root) {
            (Some(path), Some(host_root)) => Some(host_root.join(path)),
            (Some(path), None) => Some(root.join(path)),
            (None, Some(host_root)) => Some(host_root.join("default")),
            (None, None) => None,
        };
        let named: Vec<&str> = match part.get("allowed_mount_roots") {
            Some(Value::String(text)) => text.split(',').collect(),
            Some(Value::Array(items)) => items.iter().filter_map(Value::as_str).collect(),
            _ => Vec::new(),
        };
        let mut allowed_roots: Vec<PathBuf> = named
            .into_iter()
            .map(str::trim)
            .filter(|path| !path.is_empty())
            .map(|path| root.join(path))
            .collect();
        if allowed_roots.is_empty() {
            allowed_roots.extend(host_root);
        }
        Self {
            default_workspace,
            allowed_roots,
        }
    }

    /// The allowed roots with symlinks resolved. Blocks.
    pub(crate) fn real_roots(&self) -> Vec<PathBuf> {
        self.allowed_roots
            .iter()
            .map(|path| real_path(path))
            .collect()
    }

    /// Creates the default workspace if it is missing and policy allows it. Blocks.
    pub(crate) fn ensure_default_workspace(&self, rules: &PolicyRules) -> Result<(), ActionError> {
        let Some(configured) = &self.default_workspace else {
            return Ok(());
        };
        let path = real_path(configured);
        if path.is_dir() {
            return Ok(());
        }
        let refuse = |message: &str| {
            Err(ActionError::validation(format!(
                "box.local.default_workspace {message}"
            )))
        };
        if path.symlink_metadata().is_ok() {
            return refuse("must point to a directory on the Box runtime host");
        }
        let roots = self.real_roots();
        if roots.is_empty() {
            return refuse("cannot be created because no allowed_mount_roots are configured");
        }
        if !roots.iter().any(|root| path.starts_with(root)) {
            let roots: Vec<_> = roots.iter().map(|it| it.display().to_string()).collect();
            return refuse(&format!(
                "is outside allowed_mount_roots: {}",
                roots.join(", ")
            ));
        }
        let (field, configured) = (
            "box.local.default_workspace",
            configured.display().to_string(),
        );
        check_place(field, &configured, &path, Origin::LangBotPlatform, rules)?;
        std::fs::create_dir_all(&path).or_else(|error| {
            tracing::warn!(path = %path.display(), %error, "failed to create the default workspace");
            refuse("cannot be created on the Box runtime host")
        })
    }

    /// The parent directory of managed workspaces. Blocks.
    pub(crate) fn managed_root(&self) -> Result<PathBuf, ActionError> {
        let configured = self.default_workspace.as_ref().ok_or_else(|| {
            not_ready("Managed sandbox admission requires box.local.default_workspace")
        })?;
        let path = real_path(configured);
        if !self.real_roots().iter().any(|root| path.starts_with(root)) {
            return Err(not_ready(
                "Managed sandbox workspace is outside box.local.allowed_mount_roots",
            ));
        }
        if !path.is_dir() {
            return Err(not_ready(
                "Managed sandbox workspace path is not a directory",
            ));
        }
        if access(&path, Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK).is_err() {
            return Err(not_ready("Managed sandbox workspace path is not writable"));
        }
        Ok(path)
    }

    /// The directory of a workspace, which need not exist. Blocks.
    pub(crate) fn workspace_path(&self, workspace: Workspace) -> Result<PathBuf, ActionError> {
        let root = self.managed_root()?;
        let tenants = real_path(&root.join("tenants"));
        if !tenants.starts_with(&root) {
            return Err(denied(
                "Managed sandbox tenant directory escapes the configured workspace",
            ));
        }
        Ok(tenants.join(workspace.namespace()))
    }

    /// Like [`Self::workspace_path`], created if it is missing.
    pub(crate) fn make_workspace(&self, workspace: Workspace) -> Result<PathBuf, ActionError> {
        let path = self.workspace_path(workspace)?;
        let tenants = path.parent().unwrap_or(&path).to_owned();
        let created = std::fs::create_dir_all(&path);
        // Checked after it was created, so that a symlink added meanwhile is detected.
        if real_path(&path) != path || !path.starts_with(&tenants) {
            return Err(denied(
                "Managed sandbox Workspace path escapes its tenant directory",
            ));
        }
        created.map_err(|error| {
            tracing::warn!(path = %path.display(), %error, "failed to create a workspace");
            not_ready("Managed sandbox Workspace directory cannot be created")
        })?;
        Ok(path)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn local(part: &Value, root: &Path) -> LocalDirs {
        LocalDirs::read(part.as_object(), root)
    }

    #[test]
    fn directories_are_resolved_like_in_langbot() {
        let root = Path::new("/srv");
        let check = |part: Value, workspace: Option<&str>, roots: &[&str]| {
            let got = local(&part, root);
            assert_eq!(
                got.default_workspace.as_deref(),
                workspace.map(Path::new),
                "{part}"
            );
            let expected: Vec<_> = roots.iter().map(PathBuf::from).collect();
            assert_eq!(got.allowed_roots, expected, "{part}");
        };
        check(json!({}), None, &[]);
        check(json!({"host_root": " "}), None, &[]);
        check(
            json!({"host_root": "box"}),
            Some("/srv/box/default"),
            &["/srv/box"],
        );
        check(
            json!({"host_root": "/b", "default_workspace": "w", "allowed_mount_roots": "/a, ,c"}),
            Some("/b/w"),
            &["/a", "/srv/c"],
        );
        check(
            json!({"default_workspace": "/x", "allowed_mount_roots": ["/x", "", 7]}),
            Some("/x"),
            &["/x"],
        );
    }

    #[test]
    fn a_default_workspace_is_created_only_below_allowed_roots() {
        let dir = tempfile::tempdir().expect("directory");
        let root = dir.path().canonicalize().expect("real");
        let good = local(&json!({"host_root": "box"}), &root);
        assert!(good.managed_root().is_err());
        good.ensure_default_workspace(&PolicyRules::default())
            .expect("made");
        assert_eq!(
            good.managed_root().expect("ready"),
            root.join("box/default")
        );
        let outside = local(
            &json!({"host_root": "box", "default_workspace": "../other"}),
            &root,
        );
        let error = outside
            .ensure_default_workspace(&PolicyRules::default())
            .expect_err("outside");
        assert!(
            error.message().contains("is outside allowed_mount_roots"),
            "{error}"
        );
        assert!(!root.join("other").exists());
        std::fs::write(root.join("file"), "").expect("file");
        let file = local(
            &json!({"host_root": ".", "default_workspace": "file"}),
            &root,
        );
        assert!(
            file.ensure_default_workspace(&PolicyRules::default())
                .is_err()
        );
    }

    #[test]
    fn a_workspace_behind_a_symlink_is_refused() {
        let dir = tempfile::tempdir().expect("directory");
        let root = dir.path().canonicalize().expect("real");
        let local = local(&json!({"host_root": "box"}), &root);
        local
            .ensure_default_workspace(&PolicyRules::default())
            .expect("made");
        let workspace = Workspace::new("platform", "w");
        let path = local.make_workspace(workspace).expect("made");
        assert!(path.is_dir() && path.starts_with(root.join("box/default/tenants")));
        std::fs::remove_dir(&path).expect("removed");
        std::os::unix::fs::symlink(&root, &path).expect("link");
        let error = local.make_workspace(workspace).expect_err("escapes");
        assert_eq!(error.class(), "BoxAdmissionError");
        let tenants = root.join("box/default/tenants");
        std::fs::remove_dir_all(&tenants).expect("removed");
        std::os::unix::fs::symlink("/tmp", &tenants).expect("link");
        let error = local.make_workspace(workspace).expect_err("escapes");
        assert_eq!(error.class(), "BoxAdmissionError");
    }
}
