//! How a daemon begins: alone, or after another.
//!
//! Comes in: a configuration, and what a service manager gave. Goes out: the lock on the state
//! directory and the sockets to serve on. All of it happens before there is a runtime, because the
//! process that makes boxes is forked before there is one, and only the holder of the lock makes any.

use std::sync::Arc;

use crate::agent::Home;
use crate::config::{Config, ServiceManager};
use crate::places::{PlaceError, StateLock, private_dir};
use crate::serve::{ServeError, rules};
use crate::sockets::{Chosen, Socket, choose};
use crate::systemd::Notify;
use crate::takeover::{self, Asked};
use crate::wiring;

/// What a daemon needs before it makes its first box.
pub struct Start {
    pub(crate) lock: Arc<StateLock>,
    pub(crate) sockets: Chosen,
    pub(crate) notify: Notify,
    followed: Option<u32>,
}

/// Nobody else is this daemon while one of these lives. Whoever makes boxes keeps one for longer than
/// anything that knows of boxes.
pub struct Claim {
    _lock: Arc<StateLock>,
}

impl Start {
    /// On a state directory that nobody uses.
    pub fn alone(config: &Config, manager: ServiceManager) -> Result<Self, ServeError> {
        let lock = StateLock::take(&config.state_dir)?;
        Self::with_lock(config, lock, manager)
    }

    /// In the place of the daemon that uses the state directory. Alone where there is none.
    pub fn following(config: &Config, manager: ServiceManager) -> Result<Self, ServeError> {
        // What would end this daemon later must not end the other one now.
        Home::prepare(config, &rules(config)?)?;
        wiring::check(config)?;
        let mut offer = match takeover::ask(&config.state_dir)? {
            Asked::Nobody(lock) => {
                tracing::info!(
                    state_dir = %config.state_dir.display(),
                    "there is no daemon to take over from; starting as always"
                );
                return Self::with_lock(config, lock, manager);
            }
            Asked::Offered(offer) => offer,
        };
        let notify = Notify::new(manager.notify_socket.as_deref());
        let mut offered = activated(manager)?;
        offered.append(&mut offer.sockets);
        make_run_dir(config)?;
        let sockets = choose(config, offered)?;
        notify.status("waiting for the daemon before");
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

    /// The pid of the daemon that this one followed.
    pub fn followed(&self) -> Option<u32> {
        self.followed
    }

    pub fn claim(&self) -> Claim {
        Claim {
            _lock: Arc::clone(&self.lock),
        }
    }
}

fn make_run_dir(config: &Config) -> Result<(), PlaceError> {
    private_dir(&config.run_dir).map_err(|source| PlaceError::Create {
        path: config.run_dir.clone(),
        source,
    })
}

fn activated(manager: ServiceManager) -> Result<Vec<Socket>, ServeError> {
    let sockets = manager.sockets.into_iter().map(Socket::activated);
    Ok(sockets.collect::<Result<_, _>>()?)
}
