//! The interface of isolation backends.
//!
//! A [`Backend`] turns an [`AdmittedSpec`] into a [`Sandbox`], which runs processes and accesses files.
//! Sessions, timeouts, output limits and HTTP belong to the layers above.
#![forbid(unsafe_code)]

mod adopt;
mod error;
mod file;
mod images;
mod process;
mod progress;
mod stream;

use std::sync::Arc;

use boxwood_api::{IsolationLabel, Mechanism};
use boxwood_policy::{AdmittedMount, AdmittedSpec};
pub use futures_util::future::BoxFuture;

pub use adopt::{Adopted, BoxHandle, KeptProcess, StartRecorder};
pub use error::{
    AdoptError, ControlError, FileError, FileFault, MountError, ProbeError, SpawnError, StartError,
    StopError, start_step,
};
pub use file::{FileAnswer, FileCall, FileTool, FileToolAnswer, OpenFor};
pub use images::{ImageArchive, ImageError, Images, NoImages};
pub use process::{
    Exit, ExitStatus, Keep, Process, ProcessControl, Scope, SpawnRequest, Stdio, TerminalSize,
};
pub use progress::Progress;
pub use stream::{Copied, Input, Output};

/// What a backend supports in general. What is in force for one box is in its [`IsolationLabel`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent features of the backend"
)]
pub struct Capabilities {
    pub pty: bool,
    pub managed_processes: bool,
    pub files: bool,
    pub network: bool,
    pub host_mounts: bool,
    /// Whether [`Sandbox::mount`] can add mounts to a running box.
    pub live_mounts: bool,
    /// Whether boxes can outlive the daemon and be adopted by the next one.
    pub adoption: bool,
    pub mechanisms: Vec<Mechanism>,
}

#[derive(Clone, Debug)]
pub struct Probe {
    pub findings: Vec<Finding>,
}

/// The result of one check.
#[derive(Clone, Debug)]
pub struct Finding {
    pub name: &'static str,
    pub mechanism: Option<Mechanism>,
    pub outcome: Outcome,
    /// Why the mechanism matters, for the output of `boxwood doctor`.
    pub matters: &'static str,
}

#[derive(Clone, Debug)]
pub enum Outcome {
    Works {
        detail: String,
    },
    /// Missing, but boxes start without it (and their label lists it).
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

impl Outcome {
    pub fn works(detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Self::Works { detail }
    }

    pub fn missing(why: impl Into<String>, fix: impl Into<String>) -> Self {
        let (why, fix) = (why.into(), fix.into());
        Self::Missing { why, fix }
    }

    pub fn fatal(why: impl Into<String>, fix: impl Into<String>) -> Self {
        let (why, fix) = (why.into(), fix.into());
        Self::Fatal { why, fix }
    }
}

/// Every method is required. A default would let a new backend leak sandboxes and still compile; a backend
/// declares what it does not support in [`Capabilities`].
pub trait Backend: Send + Sync {
    fn name(&self) -> &'static str;
    fn capabilities(&self) -> Capabilities;
    /// Checks every mechanism by using it. Slow; callers cache the result.
    fn probe(&self) -> BoxFuture<'_, Result<Probe, ProbeError>>;
    /// Starts a box. If it fails or the future is dropped, nothing of the box is left. Reports to
    /// `progress` if an image has to be pulled. Calls `recorder` before anything exists that could outlive
    /// the daemon; an error of `recorder` fails the start.
    fn start<'a>(
        &'a self,
        spec: &'a AdmittedSpec,
        progress: &'a Progress,
        recorder: &'a StartRecorder,
    ) -> BoxFuture<'a, Result<Arc<dyn Sandbox>, StartError>>;
    /// The boxes of an earlier daemon of this instance that may still be running, found without a record.
    /// Called once, before the first start.
    fn left_running(&self) -> BoxFuture<'_, Vec<BoxHandle>>;
    /// Adopts a box of an earlier daemon of this instance. On error the box is unchanged, and
    /// [`Backend::finish_adoption`] removes it unless it is adopted before.
    fn adopt<'a>(&'a self, handle: &'a BoxHandle) -> BoxFuture<'a, Result<Adopted, AdoptError>>;
    /// Ends adoption: removes everything that earlier daemons of this instance left and that was not adopted.
    /// Does not touch other instances that may still be running.
    fn finish_adoption(&self) -> BoxFuture<'_, ()>;
    /// The images that boxes can start from.
    fn images(&self) -> &dyn Images;
    /// Releases everything the backend holds, such as helper processes and pools. Boxes have been stopped or
    /// detached before.
    fn shutdown(&self) -> BoxFuture<'_, ()>;
}

/// One running box.
pub trait Sandbox: Send + Sync {
    /// The backend's name for the box, such as the container name.
    fn id(&self) -> &str;
    fn label(&self) -> &IsolationLabel;
    /// Starts a program. A program that does not exist is a process that exits 127 (126 when it
    /// cannot be executed), with a line on its stderr.
    fn spawn(&self, request: SpawnRequest) -> BoxFuture<'_, Result<Process, SpawnError>>;
    /// Runs one file operation inside the box with the privileges of its commands.
    fn file(&self, call: FileCall) -> BoxFuture<'_, Result<FileAnswer, FileError>>;
    /// Adds a mount to the running box, visible to all its processes, on top of an existing mount at the
    /// same path. On error the box is unchanged, except that parent directories may have been created.
    /// Continues if the future is dropped. Returns [`MountError::Unsupported`] without `live_mounts` in
    /// [`Capabilities`].
    fn mount<'a>(&'a self, mount: &'a AdmittedMount) -> BoxFuture<'a, Result<(), MountError>>;
    fn is_alive(&self) -> bool;
    /// Resolves when the box is dead, for whatever reason.
    fn gone(&self) -> BoxFuture<'_, ()>;
    /// Stores the record that the next daemon receives as [`Adopted::record`], replacing the previous one. A
    /// box without a record is not adopted. Does nothing if the backend does not support adoption.
    fn remember<'a>(&'a self, record: &'a [u8]) -> BoxFuture<'a, Result<(), ControlError>>;
    /// Leaves the box to the next daemon: from now on dropping handles has no effect inside the box. Does
    /// nothing if the backend does not support adoption; such a box has to be stopped.
    fn detach(&self);
    /// Pauses all programs of the box with the cgroup freezer. `Ok(false)` if that is not supported.
    /// Idempotent. Init keeps running and serves requests, but the box must be thawed before a request
    /// involves a program.
    fn freeze(&self) -> BoxFuture<'_, Result<bool, ControlError>>;
    /// Undoes a freeze. Idempotent.
    fn thaw(&self) -> BoxFuture<'_, Result<(), ControlError>>;
    /// Kills all programs in the box, including background processes. The box keeps running. Works on a
    /// frozen box.
    fn kill_all(&self) -> BoxFuture<'_, Result<(), ControlError>>;
    /// Kills everything in the box and removes all its resources. Idempotent. Works on a frozen box.
    fn stop(&self) -> BoxFuture<'_, Result<(), StopError>>;
}
