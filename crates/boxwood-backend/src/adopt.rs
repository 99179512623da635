//! Boxes that outlive the daemon that made them.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::{BoxFuture, Process, Sandbox};

/// How a box is found again.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BoxHandle {
    /// The backend whose box it is.
    pub backend: String,
    /// As [`Sandbox::id`] tells it.
    pub name: String,
    /// Where its first process listens for the next daemon.
    pub socket: PathBuf,
}

/// A box that was taken over.
pub struct Adopted {
    pub sandbox: Arc<dyn Sandbox>,
    /// What was last given to [`Sandbox::remember`].
    pub record: Vec<u8>,
    /// Every program that was started with a [`crate::Keep`] and not let go of, running or ended.
    pub processes: Vec<KeptProcess>,
}

pub struct KeptProcess {
    pub note: Vec<u8>,
    pub files: Vec<std::os::fd::OwnedFd>,
    pub process: Process,
}

type Tell = dyn Fn(BoxHandle) -> BoxFuture<'static, io::Result<()>> + Send + Sync;

/// Whoever writes boxes down before they exist. Cheap to clone.
#[derive(Clone, Default)]
pub struct Witness(Option<Arc<Tell>>);

impl Witness {
    /// Nobody writes anything down.
    pub fn none() -> Self {
        Self(None)
    }

    pub fn new(
        tell: impl Fn(BoxHandle) -> BoxFuture<'static, io::Result<()>> + Send + Sync + 'static,
    ) -> Self {
        Self(Some(Arc::new(tell)))
    }

    /// To be called right before the step that lets the box outlive this process.
    pub async fn about_to_start(&self, handle: BoxHandle) -> io::Result<()> {
        match &self.0 {
            Some(tell) => tell(handle).await,
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let writes = if self.0.is_some() { "writes" } else { "none" };
        f.debug_tuple("Witness").field(&writes).finish()
    }
}
