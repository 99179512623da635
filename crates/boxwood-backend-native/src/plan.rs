//! From an admitted spec to a plan that init can carry out.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use boxwood_backend::StartError;
use boxwood_init::{InsideNetwork, MountSource, Plan, RootPlan};
use boxwood_local::{Remains, same_path, shifted};
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
    let plan = boxwood_local::plan(&shared.host, spec, remains, root, network, &mut fds)?;
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
