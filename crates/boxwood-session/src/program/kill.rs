//! Kills a program and its children.

use std::sync::Arc;
use std::time::Duration;

use boxwood_api::with_causes;
use boxwood_backend::{ControlError, ProcessControl, Scope};
use tokio::runtime::Handle;

use super::detach::DetachSignal;

pub(crate) const SIGHUP: i32 = 1;
pub(crate) const SIGINT: i32 = 2;
pub(crate) const SIGQUIT: i32 = 3;
pub(crate) const SIGKILL: i32 = 9;
pub(crate) const SIGTERM: i32 = 15;

/// How long a killed program may take to exit. If it takes longer, its box is broken and is removed.
const KILL_WAIT: Duration = Duration::from_secs(10);

/// Signals that end a program are sent to its children too. The others have a meaning for the program
/// only and would kill the children.
pub(crate) fn scope_of(signal: i32) -> Scope {
    match signal {
        SIGHUP | SIGINT | SIGQUIT | SIGKILL | SIGTERM => Scope::Tree,
        _ => Scope::Process,
    }
}

pub(crate) enum Killed {
    Dead,
    /// The kill failed or had no effect: the box has to be removed.
    Alive,
}

/// Kills the tree and waits for the program's end.
pub(crate) async fn kill_tree(control: &dyn ProcessControl) -> Killed {
    let killing = async {
        match control.signal(SIGKILL, Scope::Tree).await {
            Ok(()) | Err(ControlError::Ended | ControlError::Gone) => {
                control.wait().await;
                Ok(())
            }
            Err(error) => Err(error),
        }
    };
    match tokio::time::timeout(KILL_WAIT, killing).await {
        Ok(Ok(())) => Killed::Dead,
        Ok(Err(error)) => {
            tracing::error!(error = %with_causes(&error), "failed to kill a program and its children");
            Killed::Alive
        }
        Err(_) => {
            let seconds = KILL_WAIT.as_secs();
            tracing::error!("a program did not exit within {seconds} s after SIGKILL");
            Killed::Alive
        }
    }
}

/// Kills the program and its children when dropped, unless disarmed or the box is detached.
pub(crate) struct KillOnDrop {
    control: Option<Arc<dyn ProcessControl>>,
    detach: DetachSignal,
}

impl KillOnDrop {
    pub(crate) fn new(control: Arc<dyn ProcessControl>, detach: DetachSignal) -> Self {
        Self {
            control: Some(control),
            detach,
        }
    }

    pub(crate) fn disarm(mut self) {
        self.control = None;
    }
}

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        if let Some(control) = self.control.take()
            && !self.detach.has_begun()
        {
            kill_later(control);
        }
    }
}

/// For callers that cannot wait. Without a runtime the daemon is exiting, and its boxes are removed.
pub(crate) fn kill_later(control: Arc<dyn ProcessControl>) {
    if let Ok(runtime) = Handle::try_current() {
        runtime.spawn(async move {
            kill_tree(&*control).await;
        });
    }
}
