//! The tables, and how older ones become these.
//!
//! Each step leads from one `user_version` to the next, in a transaction that also sets it. Steps are
//! only ever added: a ledger of any earlier version is brought up to date when it is opened.

use rusqlite::{Connection, Transaction, TransactionBehavior};

/// In the file's header, so that another program's database is not taken for a ledger.
const APPLICATION_ID: i64 = 0x4258_5744;

const STEPS: &[&str] = &[
    // 1: the boxes, and the numbers that never go back.
    "CREATE TABLE boxes (
        incarnation INTEGER PRIMARY KEY,
        session TEXT NOT NULL,
        backend TEXT NOT NULL,
        name TEXT NOT NULL,
        socket BLOB NOT NULL,
        spec TEXT NOT NULL,
        life TEXT NOT NULL,
        boot TEXT NOT NULL,
        state TEXT NOT NULL CHECK (state IN ('starting', 'ready')),
        created_ms INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE meta (
        name TEXT PRIMARY KEY,
        value INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;",
    // 2: how sessions came to their ends.
    "CREATE TABLE ended (
        number INTEGER PRIMARY KEY,
        session TEXT NOT NULL,
        incarnation INTEGER NOT NULL,
        why TEXT NOT NULL,
        at_ms INTEGER NOT NULL
    ) STRICT;",
];

/// What is asked of the tables, so that one without a column shows when it is opened.
const ASKED: [&str; 3] = [
    "SELECT incarnation, session, backend, name, socket, spec, life, boot, state, created_ms FROM boxes",
    "SELECT number, session, incarnation, why, at_ms FROM ended",
    "SELECT name, value FROM meta",
];

pub(crate) enum Found {
    Empty,
    Ready,
    /// Not to be worked with, and why.
    Foreign(String),
}

/// Brings the tables up to date. An error may be the disk's.
pub(crate) fn prepare(connection: &mut Connection) -> rusqlite::Result<Found> {
    let newest = i64::try_from(STEPS.len()).unwrap_or(i64::MAX);
    let version = number(connection, "PRAGMA user_version")?;
    let tables = number(connection, "SELECT count(*) FROM sqlite_schema")?;
    if version == 0 && tables == 0 {
        migrate(connection, 0)?;
        return Ok(Found::Empty);
    }
    let application = number(connection, "PRAGMA application_id")?;
    if application != APPLICATION_ID || version < 1 {
        return Ok(Found::Foreign("it is no ledger".to_owned()));
    }
    if version > newest {
        return Ok(Found::Foreign(format!(
            "it was written by a newer version (schema {version}; this one knows {newest})"
        )));
    }
    if let Some(why) = unsound(connection)? {
        return Ok(Found::Foreign(why));
    }
    let done = usize::try_from(version).unwrap_or(STEPS.len());
    if done < STEPS.len() {
        migrate(connection, done)?;
    }
    for asked in ASKED {
        if let Err(error) = connection.prepare(asked) {
            return Ok(Found::Foreign(format!("its tables are others: {error}")));
        }
    }
    Ok(Found::Ready)
}

/// The ledger is small, so every page of it is looked at.
fn unsound(connection: &Connection) -> rusqlite::Result<Option<String>> {
    let verdict: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    Ok((verdict != "ok").then_some(verdict))
}

fn migrate(connection: &mut Connection, done: usize) -> rusqlite::Result<()> {
    let transaction = Transaction::new_unchecked(connection, TransactionBehavior::Immediate)?;
    for step in &STEPS[done..] {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", STEPS.len() as i64)?;
    transaction.commit()
}

fn number(connection: &Connection, query: &str) -> rusqlite::Result<i64> {
    connection.query_row(query, [], |row| row.get(0))
}

/// For the test of what an earlier version left: the first `steps` of them alone.
#[cfg(test)]
pub(crate) fn as_of(connection: &Connection, steps: usize) -> rusqlite::Result<()> {
    for step in &STEPS[..steps] {
        connection.execute_batch(step)?;
    }
    connection.pragma_update(None, "application_id", APPLICATION_ID)?;
    connection.pragma_update(
        None,
        "user_version",
        i64::try_from(steps).unwrap_or(i64::MAX),
    )
}
