//! Signals to a program's whole tree, and the promise that nobody forgets to send them.

use std::sync::Arc;
use std::time::Duration;

use boxwood_backend::{ControlError, ProcessControl, Scope};
use tokio::runtime::Handle;

use crate::parting::Parting;

pub(crate) const SIGHUP: i32 = 1;
pub(crate) const SIGINT: i32 = 2;
pub(crate) const SIGQUIT: i32 = 3;
pub(crate) const SIGKILL: i32 = 9;
pub(crate) const SIGTERM: i32 = 15;

/// How long a killed program may take to be gone. Killing is quick; a box that needs longer is
/// broken and goes as a whole.
const KILL_WAIT: Duration = Duration::from_secs(10);

/// Signals that mean "end" are for the whole tree; the others mean something to one program only,
/// and would kill its children.
pub(crate) fn scope_of(signal: i32) -> Scope {
    match signal {
        SIGHUP | SIGINT | SIGQUIT | SIGKILL | SIGTERM => Scope::Tree,
        _ => Scope::Process,
    }
}

/// What became of a kill.
pub(crate) enum Killed {
    Dead,
    /// The tree could not be killed, or did not die: its box has to go.
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
            tracing::error!(%error, "a process tree could not be killed");
            Killed::Alive
        }
        Err(_) => {
            tracing::error!("a process tree is still there after it was killed");
            Killed::Alive
        }
    }
}

/// Kills the tree when dropped, unless it was let go: a caller that is gone leaves nothing running,
/// except when it is the daemon that goes and its boxes stay.
pub(crate) struct Leash {
    control: Option<Arc<dyn ProcessControl>>,
    parting: Parting,
}

impl Leash {
    pub(crate) fn new(control: Arc<dyn ProcessControl>, parting: Parting) -> Self {
        Self {
            control: Some(control),
            parting,
        }
    }

    pub(crate) fn let_go(mut self) {
        self.control = None;
    }
}

impl Drop for Leash {
    fn drop(&mut self) {
        if let Some(control) = self.control.take()
            && !self.parting.has_begun()
        {
            kill_later(control);
        }
    }
}

/// For places that cannot wait. Without a runtime the daemon is ending, and boxes end with it.
pub(crate) fn kill_later(control: Arc<dyn ProcessControl>) {
    if let Ok(runtime) = Handle::try_current() {
        runtime.spawn(async move {
            kill_tree(&*control).await;
        });
    }
}
