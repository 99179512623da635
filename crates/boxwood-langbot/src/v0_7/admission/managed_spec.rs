//! Restricts a request to the one managed sandbox that a grant allows.
//!
//! Fields that the policy or the runtime determines are replaced; a request for other values is denied.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use boxwood_api::{DEFAULT_IMAGES, DEFAULT_MOUNT_PATH, MountMode, MountSpec, Network, SpecRequest};
use boxwood_skills::real_path;

use super::policy::{AdmissionPolicy, MANAGED_SESSION};
use crate::ActionError;
use crate::error::denied;
use crate::models::MountProof;
use crate::v0_7::files::local_dirs::LocalDirs;
use crate::v0_7::placement::Placement;

const MAX_MOUNTS: usize = 256;

/// Blocks: reads directories.
pub(crate) fn normalise(
    request: SpecRequest,
    proofs: &[MountProof],
    placement: Placement,
    policy: &AdmissionPolicy,
    local: &LocalDirs,
) -> Result<SpecRequest, ActionError> {
    if request.network.unwrap_or_default() != Network::Off {
        return Err(denied("Managed sandbox network access is disabled"));
    }
    let mount_path = request.mount_path.as_deref().unwrap_or(DEFAULT_MOUNT_PATH);
    if mount_path != DEFAULT_MOUNT_PATH {
        return Err(denied("Managed sandbox mount_path is runtime-owned"));
    }
    let workdir = request.workdir.as_deref().unwrap_or(DEFAULT_MOUNT_PATH);
    if workdir != DEFAULT_MOUNT_PATH && below_workspace(workdir).is_none() {
        return Err(denied("Managed sandbox workdir must stay under /workspace"));
    }
    let workspace = local.make_workspace(placement.workspace)?;
    if let Some(submitted) = &request.host_path
        && real_path(Path::new(submitted)) != workspace
    {
        return Err(denied("Managed sandbox host_path is runtime-owned"));
    }
    let extra_mounts = mounts(&request.extra_mounts, proofs, local)?;
    let timeout = request
        .timeout_sec
        .unwrap_or(30)
        .min(policy.max_timeout_sec);
    Ok(SpecRequest {
        session_id: Some(placement.physical(MANAGED_SESSION)?),
        network: Some(Network::Off),
        image: Some(DEFAULT_IMAGES[0].to_owned()),
        host_path: Some(workspace.to_string_lossy().into_owned()),
        host_path_mode: Some(MountMode::Rw),
        mount_path: Some(DEFAULT_MOUNT_PATH.to_owned()),
        extra_mounts,
        persistent: Some(true),
        timeout_sec: Some(timeout),
        cpus: Some(policy.cpus),
        memory_mb: Some(policy.memory_mb),
        pids_limit: Some(policy.pids_limit),
        read_only_rootfs: Some(policy.read_only_rootfs),
        workspace_quota_mb: Some(policy.workspace_quota_mb),
        ..request
    })
}

fn below_workspace(path: &str) -> Option<&str> {
    path.strip_prefix(DEFAULT_MOUNT_PATH)?.strip_prefix('/')
}

fn mounts(
    requested: &[MountSpec],
    proofs: &[MountProof],
    local: &LocalDirs,
) -> Result<Vec<MountSpec>, ActionError> {
    if requested.is_empty() {
        return Ok(Vec::new());
    }
    if requested.len() > MAX_MOUNTS {
        return Err(denied(format!(
            "Managed sandbox accepts at most {MAX_MOUNTS} read-only mounts"
        )));
    }
    let roots = local.real_roots();
    if roots.is_empty() {
        return Err(denied(
            "Managed sandbox read-only mounts require allowed_mount_roots",
        ));
    }
    let mut targets = HashSet::new();
    requested
        .iter()
        .zip(proofs)
        .map(|(requested, proof)| {
            let mount = check_mount(requested, proof, &roots)?;
            if targets.insert(mount.mount_path.clone()) {
                Ok(mount)
            } else {
                Err(denied(
                    "Managed sandbox additional mount targets must be unique",
                ))
            }
        })
        .collect()
}

