//! From an admitted spec to a plan that init can carry out.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use boxwood_api::MountMode;
use boxwood_backend::StartError;
use boxwood_init::{InsideNetwork, MountPlan, MountSource, Plan, RootPlan};
use boxwood_policy::{AdmittedMount, AdmittedSpec, Image, OpenedPath};
use rustix::fs::{Mode, OFlags};

use crate::Shared;
use crate::blank::Remains;
use crate::idmap;

/// Sizes in MiB of what a box may write that is not the host's. It is made of the box's memory: all of
/// it full must still leave room for programs, or the kernel would have to end one, and it might
/// choose init.
struct Areas {
    /// `/tmp` and `/dev/shm`, each.
    tmp: u64,
    /// Home, and each further writable area of a root that is not read-only.
    home: u64,
    workspace: u64,
}

impl Areas {
    fn of(spec: &AdmittedSpec) -> Self {
        let limits = spec.limits();
        let share = |sixteenths: u64| (limits.memory_mb * sixteenths / 16).max(1);
        let tmp = limits.tmp_mb.min(share(3));
        // Home, `/opt`, `/usr/local`, or an image's layer and root's home: never more than three.
        let homes = if spec.read_only_root() { 1 } else { 3 };
        let workspaces = u64::from(spec.workspace().is_none());
        let each = share(12).saturating_sub(2 * tmp) / (homes + workspaces);
        let bound = match limits.workspace_quota_mb {
            0 => each,
            quota => quota.min(each),
        }
        .max(1);
        Self {
            tmp,
            home: bound,
            workspace: bound,
        }
    }
}

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
        .map(|mount| mount_plan(shared, mount, remains, &mut fds))
        .transpose()?;
    let mounts = spec
        .extra_mounts()
        .iter()
        .map(|mount| mount_plan(shared, mount, remains, &mut fds))
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
        process_rlimit: shared.cgroups.pids.is_none().then_some(spec.limits().pids),
        landlock: shared.landlock,
        environment: environment(identity.home(), identity.command_uid == 0),
    };
    Ok(Drawn { plan, fds })
}

/// What every command finds in its environment.
fn environment(home: &str, root: bool) -> Vec<(String, String)> {
    const CA_BUNDLE: &str = "/etc/ssl/certs/ca-certificates.crt";
    let user = if root { "root" } else { "box" };
    let path = format!(
        "{home}/.local/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/.boxwood/bin"
    );
    let mut environment = vec![
        ("HOME", home),
        ("USER", user),
        ("LOGNAME", user),
        ("SHELL", "/bin/sh"),
        ("PATH", &path),
        ("LANG", "C.UTF-8"),
        ("TERM", "xterm-256color"),
        ("TMPDIR", "/tmp"),
        ("PYTHONUNBUFFERED", "1"),
    ];
    // pip, uv, requests and npm each read another one.
    if std::path::Path::new(CA_BUNDLE).exists() {
        for name in [
            "SSL_CERT_FILE",
            "REQUESTS_CA_BUNDLE",
            "PIP_CERT",
            "NODE_EXTRA_CA_CERTS",
        ] {
            environment.push((name, CA_BUNDLE));
        }
    }
    environment
        .into_iter()
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
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
    if !shared.mapping.is_root() {
        return same_path(image, fds);
    }
    let tree = idmap::shifted(image, remains.init)
        .map_err(step(format!("map the owners of image `{}`", image.given)))?;
    fds.push(tree);
    Ok(MountSource::Detached { fd: fds.len() - 1 })
}

pub(crate) fn mount_plan(
    shared: &Shared,
    mount: &AdmittedMount,
    remains: &Remains,
    fds: &mut Vec<OwnedFd>,
) -> Result<MountPlan, StartError> {
    let source = mount.source();
    let drawn = if shared.mapping.is_root() {
        let tree =
            idmap::translated(&shared.spawner, source, &remains.ids).map_err(step(format!(
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
fn same_path(source: &OpenedPath, fds: &mut Vec<OwnedFd>) -> Result<MountSource, StartError> {
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
