//! What init needs to know to turn empty namespaces into a box.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

/// Everything about one box. Descriptors travel beside it and are named by their place in the list.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    pub root: RootPlan,
    pub read_only_root: bool,
    pub hostname: String,
    pub identity: Identity,
    /// Where the workspace is; a private area is made there when `workspace` is `None`.
    pub workspace_path: String,
    pub workspace: Option<MountPlan>,
    pub mounts: Vec<MountPlan>,
    pub tmp_mb: u64,
    /// Size of home, and of each further writable area of a root that is not read-only.
    pub home_mb: u64,
    /// Size of the workspace, when it is private.
    pub private_workspace_mb: u64,
    pub network: Option<InsideNetwork>,
    /// The box's own cgroup namespace; only where the box is in a cgroup of its own.
    pub cgroup_namespace: bool,
    /// `RLIMIT_NPROC`, where no cgroup counts processes.
    pub process_rlimit: Option<u64>,
    /// `None`: nobody watches how much the box writes.
    pub watched: Option<Watched>,
    /// Use Landlock (the host was probed for it).
    pub landlock: bool,
    /// Environment of every command, before what a request adds.
    pub environment: Vec<(String, String)>,
    /// `None`: the box ends with its channel.
    pub outlive: Option<Outlive>,
}

/// How a box lives on without the daemon that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outlive {
    /// A bound socket by place, on which init listens for the next daemon. Init calls `listen` on it
    /// itself, so that whoever connects sees init's pid. No path in the box leads there.
    pub door: usize,
    /// How long init waits for the next daemon before the box ends by itself.
    pub grace_sec: u64,
}

/// A box whose workspace is bounded by somebody who watches it grow. Commands may grow it no faster than
/// they can write: space cannot be reserved ahead of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watched {
    /// The most that one file may have; whoever wants more is told that the file is too large.
    pub file_bytes: Option<u64>,
}

impl Plan {
    /// Where commands may write, as far as Landlock is concerned: below the files that are at these
    /// places when the box begins, and below what is mounted there later.
    pub fn writable_places(&self) -> Vec<String> {
        let mut places: Vec<String> = [
            "/tmp",
            "/var/tmp",
            "/dev",
            "/proc",
            "/home",
            "/root",
            "/opt",
            "/usr/local",
        ]
        .map(String::from)
        .into();
        places.push(self.workspace_path.clone());
        places.extend(self.mounts.iter().map(|mount| mount.target.clone()));
        if matches!(self.root, RootPlan::Directory(_) | RootPlan::Engine) && !self.read_only_root {
            places.push("/".to_owned());
        }
        places
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum RootPlan {
    /// The host's system directories, read-only.
    Host,
    /// An unpacked image.
    Directory(MountSource),
    /// What a container engine made of an image. It is there already.
    Engine,
    /// The host's system directories, read-only, in an empty root that a jail made, with a `/proc`.
    Jail,
}

/// Who is who inside the box.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub init_uid: u32,
    pub command_uid: u32,
    pub command_gid: u32,
    /// The namespace maps one uid only (rootless without `newuidmap`): groups cannot be set, and
    /// init and commands share that uid.
    pub single_uid: bool,
}

impl Identity {
    pub fn home(&self) -> &'static str {
        if self.command_uid == 0 {
            "/root"
        } else {
            "/home/box"
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MountPlan {
    pub target: String,
    pub source: MountSource,
    pub read_only: bool,
    pub is_dir: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum MountSource {
    /// A detached mount, ready to be moved into place.
    Detached { fd: usize },
    /// Open `path` anew in the box's copy of the host's mounts, and refuse unless it is the very
    /// file that descriptor `fd` names: a descriptor of another mount namespace cannot be mounted.
    SamePath { path: String, fd: usize },
}

impl MountSource {
    pub fn fd(&self) -> usize {
        match self {
            Self::Detached { fd } | Self::SamePath { fd, .. } => *fd,
        }
    }
}

/// The box's side of its way out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InsideNetwork {
    /// `None`: another program configures the interface (pasta); only names are resolved here.
    pub interface: Option<InsideInterface>,
    pub dns: Vec<Ipv4Addr>,
    /// Networks that the packet filter inside the box refuses, beside those that no box may reach. Init
    /// installs the filter before it configures the interface.
    pub denied: Vec<(Ipv4Addr, u8)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InsideInterface {
    pub name: String,
    pub address: Ipv4Addr,
    pub prefix: u8,
    pub gateway: Ipv4Addr,
    pub mtu: u32,
}
