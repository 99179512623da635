//! From an admitted mount to what is handed into the box.

use std::io;
use std::os::fd::OwnedFd;

use boxwood_api::MountMode;
use boxwood_backend::StartError;
use boxwood_init::{MountPlan, MountSource};
use boxwood_policy::{AdmittedMount, OpenedPath};

use crate::host::LocalHost;
use crate::idmap;
use crate::mapping::BoxIds;

fn step(step: String) -> impl FnOnce(io::Error) -> StartError {
    move |source| StartError::Step { step, source }
}

/// How a mount gets into the box: as root a copy of it whose owner is the commands, otherwise the path
/// itself, opened again and compared.
pub fn mount_plan(
    host: &LocalHost,
    mount: &AdmittedMount,
    ids: &BoxIds,
    fds: &mut Vec<OwnedFd>,
) -> Result<MountPlan, StartError> {
    let source = mount.source();
    let drawn = if host.mapping.is_root() {
        let tree = idmap::translated(&host.spawner, source, ids).map_err(step(format!(
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
        source: drawn,
        read_only: mount.mode() != MountMode::Rw,
        is_dir: source.is_dir,
    })
}

/// Without root a mount of this namespace cannot be handed over; init opens it again and compares.
pub fn same_path(source: &OpenedPath, fds: &mut Vec<OwnedFd>) -> Result<MountSource, StartError> {
    let path = source
        .real_path
        .to_str()
        .ok_or_else(|| StartError::Unsupported {
            what: format!("`{}` has a name that is not UTF-8", source.given),
        })?;
    let copy = source
        .handle
        .try_clone()
        .map_err(step(format!("hand over `{}`", source.given)))?;
    fds.push(copy);
    Ok(MountSource::SamePath {
        path: path.to_owned(),
        fd: fds.len() - 1,
    })
}
