//! From an admitted spec to a plan that init can carry out.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use boxwood_backend::StartError;
use boxwood_init::{InsideNetwork, MountSource, Plan, RootPlan};
use boxwood_local::{ImageLease, Remains, same_path, shifted};
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
    stored: Option<&ImageLease>,
) -> Result<Drawn, StartError> {
    let mut fds = Vec::new();
    let root = match spec.image() {
        Image::Default => RootPlan::Host,
        Image::Directory { name, path } => {
            let opened = open_image(name, path)?;
            RootPlan::Directory(image_source(shared, &opened, remains, &mut fds)?)
        }
        Image::Named(name) => {
            let lease = stored.ok_or_else(|| unknown_image(name))?;
            let opened = leased_image(name, lease)?;
            RootPlan::Directory(image_source(shared, &opened, remains, &mut fds)?)
        }
    };
    let plan = boxwood_local::plan(&shared.host, spec, remains, root, network, &mut fds)?;
    Ok(Drawn { plan, fds })
}

fn step(step: String) -> impl FnOnce(io::Error) -> StartError {
    move |source| StartError::Step { step, source }
}

/// The image in the store, if that is where the spec's must be. The box keeps the lease.
pub(crate) fn stored_image(
    shared: &Shared,
    spec: &AdmittedSpec,
) -> Result<Option<ImageLease>, StartError> {
    let Image::Named(name) = spec.image() else {
        return Ok(None);
    };
    match shared.images.find(name) {
        Ok(Some(lease)) => Ok(Some(lease)),
        Ok(None) => Err(unknown_image(name)),
        Err(source) => Err(step(format!("open image `{name}`"))(source)),
    }
}

fn unknown_image(name: &str) -> StartError {
    StartError::ImageNotFound {
        image: name.to_owned(),
        hint: format!(
            "bring it with `boxwood image import DIR|TAR {name}`, or name a directory for it under \
             `[images]`; an empty image means the host's own system directories"
        ),
    }
}

fn leased_image(name: &str, lease: &ImageLease) -> Result<OpenedPath, StartError> {
    let handle = lease.handle();
    Ok(OpenedPath {
        handle: Arc::new(handle.map_err(step(format!("open image `{name}`")))?),
        given: name.to_owned(),
        real_path: lease.rootfs().to_owned(),
        is_dir: true,
    })
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
