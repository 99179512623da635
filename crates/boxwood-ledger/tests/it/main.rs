//! Normal use, and reopening after a crash.

mod damage;
mod full_disk;
mod model;
mod plain;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use boxwood_api::SessionId;
use boxwood_ledger::{Ledger, Opened, Row, State};
use jiff::Timestamp;

fn id(text: &str) -> SessionId {
    SessionId::new(text).expect("a legal session id")
}

fn row(incarnation: u64, session: &str) -> Row {
    Row {
        incarnation,
        session: id(session),
        backend: "native".to_owned(),
        name: format!("box-{incarnation}"),
        socket: PathBuf::from(format!("/run/boxes/{incarnation}.sock")),
        boot: "an-earlier-boot".to_owned(),
        state: State::Starting,
        created_at: Timestamp::from_second(1_800_000_000).expect("a time"),
    }
}

async fn open(path: &Path) -> (Ledger, Opened) {
    Ledger::open(path).await.expect("the ledger opens")
}

async fn known(path: &Path) -> Ledger {
    let (ledger, opened) = open(path).await;
    assert!(matches!(opened, Opened::Known), "{opened:?}");
    ledger
}

async fn incarnations(ledger: &Ledger) -> Vec<u64> {
    let rows = ledger.rows().await.expect("the rows can be read");
    rows.iter().map(|row| row.incarnation).collect()
}

/// What a killed daemon leaves: the files as they are, with nothing closed.
fn as_left_by_a_killed_daemon(path: &Path, directory: &Path) -> PathBuf {
    static COPIES: AtomicU32 = AtomicU32::new(0);
    let number = COPIES.fetch_add(1, Ordering::Relaxed);
    let copy = directory.join(format!("copy-{number}.db"));
    for suffix in ["", "-wal"] {
        let from = PathBuf::from(format!("{}{suffix}", path.display()));
        let to = PathBuf::from(format!("{}{suffix}", copy.display()));
        match std::fs::copy(&from, &to) {
            Ok(_) => {}
            // Everything was moved into the database.
            Err(_) if !suffix.is_empty() => {}
            Err(error) => panic!("{}: {error}", from.display()),
        }
    }
    copy
}
