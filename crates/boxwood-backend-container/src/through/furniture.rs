//! What the engine has to put into a box because nobody else can, and what it cannot.

use std::os::unix::fs::MetadataExt;

use boxwood_api::{MountMode, Network};
use boxwood_backend::StartError;
use boxwood_init::{Identity, MountPlan, MountSource, Plan, RootPlan};
use boxwood_local::{Areas, environment, watched};
use boxwood_policy::{AdmittedMount, AdmittedSpec, BoxUser};

use super::way::Place;
use crate::args::{Area, Bind, Furniture};

/// The usual number of a box's user.
const BOX: u32 = 1000;

fn unsupported<T>(what: String) -> Result<T, StartError> {
    Err(StartError::Unsupported { what })
}

/// Who commands are. No mount can translate owners here, so they are whoever owns the workspace.
pub(super) fn identity(spec: &AdmittedSpec) -> Result<Identity, StartError> {
    if spec.user() == BoxUser::Root {
        return unsupported(
            "`user = \"root\"` needs a user namespace of the box's own, and nobody can see from here \
             whether this engine makes one"
                .to_owned(),
        );
    }
    let owner = match spec.workspace() {
        Some(mount) if mount.mode() == MountMode::Rw => Some(owner(mount)?),
        _ => None,
    };
    let (command_uid, command_gid) = owner.flatten().unwrap_or((BOX, BOX));
    Ok(Identity {
        init_uid: 0,
        command_uid,
        command_gid,
        single_uid: false,
    })
}

/// Whose a writable workspace is. Root's may stay root's where everybody can write.
fn owner(mount: &AdmittedMount) -> Result<Option<(u32, u32)>, StartError> {
    const EVERYBODY: u32 = 0o007;
    let found = rustix::fs::fstat(mount.source().fd()).map_err(|errno| StartError::Step {
        step: format!("look at `{}`", mount.source().given),
        source: errno.into(),
    })?;
    match (found.st_uid, found.st_gid) {
        (0, _) if found.st_mode & EVERYBODY == EVERYBODY => Ok(None),
        (0, _) => unsupported(format!(
            "`{}` belongs to root, and commands of this backend could not write it: no owner is \
             translated on the way into another kernel; give it to the user whose it shall be, or \
             mount it read-only",
            mount.source().given
        )),
        owner => Ok(Some(owner)),
    }
}

pub(super) fn furniture(
    spec: &AdmittedSpec,
    identity: &Identity,
    place: Place,
    counts_files: bool,
) -> Result<Furniture, StartError> {
    if spec.network() == Network::On {
        return unsupported(
            "`network: on` cannot be had through this engine: its networks lead to the host and to \
             other boxes, and nothing of ours can stand between; use `network: off`, or another backend"
                .to_owned(),
        );
    }
    let mut binds = Vec::new();
    for mount in spec.workspace().into_iter().chain(spec.extra_mounts()) {
        binds.push(bind(mount, place)?);
    }
    let sizes = Areas::of(spec);
    let owner = (identity.command_uid, identity.command_gid);
    let area = |path: &str, size_mb, mode, owner| Area {
        path: path.to_owned(),
        size_mb,
        files: counts_files.then_some((size_mb * 1024).max(4096)),
        mode,
        owner,
    };
    let mut areas = vec![
        area("/tmp", sizes.tmp, 0o1777, (0, 0)),
        area("/var/tmp", sizes.tmp, 0o1777, (0, 0)),
        area(identity.home(), sizes.home, 0o755, owner),
        // The machine under the box is nobody's business.
        area("/sys", 1, 0o555, (0, 0)),
    ];
    if spec.workspace().is_none() {
        let path = spec.mount_path();
        if path.contains(':') {
            return unsupported(format!(
                "`{path}` has a colon, which this engine takes for the end of a path"
            ));
        }
        areas.push(area(path, sizes.workspace, 0o755, owner));
    }
    Ok(Furniture {
        areas,
        shared_memory_mb: sizes.tmp,
        binds,
    })
}

fn bind(mount: &AdmittedMount, place: Place) -> Result<Bind, StartError> {
    let source = mount.source();
    if place == Place::Elsewhere {
        return unsupported(format!(
            "`{}` is a path of this machine, and the engine is on another: mount nothing, or use an \
             engine of this machine",
            source.given
        ));
    }
    if source.real_path.to_str().is_none() {
        return unsupported(format!("`{}` has a name that is not UTF-8", source.given));
    }
    still_there(mount)?;
    Ok(Bind {
        source: source.real_path.clone(),
        target: mount.mount_path().to_owned(),
        read_only: mount.mode() != MountMode::Rw,
    })
}

/// The engine opens a path anew. It has to be what was judged, before and after.
pub(super) fn still_there(mount: &AdmittedMount) -> Result<(), StartError> {
    let source = mount.source();
    let judged = rustix::fs::fstat(source.fd()).ok();
    let found = std::fs::symlink_metadata(&source.real_path).ok();
    match (judged, found) {
        (Some(judged), Some(found))
            if (judged.st_dev, judged.st_ino) == (found.dev(), found.ino()) =>
        {
            Ok(())
        }
        _ => unsupported(format!(
            "`{}` is not what it was when it was allowed, and this engine can only be given a path",
            source.given
        )),
    }
}

/// Named for the fence that init puts up around what may be written.
fn in_place(mount: &AdmittedMount) -> MountPlan {
    MountPlan {
        target: mount.mount_path().to_owned(),
        source: MountSource::Detached { fd: 0 },
        read_only: mount.mode() != MountMode::Rw,
        is_dir: mount.source().is_dir,
    }
}

/// What init is told. Everything but itself is in place.
pub(super) fn plan(spec: &AdmittedSpec, identity: Identity) -> Plan {
    let sizes = Areas::of(spec);
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
        // Its own uid counts for nobody else on a kernel of its own; elsewhere the engine counts.
        process_rlimit: None,
        watched: watched(spec, &RootPlan::Engine),
        // The kernel there is asked.
        landlock: true,
        environment: environment(identity.home(), false),
        // The engine's connection is the only way to it, and ends with the daemon.
        outlive: None,
    }
}
