//! From an admitted spec to a plan that init can carry out.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use boxwood_backend::StartError;
use boxwood_init::{InsideNetwork, MountSource, Plan, RootPlan};
use boxwood_local::{Areas, Remains, environment, mount_plan, same_path, shifted};
use boxwood_policy::{AdmittedSpec, Image, OpenedPath};
use rustix::fs::{Mode, OFlags};

use crate::Shared;

/// A plan and the descriptors it names.
pub(crate) struct Drawn {
    pub(crate) plan: Plan,
    pub(crate) fds: Vec<OwnedFd>,
}

/// Draws the plan. Blocks for a few system calls per mount.
pub(crate) fn draw(
    shared: &Shared,
    spec: &AdmittedSpec,
    remains: &Remains,
    network: Option<InsideNetwork>,
) -> Result<Drawn, StartError> {
    let mut fds = Vec::new();
    let root = match spec.image() {
        Image::Default => RootPlan::Host,
        Image::Directory { name, path } => {
            let opened = open_image(name, path)?;
            RootPlan::Directory(image_source(shared, &opened, remains, &mut fds)?)
        }
        Image::Named(image) => {
            return Err(StartError::ImageNotFound {
                image: image.clone(),
                hint: format!(
                    "name a directory for it under `[images]`: `\"{image}\" = \"/path/to/rootfs\"`; \
                     an empty image means the host's own system directories"
                ),
            });
        }
    };
    let workspace = spec
        .workspace()
        .map(|mount| mount_plan(&shared.host, mount, &remains.ids, &mut fds))
        .transpose()?;
    let mounts = spec
        .extra_mounts()
        .iter()
        .map(|mount| mount_plan(&shared.host, mount, &remains.ids, &mut fds))
        .collect::<Result<_, _>>()?;
    let areas = Areas::of(spec);
    let identity = remains.ids.identity;
    let plan = Plan {
        root,
        read_only_root: spec.read_only_root(),
        hostname: "box".to_owned(),
        identity,
        workspace_path: spec.mount_path().to_owned(),
        workspace,
        mounts,
        tmp_mb: areas.tmp,
        home_mb: areas.home,
        private_workspace_mb: areas.workspace,
        network,
        cgroup_namespace: remains.group.is_some(),
        process_rlimit: (!shared.host.cgroups.counts_processes()).then_some(spec.limits().pids),
        landlock: shared.host.landlock,
        environment: environment(identity.home(), identity.command_uid == 0),
    };
    Ok(Drawn { plan, fds })
}

fn step(step: String) -> impl FnOnce(io::Error) -> StartError {
    move |source| StartError::Step { step, source }
}

fn open_image(name: &str, path: &std::path::Path) -> Result<OpenedPath, StartError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(handle) => Ok(OpenedPath {
            handle: Arc::new(handle),
            given: name.to_owned(),
            real_path: path.to_owned(),
            is_dir: true,
        }),
        Err(errno) => Err(StartError::ImageNotFound {
            image: name.to_owned(),
            hint: format!(
                "its directory `{}` could not be opened: {errno}",
                path.display()
            ),
        }),
    }
}

fn image_source(
    shared: &Shared,
    image: &OpenedPath,
    remains: &Remains,
    fds: &mut Vec<OwnedFd>,
) -> Result<MountSource, StartError> {
    if !shared.host.mapping.is_root() {
        return same_path(image, fds);
    }
    let tree = shifted(image, remains.init)
        .map_err(step(format!("map the owners of image `{}`", image.given)))?;
    fds.push(tree);
    Ok(MountSource::Detached { fd: fds.len() - 1 })
}
