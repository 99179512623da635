//! Boxes that outlive the daemon that created them.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{BoxFuture, Process, Sandbox};

/// Identifies a box that a later daemon can adopt.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BoxHandle {
    pub backend: String,
    /// The value of [`Sandbox::id`].
    pub name: String,
    /// The recovery socket, on which the box's init listens.
    pub socket: PathBuf,
}

pub struct Adopted {
    pub sandbox: Arc<dyn Sandbox>,
    /// The last record passed to [`Sandbox::remember`].
    pub record: Vec<u8>,
    /// Every program that was started with a [`crate::Keep`] and not released, running or exited.
    pub processes: Vec<KeptProcess>,
}

pub struct KeptProcess {
    pub note: Vec<u8>,
    pub files: Vec<std::os::fd::OwnedFd>,
    pub process: Process,
}

type Record = dyn Fn(BoxHandle) -> BoxFuture<'static, io::Result<()>> + Send + Sync;

/// Persists the handle of a box before the box exists. Cheap to clone.
#[derive(Clone, Default)]
pub struct StartRecorder(Option<Arc<Record>>);

impl StartRecorder {
    /// Records nothing.
    pub fn none() -> Self {
        Self(None)
    }

    pub fn new(
        record: impl Fn(BoxHandle) -> BoxFuture<'static, io::Result<()>> + Send + Sync + 'static,
    ) -> Self {
        Self(Some(Arc::new(record)))
    }

    /// Called right before the step after which the box may outlive this process.
    pub async fn record(&self, handle: BoxHandle) -> io::Result<()> {
        match &self.0 {
            Some(record) => record(handle).await,
            None => Ok(()),
        }
    }
}
