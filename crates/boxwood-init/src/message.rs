//! Messages between the daemon, the spawner and init. One message, one packet.

use serde::{Deserialize, Serialize};

use crate::plan::{Identity, MountPlan, Plan};

/// Daemon to spawner. With `Blank` comes one descriptor: init's end of its channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ToSpawner {
    /// A process in new, empty namespaces that waits for its plan. The kernel counts what a user
    /// namespace uses (inotify instances, pending signals, locked memory) for its owner too, so a
    /// box is owned by a uid of its own where there is one; otherwise it would use up the daemon's.
    Blank { owner: Option<u32> },
    /// A process in a new user namespace and nothing else, that waits to be killed: its namespace
    /// is wanted for the owner translation of a mount, or for a jail to be made in. The descriptor
    /// it gets is a pipe or socket.
    UserNamespace { owner: Option<u32> },
    /// A process in the spawner's own namespaces that waits for a [`MountOrder`]. The descriptor is
    /// its end of a channel.
    Mounter,
}

/// Daemon to mounter, once. Descriptors by place.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MountOrder {
    pub identity: Identity,
    /// `None`: the box has the mounter's own.
    pub user_namespace: Option<usize>,
    pub mount_namespace: usize,
    pub net_namespace: usize,
    pub work: MountWork,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum MountWork {
    /// One mount for a box that is running.
    Join(MountPlan),
    /// Everything that the plan of a box asks for and that whoever made its namespaces left out.
    /// The box's init waits meanwhile, and is the only process in it.
    Furnish(Box<Plan>),
}

/// Mounter to daemon, its only word.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromMounter {
    Done,
    Failed { step: String, errno: i32 },
}

/// Spawner to daemon, with a pidfd beside `Born`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromSpawner {
    Born { pid: i32 },
    Failed { errno: i32 },
}

/// Daemon to init.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum ToInit {
    /// First and once. Descriptors as the plan names them.
    Plan(Box<Plan>),
    Spawn(Spawn),
    Signal {
        id: u64,
        signal: i32,
        scope: KillScope,
    },
    /// What the next daemon is told of this box, and the descriptors that come with it. The last one
    /// counts.
    Remember {
        record: Vec<u8>,
    },
    /// Lets go of one descriptor of a kept program: closing the daemon's end of a pipe is no end of
    /// file while init holds another.
    LetGo {
        id: u64,
        place: usize,
    },
    /// Forgets a kept program: nobody will ask for it again.
    Release {
        id: u64,
    },
}

/// In the place of a program's number: every program of the box. An init that does not know of it knows
/// no program of that number either.
///
/// `SIGSTOP` holds them for a moment, `SIGCONT` lets them go on, but for those who were stopped before.
/// Init does that by itself when its daemon goes.
pub const EVERYBODY: u64 = u64::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum KillScope {
    Process,
    Tree,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Spawn {
    pub id: u64,
    pub program: Program,
    /// Descriptor of the cgroup directory to be born into, by place.
    pub cgroup: Option<usize>,
    /// Handed to the next daemon, should this one go away.
    pub keep: Option<Keep>,
}

/// What init holds of a program until it is released, also after the program's end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Keep {
    pub note: Vec<u8>,
    /// Descriptors by place in the message. From here on they are counted by their place in this
    /// list.
    pub fds: Vec<usize>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Program {
    Command {
        argv: Vec<String>,
        /// Added to the plan's environment, winning over it.
        env: Vec<(String, String)>,
        cwd: String,
        stdio: StdioPlan,
        /// A descriptor that becomes number 3 of the command: its script, when it is too long for
        /// an argument.
        script: Option<usize>,
    },
    /// One file operation, answered on the socket at `reply`.
    File { request: FileRequest, reply: usize },
    /// One tool of agents: a [`crate::file_tools::ToolOrder`] in the file at `order`, its outcome into
    /// the pipe at `answer`. So neither passes through init's memory.
    FileTool { order: usize, answer: usize },
}

/// Descriptors by place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum StdioPlan {
    Streams {
        stdin: Option<usize>,
        stdout: usize,
        stderr: usize,
    },
    /// Init opens a terminal and sends its master side with `Spawned`.
    Terminal { rows: u16, cols: u16 },
}

/// Init to daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FromInit {
    /// The plan is carried out; what was optional and could not be had is listed.
    Ready {
        landlock: bool,
        notify: bool,
    },
    /// The plan failed at `step`; init is exiting.
    PlanFailed {
        step: String,
        errno: i32,
    },
    /// Comes with the terminal's master where one was asked for.
    Spawned {
        id: u64,
    },
    SpawnFailed {
        id: u64,
        step: String,
        errno: i32,
    },
    /// First word to a daemon that connects to a box that is running. With it come the descriptors of
    /// the last `Remember`; then `kept` messages of that kind, and then events as ever.
    Hello {
        /// `None`: nobody said anything, so the box was never finished.
        record: Option<Vec<u8>>,
        landlock: bool,
        kept: usize,
    },
    /// One kept program, with those of its descriptors that are still held.
    Kept {
        id: u64,
        note: Vec<u8>,
        /// The place that each descriptor of this message has in the program's list.
        places: Vec<usize>,
        /// How it ended, when it has.
        ended: Option<Ended>,
    },
    Exited {
        id: u64,
        ended: Ended,
    },
    /// Answers `SIGSTOP` to [`EVERYBODY`]: all programs of the box stand still, or cannot be made to.
    Held {
        still: bool,
    },
}

/// How a program ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// As `wait` gives it.
    pub status: i32,
    /// Name of the last refused call of this program's tree.
    pub denied_syscall: Option<String>,
    /// A private area was full when the program failed.
    pub disk_full: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileRequest {
    OpenRead {
        path: String,
    },
    /// `exclusive`: fail when it exists; otherwise truncate.
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

/// What a file operation answers; with `Opened` comes the descriptor.
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
    /// Not a regular file on a file system of the box's own.
    NotAFile,
}
