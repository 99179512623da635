//! The root of a box: the host's system directories, or an image.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use boxwood_backend::{StartError, start_step as step};
use boxwood_init::{MountSource, RootPlan};
use boxwood_local::{BoxResources, ImageLease, idmapped_image, same_path};
use boxwood_policy::{AdmittedSpec, Image, OpenedPath};
use rustix::fs::{Mode, OFlags};

use crate::NativeBackend;

/// The root of the box. Blocks for a few system calls.
pub(crate) fn root(
    backend: &NativeBackend,
    spec: &AdmittedSpec,
    resources: &BoxResources,
    leased: Option<ImageLease>,
    fds: &mut Vec<OwnedFd>,
) -> Result<RootPlan, StartError> {
    let opened = match spec.image() {
        Image::Default => return Ok(RootPlan::Host),
        Image::Directory { name, path } => open_image(name, path)?,
        Image::Named(name) => {
            let lease = leased.ok_or_else(|| unknown_image(name))?;
            let opened = leased_image(name, &lease)?;
            resources.keep_image(lease);
            opened
        }
    };
    image_source(backend, &opened, resources, fds).map(RootPlan::Directory)
}

/// Finds the image in the store if the spec names one. The box keeps the lease.
pub(crate) fn stored_image(
    backend: &NativeBackend,
    spec: &AdmittedSpec,
) -> Result<Option<ImageLease>, StartError> {
    let Image::Named(name) = spec.image() else {
        return Ok(None);
    };
    match backend.images.find(name) {
        Ok(Some(lease)) => Ok(Some(lease)),
        Ok(None) => Err(unknown_image(name)),
        Err(source) => Err(step(format!("open image `{name}`"))(source)),
    }
}

fn unknown_image(name: &str) -> StartError {
    StartError::ImageNotFound {
        image: name.to_owned(),
        hint: format!(
            "import it with `boxwood image import DIR|TAR {name}`, or set its directory under \
             `[images]`; an empty image means the host's own system directories"
        ),
    }
}

fn leased_image(name: &str, lease: &ImageLease) -> Result<OpenedPath, StartError> {
    let handle = lease.handle();
    let handle = handle.map_err(step(format!("open image `{name}`")))?;
    Ok(opened(name, lease.rootfs(), handle))
}

fn open_image(name: &str, path: &Path) -> Result<OpenedPath, StartError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(handle) => Ok(opened(name, path, handle)),
        Err(errno) => Err(StartError::ImageNotFound {
            image: name.to_owned(),
            hint: format!(
                "its directory `{}` could not be opened: {errno}",
                path.display()
            ),
        }),
    }
}

fn opened(name: &str, path: &Path, handle: OwnedFd) -> OpenedPath {
    OpenedPath {
        handle: Arc::new(handle),
        given: name.to_owned(),
        real_path: path.to_owned(),
        is_dir: true,
    }
}

fn image_source(
    backend: &NativeBackend,
    image: &OpenedPath,
    resources: &BoxResources,
    fds: &mut Vec<OwnedFd>,
) -> Result<MountSource, StartError> {
    if !backend.host.mapping.is_root() {
        return same_path(image, fds);
    }
    let tree = idmapped_image(image, resources.init)
        .map_err(step(format!("map the owners of image `{}`", image.given)))?;
    fds.push(tree);
    Ok(MountSource::Detached { fd: fds.len() - 1 })
}