fn check_mount(
    requested: &MountSpec,
    proof: &MountProof,
    roots: &[PathBuf],
) -> Result<MountSpec, ActionError> {
    if requested.mode != MountMode::Ro {
        return Err(denied(
            "Managed sandbox additional mounts must be read-only",
        ));
    }
    let source = real_path(Path::new(&requested.host_path));
    if !source.is_dir() {
        return Err(denied(
            "Managed sandbox read-only mount source is unavailable",
        ));
    }
    let within = |path: &Path| roots.iter().any(|root| path.starts_with(root));
    if !within(&source) {
        return Err(denied(
            "Managed sandbox read-only mount source is outside allowed_mount_roots",
        ));
    }
    if let Some(manifest) = &proof.manifest_path {
        if proof.content_digest.is_none() {
            return Err(denied(
                "Managed sandbox mount manifests require content_digest",
            ));
        }
        let manifest = real_path(Path::new(manifest));
        if !manifest.is_file() {
            return Err(denied(
                "Managed sandbox read-only mount manifest is unavailable",
            ));
        }
        if !within(&manifest) {
            return Err(denied(
                "Managed sandbox read-only mount manifest is outside allowed_mount_roots",
            ));
        }
    }
    if !proof.addresses(requested) && below_workspace(&requested.mount_path).is_none() {
        return Err(denied(
            "Managed sandbox additional mount targets must stay under /workspace",
        ));
    }
    Ok(MountSpec {
        host_path: source.to_string_lossy().into_owned(),
        ..requested.clone()
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::v0_7::placement::Workspace;

    struct TestDirs {
        root: PathBuf,
        local: LocalDirs,
        _dir: tempfile::TempDir,
    }

    fn dirs() -> TestDirs {
        let dir = tempfile::tempdir().expect("directory");
        let root = dir.path().canonicalize().expect("real");
        let local = LocalDirs::read(json!({"host_root": "box"}).as_object(), &root);
        let rules = boxwood_policy::PolicyRules::default();
        local.ensure_default_workspace(&rules).expect("made");
        std::fs::create_dir(root.join("box/tool")).expect("tool");
        TestDirs {
            root,
            local,
            _dir: dir,
        }
    }

    fn policy() -> AdmissionPolicy {
        AdmissionPolicy::read(Some(&json!({"required": true, "memory_mb": 64})))
    }

    fn judge(dirs: &TestDirs, request: SpecRequest) -> Result<SpecRequest, String> {
        let placement = Placement::new(Workspace::new("platform", "w"), 3);
        let proofs = vec![MountProof::default(); request.extra_mounts.len()];
        normalise(request, &proofs, placement, &policy(), &dirs.local)
            .map_err(|error| error.message().to_owned())
    }

    #[test]
    fn the_policy_determines_the_limits_of_the_box() {
        let dirs = dirs();
        let request = SpecRequest {
            cmd: "true".to_owned(),
            memory_mb: Some(4096),
            timeout_sec: Some(999),
            image: Some("other".to_owned()),
            workdir: Some("/workspace/a".to_owned()),
            ..SpecRequest::default()
        };
        let judged = judge(&dirs, request).expect("fine");
        assert_eq!(
            (judged.memory_mb, judged.timeout_sec),
            (Some(64), Some(120))
        );
        assert_eq!(
            (judged.cmd.as_str(), judged.persistent),
            ("true", Some(true))
        );
        assert_eq!(judged.workdir.as_deref(), Some("/workspace/a"));
        let workspace = judged.host_path.expect("a workspace");
        assert!(Path::new(&workspace).starts_with(dirs.root.join("box/default/tenants")));
        assert!(
            judged
                .session_id
                .expect("id")
                .as_str()
                .ends_with("-g3-global")
        );
        let with_own_workspace = SpecRequest {
            host_path: Some(workspace),
            ..SpecRequest::default()
        };
        judge(&dirs, with_own_workspace).expect("its own workspace may be named");
    }

    #[test]
    fn values_owned_by_the_runtime_are_refused() {
        let dirs = dirs();
        let refused = |request: SpecRequest, expected: &str| {
            let text = judge(&dirs, request).expect_err("refused");
            assert!(text.contains(expected), "{text}");
        };
        let request = SpecRequest::default;
        refused(
            SpecRequest {
                network: Some(Network::On),
                ..request()
            },
            "network",
        );
        refused(
            SpecRequest {
                mount_path: Some("/w".into()),
                ..request()
            },
            "mount_path",
        );
        refused(
            SpecRequest {
                workdir: Some("/workspaces".into()),
                ..request()
            },
            "workdir",
        );
        refused(
            SpecRequest {
                host_path: Some("/tmp".into()),
                ..request()
            },
            "host_path",
        );
        let mount = |host: &str, target: &str, mode| MountSpec {
            host_path: host.to_owned(),
            mount_path: target.to_owned(),
            mode,
        };
        let with = |mounts: Vec<MountSpec>| SpecRequest {
            extra_mounts: mounts,
            ..request()
        };
        let tool = dirs.root.join("box/tool").display().to_string();
        refused(
            with(vec![mount(&tool, "/workspace/t", MountMode::Rw)]),
            "read-only",
        );
        refused(
            with(vec![mount("/nonexistent", "/workspace/t", MountMode::Ro)]),
            "unavailable",
        );
        refused(
            with(vec![mount("/tmp", "/workspace/t", MountMode::Ro)]),
            "outside",
        );
        refused(
            with(vec![mount(&tool, "/opt/t", MountMode::Ro)]),
            "under /workspace",
        );
        let good = mount(&tool, "/workspace/t", MountMode::Ro);
        refused(with(vec![good.clone(), good.clone()]), "unique");
        refused(with(vec![good.clone(); 257]), "at most 256");
        judge(&dirs, with(vec![good])).expect("a tool may be mounted");
    }
}
