//! A host on which daemons are started one after another.

use std::path::PathBuf;
use std::sync::Arc;

use boxwood_api::SessionInfo;
use boxwood_ledger::Ledger;
use boxwood_session::{Backends, Recovery, Sessions, Settings};
use boxwood_test_support::{FakeBackend, FakeHost};

use crate::{in_time, request};

/// One host and its state directory, used by several daemons in turn.
pub(crate) struct Machine {
    pub(crate) host: Arc<FakeHost>,
    pub(crate) state: tempfile::TempDir,
    pub(crate) path: PathBuf,
    lives: u32,
}

pub(crate) struct Daemon {
    pub(crate) backend: Arc<FakeBackend>,
    pub(crate) sessions: Sessions,
    pub(crate) ledger: Ledger,
}

impl Machine {
    pub(crate) fn new() -> Self {
        let state = tempfile::tempdir().expect("a directory");
        Self {
            host: FakeHost::new(),
            path: state.path().join("ledger.db"),
            state,
            lives: 0,
        }
    }

    pub(crate) async fn daemon(&mut self) -> (Daemon, Recovery) {
        let (ledger, _) = in_time(Ledger::open(&self.path)).await.expect("a ledger");
        let backend = self.host.backend();
        let backends = Backends::only(Arc::clone(&backend) as _);
        let recovering = Sessions::recover(backends, Settings::default(), ledger.clone());
        let (sessions, recovery) = in_time(recovering).await;
        let daemon = Daemon {
            backend,
            sessions,
            ledger,
        };
        (daemon, recovery)
    }

    /// Like `kill -9`. Tasks that hang keep the ledger of this process open, so the next daemon gets a copy of its
    /// files.
    pub(crate) fn kill(&mut self, daemon: Daemon) {
        self.host.crash();
        self.lives += 1;
        let next = self.state.path().join(format!("ledger-{}.db", self.lives));
        for suffix in ["", "-wal"] {
            let from = format!("{}{suffix}", self.path.display());
            let to = format!("{}{suffix}", next.display());
            if std::fs::exists(&from).expect("readable") {
                std::fs::copy(from, to).expect("copied");
            }
        }
        // Only after the copy: dropping closes the ledger, which a killed daemon does not do.
        drop(daemon);
        self.path = next;
    }

    pub(crate) async fn restart(&mut self, daemon: Daemon) -> (Daemon, Recovery) {
        self.kill(daemon);
        self.daemon().await
    }
}

impl Daemon {
    pub(crate) async fn made(&self, session: &str) -> SessionInfo {
        in_time(self.sessions.get_or_create(request(session, "").spec))
            .await
            .expect("a session")
    }

    pub(crate) async fn says(&self, session: &str, cmd: &str) -> String {
        let result = in_time(self.sessions.exec(request(session, cmd))).await;
        result.expect("it runs").stdout
    }

    /// Checks that listed sessions, ledger rows and running boxes are the same.
    pub(crate) async fn assert_all_agree(&self, host: &FakeHost) {
        let infos = self.sessions.list();
        let mut listed: Vec<_> = infos
            .iter()
            .map(|info| (info.incarnation, info.backend_session_id.clone()))
            .collect();
        listed.sort();
        let rows = self.ledger.rows().await.expect("rows");
        let written: Vec<_> = rows
            .into_iter()
            .map(|row| (row.incarnation, row.name))
            .collect();
        assert_eq!(
            written, listed,
            "ledger rows differ from the listed sessions"
        );
        let mut running: Vec<_> = host
            .boxes()
            .iter()
            .map(|found| found.id().to_owned())
            .collect();
        running.sort();
        let mut named: Vec<_> = listed.into_iter().map(|(_, name)| name).collect();
        named.sort();
        assert_eq!(
            running, named,
            "running boxes differ from the listed sessions"
        );
    }
}
