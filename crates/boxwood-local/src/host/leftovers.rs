//! Removes what earlier daemons of this instance left behind, after adoption.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use boxwood_sys::procfs;
use rustix::process::{Signal, pidfd_send_signal};

use crate::adopt::peer_of;
use crate::adopt::recovery_socket;
use crate::host::LocalHost;
use crate::lock;
use crate::process::async_fd::is_readable;
use crate::start::bootstrap::BootstrapDir;

/// How long a killed init may take to exit.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

impl LocalHost {
    /// Called when a backend has finished adoption. Once all backends have, boxes that were not adopted are
    /// killed and their resources removed. Idempotent.
    pub async fn finish_adoption(self: &Arc<Self>, backend: &str) {
        let all = {
            let mut finished = lock(&self.inherited.finished);
            finished.insert(backend.to_owned()) && finished.len() == self.members()
        };
        if !all {
            return;
        }
        let host = Arc::clone(self);
        let work = self.active_work.enter();
        let finished = tokio::task::spawn_blocking(move || host.remove_leftovers()).await;
        drop(work);
        if let Err(error) = finished {
            tracing::error!(%error, "failed to remove leftovers of earlier daemons");
        }
    }

    fn remove_leftovers(&self) {
        let is_wanted = |name: &str| self.inherited.is_wanted(name);
        for socket in recovery_socket::all(&self.recovery_dir) {
            if !recovery_socket::name_of(&socket).is_some_and(is_wanted) {
                kill(&socket);
                recovery_socket::remove(&socket);
            }
        }
        self.cgroups.remove_leftovers(is_wanted);
        self.outbound.remove_leftovers(is_wanted);
        BootstrapDir::remove_leftovers(self);
        self.mapping.release_reserved();
    }
}

/// Kills the init that listens at an abandoned recovery socket, if there is one.
fn kill(socket: &Path) {
    let Ok(socket) = recovery_socket::connect_to(socket) else {
        return;
    };
    let Ok((pid, pidfd)) = peer_of(&socket) else {
        return;
    };
    // The socket may have been bound by another process: kill only the init of a box.
    if !procfs::is_first_of_namespace(pid).unwrap_or(false) {
        return;
    }
    let _ = pidfd_send_signal(&pidfd, Signal::KILL);
    if !is_readable(&pidfd, KILL_TIMEOUT) {
        tracing::warn!(
            pid,
            "the init of an abandoned box did not exit after SIGKILL"
        );
    }
}
