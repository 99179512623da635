//! What an isolation technology has to offer.
//!
//! Comes in: an [`AdmittedSpec`]. Goes out: a [`Sandbox`], and from it processes and files. Never
//! here: sessions, timeouts, output limits, HTTP. Those are written once, above this crate.
#![forbid(unsafe_code)]

mod adopt;
mod error;
mod file;
mod images;
mod process;
mod progress;
mod stream;
#[cfg(feature = "suites")]
pub mod suite;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use boxwood_api::{IsolationLabel, Mechanism};
use boxwood_policy::{AdmittedMount, AdmittedSpec};
pub use futures_util::future::BoxFuture;

pub use adopt::{Adopted, BoxHandle, KeptProcess, Witness};
pub use error::{
    AdoptError, ControlError, FileError, FileFault, MountError, ProbeError, SpawnError, StartError,
    StopError,
};
pub use file::{FileAnswer, FileCall, FileTool, FileToolAnswer, OpenFor};
pub use images::{ImageArchive, ImageError, Images, NoImages};
pub use process::{
    Exit, ExitStatus, Keep, Process, ProcessControl, Scope, SpawnRequest, Stdio, TerminalSize,
};
pub use progress::Progress;
pub use stream::{Copied, Input, Output};

/// What a backend can do at all. What one box of it really has is its [`IsolationLabel`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one yes or no about the backend, and none depends on another"
)]
pub struct Capabilities {
    pub pty: bool,
    pub managed_processes: bool,
    pub files: bool,
    pub network: bool,
    pub host_mounts: bool,
    /// Whether [`Sandbox::mount`] works: a mount may join a box that is running.
    pub live_mounts: bool,
    /// Whether boxes outlive the daemon, and the next one can take them over.
    pub adoption: bool,
    pub mechanisms: Vec<Mechanism>,
}

/// The outcome of looking at the host: usable or not, and what each mechanism said.
#[derive(Clone, Debug)]
pub struct Probe {
    pub findings: Vec<Finding>,
}

/// One thing a probe tried.
#[derive(Clone, Debug)]
pub struct Finding {
    pub name: &'static str,
    pub mechanism: Option<Mechanism>,
    pub outcome: Outcome,
    /// Why a person should care.
    pub matters: &'static str,
}

#[derive(Clone, Debug)]
pub enum Outcome {
    Works {
        detail: String,
    },
    /// Missing, and boxes start without it (the label says so).
    Missing {
        why: String,
        fix: String,
    },
    /// Missing, and no box can start.
    Fatal {
        why: String,
        fix: String,
    },
}

/// Every method is required. A quiet default would let a new backend leak sandboxes and still
/// compile; a backend that cannot do something says so in [`Capabilities`].
pub trait Backend: Send + Sync {
    fn name(&self) -> &'static str;
    fn capabilities(&self) -> Capabilities;
    /// Tries every mechanism by using it. Slow; callers cache.
    fn probe(&self) -> BoxFuture<'_, Result<Probe, ProbeError>>;
    /// Starts a box. When this returns an error nothing of the box is left. Dropping the future
    /// half-way leaves nothing either. An image that has to be fetched first is news for
    /// `progress`. The `witness` is told before there is anything that could outlive the daemon, and
    /// its error is the start's.
    fn start<'a>(
        &'a self,
        spec: &'a AdmittedSpec,
        progress: &'a Progress,
        witness: &'a Witness,
    ) -> BoxFuture<'a, Result<Arc<dyn Sandbox>, StartError>>;
    /// The boxes of an earlier daemon of this instance that may still be alive, found without any
    /// record of them. Asked once, before the first start.
    fn left_running(&self) -> BoxFuture<'_, Vec<BoxHandle>>;
    /// Takes over a box that an earlier daemon of this instance made. An error leaves the box alone:
    /// what is not adopted goes with [`Backend::settle`].
    fn adopt<'a>(&'a self, handle: &'a BoxHandle) -> BoxFuture<'a, Result<Adopted, AdoptError>>;
    /// Adoption is over: removes everything that earlier daemons of this instance left and that was
    /// not adopted. Nothing of another instance's that may still be wanted.
    fn settle(&self) -> BoxFuture<'_, ()>;
    /// The images its boxes can start from.
    fn images(&self) -> &dyn Images;
    /// Lets go of everything the backend holds (helpers, pools). Boxes are stopped before, or were
    /// let go of to outlive this daemon.
    fn shutdown(&self) -> BoxFuture<'_, ()>;
}

