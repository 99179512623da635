//! The plan: everything init needs to turn empty namespaces into a box.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

/// The configuration of one box. Descriptors travel beside it and are named by their index.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    pub root: RootPlan,
    pub read_only_root: bool,
    pub hostname: String,
    pub identity: Identity,
    /// Where the workspace is mounted. A private tmpfs if `workspace` is `None`.
    pub workspace_path: String,
    pub workspace: Option<MountPlan>,
    pub mounts: Vec<MountPlan>,
    pub tmp_mb: u64,
    /// Size of the home directory and of each other writable area of a root that is not read-only.
    pub home_mb: u64,
    /// Size of a private workspace.
    pub private_workspace_mb: u64,
    pub network: Option<InsideNetwork>,
    /// Enter a cgroup namespace. Only if the box has its own cgroup.
    pub cgroup_namespace: bool,
    /// `RLIMIT_NPROC`, where no cgroup counts processes.
    pub process_rlimit: Option<u64>,
    /// `None`: the box has no workspace quota.
    pub watched: Option<Watched>,
    /// Use Landlock (the host was probed for it).
    pub landlock: bool,
    /// Environment of every command. Requests add to it.
    pub environment: Vec<(String, String)>,
    /// `None`: the box ends when its channel closes.
    pub recovery: Option<Recovery>,
}

/// How a box outlives the daemon that created it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovery {
    /// Index of a bound socket on which init listens for the next daemon. Init calls `listen` itself, so
    /// that a connecting daemon sees init's pid. The socket has no path inside the box.
    pub listener: usize,
    /// How long init waits for the next daemon before it ends the box.
    pub grace_sec: u64,
}

/// The daemon enforces a quota on the workspace by measuring it. Commands cannot reserve space without
/// writing it (`fallocate`), because that would exceed the quota between two measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watched {
    /// Largest size of one file (`RLIMIT_FSIZE`).
    pub file_bytes: Option<u64>,
}

impl Plan {
    /// Paths below which Landlock allows writes. Resolved when the box starts; later mounts below them are
    /// writable too.
    pub fn writable_paths(&self) -> Vec<String> {
        let mut paths: Vec<String> = [
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
        paths.push(self.workspace_path.clone());
        paths.extend(self.mounts.iter().map(|mount| mount.target.clone()));
        if matches!(self.root, RootPlan::Directory(_) | RootPlan::Engine) && !self.read_only_root {
            paths.push("/".to_owned());
        }
        paths
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum RootPlan {
    /// The host's system directories, read-only.
    Host,
    /// An extracted image.
    Directory(MountSource),
    /// The root file system of a container engine, already mounted.
    Engine,
    /// The host's system directories, read-only, in an empty root with a `/proc` that nsjail created.
    Jail,
}

/// User and group ids inside the box.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub init_uid: u32,
    pub command_uid: u32,
    pub command_gid: u32,
    /// The user namespace maps only one uid (rootless without `newuidmap`). Groups cannot be set, and init
    /// and commands share the uid.
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
    /// A detached mount, to be attached with `move_mount`.
    Detached { fd: usize },
    /// A path to reopen in the box's copy of the host's mounts, because a descriptor from another mount
    /// namespace cannot be mounted. It must be the same file as descriptor `fd`.
    SamePath { path: String, fd: usize },
}

impl MountSource {
    pub fn fd(&self) -> usize {
        match self {
            Self::Detached { fd } | Self::SamePath { fd, .. } => *fd,
        }
    }
}

/// The box's side of its network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InsideNetwork {
    /// `None`: pasta configures the interface; init only writes `resolv.conf`.
    pub interface: Option<InsideInterface>,
    pub dns: Vec<Ipv4Addr>,
    /// Networks that the packet filter inside the box denies, in addition to those denied for every box.
    /// Init installs the filter before it configures the interface.
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
