//! Turns an admitted mount into an instruction for init.

use std::os::fd::OwnedFd;

use boxwood_api::MountMode;
use boxwood_backend::{StartError, start_step as step};
use boxwood_init::{MountPlan, MountSource};
use boxwood_policy::{AdmittedMount, OpenedPath};

use crate::host::LocalHost;
use crate::ids::BoxIds;
use crate::mounts::idmap;

/// As root the source is a cloned mount with the owner mapped to the commands' uid. Otherwise it is a path
/// that init opens and compares with the descriptor.
pub fn mount_plan(
    host: &LocalHost,
    mount: &AdmittedMount,
    ids: &BoxIds,
    fds: &mut Vec<OwnedFd>,
) -> Result<MountPlan, StartError> {
    let source = mount.source();
    let mount_source = if host.mapping.is_root() {
        let tree = idmap::idmapped_mount(&host.spawner, source, ids).map_err(step(format!(
            "map the owner of `{}` (its file system may not support it)",
            source.given
        )))?;
        fds.push(tree);
        MountSource::Detached { fd: fds.len() - 1 }
    } else {
        same_path(source, fds)?
    };
    Ok(MountPlan {
        target: mount.mount_path().to_owned(),
        source: mount_source,
        read_only: mount.mode() != MountMode::Rw,
        is_dir: source.is_dir,
    })
}

/// Without root a mount cannot be cloned for another namespace; init opens the path again and compares.
pub fn same_path(source: &OpenedPath, fds: &mut Vec<OwnedFd>) -> Result<MountSource, StartError> {
    let path = source
        .real_path
        .to_str()
        .ok_or_else(|| StartError::Unsupported {
            what: format!("`{}` has a name that is not UTF-8", source.given),
        })?;
    let copy = source.handle.try_clone().map_err(step(format!(
        "duplicate the descriptor of `{}`",
        source.given
    )))?;
    fds.push(copy);
    Ok(MountSource::SamePath {
        path: path.to_owned(),
        fd: fds.len() - 1,
    })
}