/// One living box.
pub trait Sandbox: Send + Sync {
    /// The backend's own name for it (container name, box number).
    fn id(&self) -> &str;
    fn label(&self) -> &IsolationLabel;
    /// Starts a program. A program that does not exist is a process that exits 127 (126 when it
    /// cannot be executed), with a line on its stderr.
    fn spawn(&self, request: SpawnRequest) -> BoxFuture<'_, Result<Process, SpawnError>>;
    /// One operation on the box's files, done inside the box with the commands' own rights.
    fn file(&self, call: FileCall) -> BoxFuture<'_, Result<FileAnswer, FileError>>;
    /// Adds a mount to the running box, for every process in it, and over whatever is mounted at
    /// its place. An error leaves the box as it was (directories on the way to the place may have
    /// been made). Carried on when the future is dropped. A backend whose [`Capabilities`] have no
    /// `live_mounts` answers [`MountError::Unsupported`].
    fn mount<'a>(&'a self, mount: &'a AdmittedMount) -> BoxFuture<'a, Result<(), MountError>>;
    fn is_alive(&self) -> bool;
    /// Resolves when the box is dead, however that came about.
    fn gone(&self) -> BoxFuture<'_, ()>;
    /// What the next daemon is told when it adopts the box ([`Adopted::record`]); the last one counts.
    /// A box without a record is not adopted. Does nothing where there is no adoption.
    fn remember<'a>(&'a self, record: &'a [u8]) -> BoxFuture<'a, Result<(), ControlError>>;
    /// This daemon ends and the box does not: from now on nothing that is dropped here ends anything
    /// in the box. Does nothing where there is no adoption; such a box is stopped instead.
    fn let_go(&self);
    /// Stops every program in the box where it stands, without the program noticing. `Ok(false)` where
    /// that cannot be done. Idempotent; init goes on, and so does everything that is asked of it,
    /// but whoever asks a program for something thaws first.
    fn freeze(&self) -> BoxFuture<'_, Result<bool, ControlError>>;
    /// The same for a moment: the box is thawed again before anybody would miss anything, so nothing is
    /// taken from it meanwhile.
    fn hold(&self) -> BoxFuture<'_, Result<bool, ControlError>>;
    /// Undoes both. Idempotent.
    fn thaw(&self) -> BoxFuture<'_, Result<(), ControlError>>;
    /// Kills every program in the box, what earlier commands left running too. The box lives on. A
    /// frozen box too.
    fn kill_all(&self) -> BoxFuture<'_, Result<(), ControlError>>;
    /// How many bytes of the file system with this device number programs of the box hold open (or
    /// mapped) in files that no directory names any more. As far as one look tells; 0 where nobody
    /// can look.
    fn unlinked_bytes(&self, device: u64) -> BoxFuture<'_, u64>;
    /// What may still grow on the file system with this device number while the box is held
    /// ([`Sandbox::hold`]): nothing but its end interrupts a call that had begun. Nothing where no program
    /// was told to stand still. Waits for nobody. Who is at work is added to `watched`, and looked at again
    /// next time, at work or not: what it wrote by then counts.
    fn being_written(&self, device: u64, watched: &mut HashSet<i32>) -> BeingWritten;
    /// Kills everything in the box and removes every trace of it. Idempotent. A frozen box too.
    fn stop(&self) -> BoxFuture<'_, Result<(), StopError>>;
}

/// Files that programs have open for writing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BeingWritten {
    /// What they take, by inode.
    pub bytes: HashMap<u64, u64>,
    /// How long threads had a processor of which that cannot be told, by their number: more is open than one
    /// look takes in, or nobody may look.
    pub hidden: HashMap<i32, Duration>,
}
