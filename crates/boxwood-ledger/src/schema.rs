//! The tables and their migrations.
//!
//! Each step migrates from one `user_version` to the next, in a transaction that also sets it. Steps are never changed
//! or removed, so that a ledger of any earlier version can be migrated.

use rusqlite::{Connection, TransactionBehavior};

/// In the header of the file, to recognise databases of other programs.
const APPLICATION_ID: i64 = 0x4258_5744;

const STEPS: &[&str] = &[
    // 1: boxes, and the next incarnation. `spec` and `life` are no longer used.
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
    // 2: ended sessions.
    "CREATE TABLE ended (
        number INTEGER PRIMARY KEY,
        session TEXT NOT NULL,
        incarnation INTEGER NOT NULL,
        why TEXT NOT NULL,
        at_ms INTEGER NOT NULL
    ) STRICT;",
];

/// Prepared when the ledger is opened, to detect missing columns.
const QUERIES: [&str; 3] = [
    "SELECT incarnation, session, backend, name, socket, spec, life, boot, state, created_ms FROM boxes",
    "SELECT number, session, incarnation, why, at_ms FROM ended",
    "SELECT name, value FROM meta",
];

pub(crate) enum DatabaseState {
    Empty,
    Ready,
    /// Unusable, and why.
    Foreign(String),
}

/// Changes nothing, because the database may belong to another program.
pub(crate) fn inspect(connection: &Connection) -> rusqlite::Result<DatabaseState> {
    let newest = newest();
    let version = number(connection, "PRAGMA user_version")?;
    let tables = number(connection, "SELECT count(*) FROM sqlite_schema")?;
    if version == 0 && tables == 0 {
        return Ok(DatabaseState::Empty);
    }
    let application = number(connection, "PRAGMA application_id")?;
    if application != APPLICATION_ID || version < 1 {
        return Ok(DatabaseState::Foreign("it is not a ledger".to_owned()));
    }
    if version > newest {
        return Ok(DatabaseState::Foreign(format!(
            "it was written by a newer version (schema {version}; this version supports {newest})"
        )));
    }
    Ok(integrity_error(connection)?.map_or(DatabaseState::Ready, DatabaseState::Foreign))
}

/// Migrates the tables. Returns the reason if they are not as expected.
pub(crate) fn prepare(connection: &mut Connection) -> rusqlite::Result<Option<String>> {
    let version = number(connection, "PRAGMA user_version")?;
    let applied = usize::try_from(version).unwrap_or(STEPS.len());
    if applied < STEPS.len() {
        migrate(connection, applied)?;
    }
    let error = QUERIES
        .iter()
        .find_map(|query| connection.prepare(query).err());
    Ok(error.map(|error| format!("its tables are not as expected: {error}")))
}

/// Checks every page, because the ledger is small.
fn integrity_error(connection: &Connection) -> rusqlite::Result<Option<String>> {
    let verdict: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    Ok((verdict != "ok").then_some(verdict))
}

fn newest() -> i64 {
    i64::try_from(STEPS.len()).unwrap_or(i64::MAX)
}

fn migrate(connection: &mut Connection, applied: usize) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    for step in &STEPS[applied..] {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", newest())?;
    transaction.commit()
}

fn number(connection: &Connection, query: &str) -> rusqlite::Result<i64> {
    connection.query_row(query, [], |row| row.get(0))
}

#[cfg(test)]
mod tests {
    use boxwood_api::SessionId;

    use super::*;
    use crate::store::Store;
    use crate::{Opened, State};

    /// The ledger of a version with only the first `steps`.
    fn as_of(connection: &Connection, steps: usize) {
        for step in &STEPS[..steps] {
            connection.execute_batch(step).expect("a step");
        }
        let version = i64::try_from(steps).expect("a small number");
        for (name, value) in [
            ("application_id", APPLICATION_ID),
            ("user_version", version),
        ] {
            let set = connection.pragma_update(None, name, value);
            set.expect("set");
        }
    }

    #[test]
    fn a_ledger_of_an_earlier_version_is_migrated_with_its_boxes() {
        for steps in 1..STEPS.len() {
            let directory = tempfile::tempdir().expect("a directory");
            let path = directory.path().join("ledger.db");
            let connection = Connection::open(&path).expect("opened");
            as_of(&connection, steps);
            let filled = connection.execute_batch(
                "INSERT INTO boxes VALUES
                     (41, 's', 'native', 'b1', x'2f73', '{}', 'life', 'boot', 'ready', 5000);
                 INSERT INTO meta VALUES ('next_incarnation', 77);",
            );
            filled.expect("filled");
            drop(connection);

            let (mut store, contents) = Store::open(&path).expect("opened");
            let opened = contents.opened;
            assert!(matches!(opened, Opened::Known), "{opened:?}");
            assert_eq!(contents.next_incarnation, 77);
            let rows = store.rows().expect("rows");
            assert_eq!(rows.len(), 1);
            assert_eq!((rows[0].incarnation, rows[0].state), (41, State::Ready));
            assert_eq!(rows[0].session, SessionId::new("s").expect("a legal id"));
            drop(store);
            let reopened = Connection::open(&path).expect("opened");
            let version = number(&reopened, "PRAGMA user_version").expect("a version");
            assert_eq!(usize::try_from(version).expect("small"), STEPS.len());
        }
    }
}
