//! Acquires the state lock and the listening sockets, alone or by taking over from a running daemon.
//!
//! Runs before the Tokio runtime exists: the process that creates boxes must be forked from a
//! single-threaded process, and only the holder of the lock may create boxes.

use std::sync::Arc;

use crate::agent::AgentLocation;
use crate::config::{Config, ServiceManager};
use crate::listen::sockets::{Chosen, Socket, choose};
use crate::serve::systemd::Notify;
use crate::serve::takeover::{self, Takeover};
use crate::serve::{ServeError, rules};
use crate::state_dir::{StateDirError, StateLock, private_dir};
use crate::wiring;

/// What a daemon needs before it creates its first box.
pub struct Start {
    pub(crate) lock: Arc<StateLock>,
    pub(crate) sockets: Chosen,
    pub(crate) notify: Notify,
    /// The pid of the previous daemon, if this one took over from it.
    pub(crate) followed: Option<u32>,
}

/// Keeps the state directory locked. The backend holds one until its last box is closed.
pub struct Claim {
    _lock: Arc<StateLock>,
}

impl Start {
    /// Fails if another daemon uses the state directory.
    pub fn alone(config: &Config, manager: ServiceManager) -> Result<Self, ServeError> {
        let lock = StateLock::take(&config.state_dir)?;
        Self::with_lock(config, lock, manager)
    }

    /// Takes over from the daemon that uses the state directory; starts alone if there is none.
    pub fn following(config: &Config, manager: ServiceManager) -> Result<Self, ServeError> {
        // Check everything that could make this daemon fail before the running one is stopped.
        AgentLocation::prepare(config, &rules(config)?)?;
        wiring::check(config)?;
        let mut offer = match takeover::request(&config.state_dir)? {
            Takeover::NotRunning(lock) => {
                tracing::info!(
                    state_dir = %config.state_dir.display(),
                    "no running daemon to take over from; starting normally"
                );
                return Self::with_lock(config, lock, manager);
            }
            Takeover::Offered(offer) => offer,
        };
        let notify = Notify::new(manager.notify_socket.as_deref());
        let mut offered = activated(manager)?;
        offered.append(&mut offer.sockets);
        make_run_dir(config)?;
        let sockets = choose(config, offered)?;
        notify.status("waiting for the previous daemon to exit");
        tracing::info!(pid = offer.pid, "taking over from a running daemon");
        let lock = offer.accept()?;
        Ok(Self {
            lock: Arc::new(lock),
            sockets,
            notify,
            followed: Some(offer.pid),
        })
    }

    pub(crate) fn with_lock(
        config: &Config,
        lock: StateLock,
        manager: ServiceManager,
    ) -> Result<Self, ServeError> {
        let notify = Notify::new(manager.notify_socket.as_deref());
        make_run_dir(config)?;
        Ok(Self {
            lock: Arc::new(lock),
            sockets: choose(config, activated(manager)?)?,
            notify,
            followed: None,
        })
    }

    pub fn claim(&self) -> Claim {
        Claim {
            _lock: Arc::clone(&self.lock),
        }
    }
}

fn make_run_dir(config: &Config) -> Result<(), StateDirError> {
    private_dir(&config.run_dir).map_err(|source| StateDirError::Create {
        path: config.run_dir.clone(),
        source,
    })
}

fn activated(manager: ServiceManager) -> Result<Vec<Socket>, ServeError> {
    let sockets = manager.sockets.into_iter().map(Socket::activated);
    Ok(sockets.collect::<Result<_, _>>()?)
}
