//! The mounts that the engine creates in a relayed box, and the requests it cannot support.

use std::os::unix::fs::MetadataExt;

use boxwood_api::{MountMode, Network};
use boxwood_backend::{StartError, start_step};
use boxwood_init::{Identity, MountPlan, MountSource, Plan, RootPlan};
use boxwood_local::{TmpfsSizes, environment, quota_limits};
use boxwood_policy::{AdmittedMount, AdmittedSpec, BoxUser};

use super::access::Location;
use crate::args::{Area, Bind, EngineMounts};

/// Default uid of a box's commands.
const BOX_UID: u32 = 1000;

fn unsupported<T>(what: String) -> Result<T, StartError> {
    Err(StartError::Unsupported { what })
}

/// The identity of commands. Mounts cannot map owners here, so commands get the uid of the workspace's owner.
pub(super) fn identity(spec: &AdmittedSpec) -> Result<Identity, StartError> {
    if spec.user() == BoxUser::Root {
        return unsupported(
            "`user = \"root\"` needs a separate user namespace, and it cannot be checked \
             whether this engine creates one"
                .to_owned(),
        );
    }
    let owner = match spec.workspace() {
        Some(mount) if mount.mode() == MountMode::Rw => Some(owner(mount)?),
        _ => None,
    };
    let (command_uid, command_gid) = owner.flatten().unwrap_or((BOX_UID, BOX_UID));
    Ok(Identity {
        init_uid: 0,
        command_uid,
        command_gid,
        single_uid: false,
    })
}

/// The owner of a writable workspace. `None` if it belongs to root and is writable for all.
fn owner(mount: &AdmittedMount) -> Result<Option<(u32, u32)>, StartError> {
    const RWX_OTHERS: u32 = 0o007;
    let failed = start_step(format!("stat `{}`", mount.source().given));
    let found = rustix::fs::fstat(mount.source().fd()).map_err(|errno| failed(errno.into()))?;
    match (found.st_uid, found.st_gid) {
        (0, _) if found.st_mode & RWX_OTHERS == RWX_OTHERS => Ok(None),
        (0, _) => unsupported(format!(
            "`{}` belongs to root, so commands could not write to it: this backend cannot map owners; \
             change its owner, or mount it read-only",
            mount.source().given
        )),
        owner => Ok(Some(owner)),
    }
}

pub(super) fn engine_mounts(
    spec: &AdmittedSpec,
    identity: &Identity,
    location: Location,
    supports_file_limit: bool,
) -> Result<EngineMounts, StartError> {
    if spec.network() == Network::On {
        return unsupported(
            "`network: on` is not supported with this engine: its networks reach the host and \
             other boxes, and cannot be filtered; use `network: off`, or another backend"
                .to_owned(),
        );
    }
    let mut binds = Vec::new();
    for mount in spec.workspace().into_iter().chain(spec.extra_mounts()) {
        binds.push(bind(mount, location)?);
    }
    let sizes = TmpfsSizes::of(spec);
    let owner = (identity.command_uid, identity.command_gid);
    let area = |path: &str, size_mb, mode, owner| Area {
        path: path.to_owned(),
        size_mb,
        files: supports_file_limit.then_some((size_mb * 1024).max(4096)),
        mode,
        owner,
    };
    let mut areas = vec![
        area("/tmp", sizes.tmp, 0o1777, (0, 0)),
        area("/var/tmp", sizes.tmp, 0o1777, (0, 0)),
        area(identity.home(), sizes.home, 0o755, owner),
        // Hides information about the machine.
        area("/sys", 1, 0o555, (0, 0)),
    ];
    if spec.workspace().is_none() {
        let path = spec.mount_path();
        if path.contains(':') {
            return unsupported(format!(
                "`{path}` contains a colon, which this engine does not support"
            ));
        }
        areas.push(area(path, sizes.workspace, 0o755, owner));
    }
    Ok(EngineMounts {
        areas,
        shared_memory_mb: sizes.tmp,
        binds,
    })
}

fn bind(mount: &AdmittedMount, location: Location) -> Result<Bind, StartError> {
    let source = mount.source();
    if location == Location::Remote {
        return unsupported(format!(
            "`{}` is a path on this machine, and the engine runs on another: remove the mount, or use an \
             engine on this machine",
            source.given
        ));
    }
    if source.real_path.to_str().is_none() {
        return unsupported(format!("`{}` has a name that is not UTF-8", source.given));
    }
    check_unchanged(mount)?;
    Ok(Bind {
        source: source.real_path.clone(),
        target: mount.mount_path().to_owned(),
        read_only: mount.mode() != MountMode::Rw,
    })
}

/// The engine opens the path again. It must be the checked file or directory, before and after the start.
pub(super) fn check_unchanged(mount: &AdmittedMount) -> Result<(), StartError> {
    let source = mount.source();
    let checked = rustix::fs::fstat(source.fd()).ok();
    let found = std::fs::symlink_metadata(&source.real_path).ok();
    match (checked, found) {
        (Some(checked), Some(found))
            if (checked.st_dev, checked.st_ino) == (found.dev(), found.ino()) =>
        {
            Ok(())
        }
        _ => unsupported(format!(
            "`{}` was replaced after it was checked, and this engine can only mount it by path",
            source.given
        )),
    }
}

/// A mount that the engine has already created. Init only reads target and mode.
fn in_place(mount: &AdmittedMount) -> MountPlan {
    MountPlan {
        target: mount.mount_path().to_owned(),
        source: MountSource::Detached { fd: 0 },
        read_only: mount.mode() != MountMode::Rw,
        is_dir: mount.source().is_dir,
    }
}

/// Init's plan. All mounts have already been created by the engine.
pub(super) fn plan(spec: &AdmittedSpec, identity: Identity) -> Plan {
    let sizes = TmpfsSizes::of(spec);
    Plan {
        root: RootPlan::Engine,
        read_only_root: spec.read_only_root(),
        hostname: "box".to_owned(),
        identity,
        workspace_path: spec.mount_path().to_owned(),
        workspace: None,
        mounts: spec.extra_mounts().iter().map(in_place).collect(),
        tmp_mb: sizes.tmp,
        home_mb: sizes.home,
        private_workspace_mb: sizes.workspace,
        network: None,
        cgroup_namespace: false,
        // On its own kernel the uid is not shared with others; on a remote machine the engine sets the limit.
        process_rlimit: None,
        watched: quota_limits(spec, &RootPlan::Engine),
        // Init checks the kernel that it runs on.
        landlock: true,
        environment: environment(identity.home(), false),
        // The box ends with the engine's connection, and with the daemon.
        recovery: None,
    }
}
