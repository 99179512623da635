//! Messages between the daemon, the spawner, mount helpers and init. Each message is one packet.
//!
//! Running boxes keep the init they were started with, so variants and fields are only appended: the encoding
//! is positional.

use serde::{Deserialize, Serialize};

use crate::protocol::plan::{Identity, MountPlan, Plan};

/// Daemon to spawner. Each request carries one descriptor: the new process's end of its channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToSpawner {
    /// An init in new, empty namespaces that waits for its plan. The kernel also charges what a user
    /// namespace uses (inotify instances, pending signals, locked memory) to its owner. `owner` is a
    /// separate uid where one is available, so that boxes do not use up the daemon's limits.
    Init { owner: Option<u32> },
    /// A process in a new user namespace that waits until it is killed. The namespace is used for an
    /// id-mapped mount or for nsjail. The descriptor is a pipe or socket.
    UserNamespace { owner: Option<u32> },
    /// A process in the spawner's own namespaces that waits for a [`MountRequest`].
    MountHelper,
}

/// Daemon to mount helper, once. Descriptors are given as indexes into those of the message.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MountRequest {
    pub identity: Identity,
    /// `None`: the box shares the mount helper's user namespace.
    pub user_namespace: Option<usize>,
    pub mount_namespace: usize,
    pub net_namespace: usize,
    pub work: MountWork,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum MountWork {
    /// Adds one mount to a running box.
    AddMount(MountPlan),
    /// Applies everything in the plan that the engine or jail did not set up. The box's init waits and is
    /// the only process in the box.
    PopulateRootfs(Box<Plan>),
}

/// Mount helper to daemon: its only message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromMountHelper {
    Done,
    Failed { step: String, errno: i32 },
}

/// Spawner to daemon. `Started` carries a pidfd.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromSpawner {
    Started { pid: i32 },
    Failed { errno: i32 },
}

/// Daemon to init.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ToInit {
    /// The first message, sent once.
    Plan(Box<Plan>),
    Spawn(Spawn),
    Signal {
        id: u64,
        signal: i32,
        scope: KillScope,
    },
    /// Stores the record and descriptors that the next daemon gets for this box. Replaces the previous
    /// record.
    SetRecord {
        record: Vec<u8>,
    },
    /// Closes one descriptor of a retained program. Without this the reader of a pipe would see no end of
    /// file when the daemon closes its copy.
    CloseRetained {
        id: u64,
        place: usize,
    },
    /// Drops a retained program.
    Release {
        id: u64,
    },
}

/// A program id that means every program of the box. An older init has no program of this id and ignores it.
pub const ALL_PROGRAMS: u64 = u64::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum KillScope {
    Process,
    Tree,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Spawn {
    pub id: u64,
    pub program: Program,
    /// Index of the descriptor of the cgroup directory to start in.
    pub cgroup: Option<usize>,
    /// Set for programs that the next daemon takes over.
    pub retain: Option<Retain>,
}

/// What init holds of a program until `Release`, also after the program has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retain {
    pub note: Vec<u8>,
    /// Indexes of descriptors in the message. Later messages use the index in this list.
    pub fds: Vec<usize>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Program {
    Command {
        argv: Vec<String>,
        /// Added to the plan's environment; overrides it.
        env: Vec<(String, String)>,
        cwd: String,
        stdio: StdioPlan,
        /// A descriptor that becomes number 3 of the command: a script that is too long for an argument.
        script: Option<usize>,
    },
    /// One file operation, answered on the socket at `reply`.
    File { request: FileRequest, reply: usize },
    /// One file tool: `request` is a file with a [`crate::file_tools::FileToolRequest`], `response` a pipe for
    /// the result, so that neither passes through init's memory.
    FileTool { request: usize, response: usize },
}

/// Descriptors as indexes into those of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StdioPlan {
    Streams {
        stdin: Option<usize>,
        stdout: usize,
        stderr: usize,
    },
    /// Init opens a terminal and sends its master with `Spawned`.
    Terminal { rows: u16, cols: u16 },
}

/// Init to daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromInit {
    /// The plan was applied. The fields tell which optional features are active.
    Ready {
        landlock: bool,
        notify: bool,
    },
    /// The plan failed at `step`; init exits.
    PlanFailed {
        step: String,
        errno: i32,
    },
    /// Carries the terminal's master if one was requested.
    Spawned {
        id: u64,
    },
    SpawnFailed {
        id: u64,
        step: String,
        errno: i32,
    },
    /// First message to a daemon that connects to a running box. Carries the descriptors of the last
    /// `SetRecord`. `retained` messages of that kind follow, then ordinary events.
    Hello {
        /// `None`: no record was set, so the box was never completed.
        record: Option<Vec<u8>>,
        landlock: bool,
        retained: usize,
    },
    /// One retained program, with its descriptors that are still open.
    Retained {
        id: u64,
        note: Vec<u8>,
        /// The index of each descriptor of this message in the program's list.
        places: Vec<usize>,
        /// `None` while it runs.
        ended: Option<Ended>,
    },
    Exited {
        id: u64,
        ended: Ended,
    },
}

/// How a program ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// As `wait` gives it.
    pub status: i32,
    /// Name of the last denied system call in this program's process tree.
    pub denied_syscall: Option<String>,
    /// A private area was full when the program failed.
    pub disk_full: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileRequest {
    OpenRead {
        path: String,
    },
    /// `exclusive`: fail if it exists; otherwise truncate it.
    OpenWrite {
        path: String,
        exclusive: bool,
        mode: u32,
    },
    Stat {
        path: String,
        follow: bool,
    },
    List {
        path: String,
        limit: usize,
    },
    Mkdir {
        path: String,
        parents: bool,
    },
    Move {
        from: String,
        to: String,
        overwrite: bool,
    },
    Remove {
        path: String,
        recursive: bool,
    },
}

/// The result of a file operation. `Opened` carries the descriptor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileReply {
    Opened(FileStat),
    Stat(FileStat),
    Entries {
        entries: Vec<FileStat>,
        truncated: bool,
    },
    Done,
    Failed(FileFailure),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStat {
    /// As bytes: names need not be UTF-8.
    pub name: Vec<u8>,
    /// `st_mode`, type bits included.
    pub mode: u32,
    pub size: u64,
    pub modified_sec: i64,
    pub modified_nsec: u32,
    pub symlink_target: Option<Vec<u8>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileFailure {
    Errno(i32),
    /// Not a regular file, or a file of procfs.
    NotAFile,
}
