//! The database, used by one thread.
//!
//! A new box must be written before it starts. Changes of existing boxes are deferred if they cannot be written, and
//! written before later ones.

mod opening;

use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;

use boxwood_api::{SessionId, with_causes};
use jiff::Timestamp;
use rusqlite::{Connection, Transaction, TransactionBehavior, params};

use crate::error::LedgerError;
use crate::{End, Row, State};

pub(crate) use opening::Contents;

/// Ended sessions that are kept, in memory and on disk. Older ones are dropped.
pub(crate) const MAX_ENDED: usize = 4096;

const NEXT_INCARNATION: &str = "next_incarnation";

/// A change of an existing box.
#[derive(Clone, Debug)]
pub(crate) enum Note {
    /// The first incarnation of a new ledger.
    Begun(u64),
    /// Running, and adopted by this daemon.
    Restored(Row),
    Ready(u64),
    Ended(End),
    /// Never reported to a client.
    Forgotten(u64),
}

impl Note {
    fn incarnation(&self) -> u64 {
        match self {
            Self::Restored(row) => row.incarnation,
            Self::Ended(end) => end.incarnation,
            Self::Begun(incarnation) | Self::Ready(incarnation) | Self::Forgotten(incarnation) => {
                *incarnation
            }
        }
    }
}

pub(crate) struct Store {
    path: PathBuf,
    connection: Connection,
    /// In memory, because the disk is full.
    is_in_memory: bool,
    /// In order. A few for each box at most: no box is added while the disk is full.
    deferred: Vec<Note>,
}

impl Store {
    /// Adds a box before it starts.
    pub(crate) fn insert(&mut self, row: &Row) -> Result<(), LedgerError> {
        self.catch_up()?;
        self.write("adding a box", |transaction| put(transaction, row))
    }

    /// Writes the change now or later.
    pub(crate) fn note(&mut self, note: Note) {
        let was_behind = self.is_behind();
        let incarnation = note.incarnation();
        if matches!(note, Note::Ended(_) | Note::Forgotten(_)) {
            // Earlier changes of the box are obsolete.
            self.deferred.retain(|earlier| {
                matches!(earlier, Note::Begun(_)) || earlier.incarnation() != incarnation
            });
        }
        self.deferred.push(note);
        if let Err(error) = self.write_deferred()
            && !was_behind
        {
            tracing::warn!(error = %with_causes(&error), "failed to write changes to the ledger; retrying");
        }
    }

    pub(crate) fn is_behind(&self) -> bool {
        self.is_in_memory || !self.deferred.is_empty()
    }

    /// Writes all deferred changes.
    pub(crate) fn catch_up(&mut self) -> Result<(), LedgerError> {
        let was_behind = self.is_behind();
        self.write_deferred()?;
        self.move_to_disk()?;
        if was_behind {
            tracing::info!("all deferred changes were written to the ledger");
        }
        Ok(())
    }

    fn write_deferred(&mut self) -> Result<(), LedgerError> {
        if self.deferred.is_empty() {
            return Ok(());
        }
        let notes = std::mem::take(&mut self.deferred);
        let written = self.write("writing changes of boxes", |transaction| {
            notes.iter().try_for_each(|note| apply(transaction, note))
        });
        if written.is_err() {
            self.deferred = notes;
        }
        written
    }

    pub(crate) fn rows(&mut self) -> Result<Vec<Row>, LedgerError> {
        let (rows, unreadable) = self
            .read_rows()
            .map_err(|source| LedgerError::new(&self.path, "reading its boxes", source))?;
        for incarnation in unreadable {
            tracing::warn!(incarnation, "dropping an unreadable row of the ledger");
            self.note(Note::Forgotten(incarnation));
        }
        Ok(rows)
    }

    fn read_rows(&self) -> rusqlite::Result<(Vec<Row>, Vec<u64>)> {
        let mut statement = self.connection.prepare_cached(
            "SELECT incarnation, session, backend, name, socket, boot, state, created_ms
             FROM boxes ORDER BY incarnation",
        )?;
        let (mut rows, mut unreadable) = (Vec::new(), Vec::new());
        let results = statement.query_map([], |row| {
            let incarnation: u64 = row.get(0)?;
            Ok(read_row(incarnation, row).ok_or(incarnation))
        })?;
        for row in results {
            match row? {
                Ok(row) => rows.push(row),
                Err(incarnation) => unreadable.push(incarnation),
            }
        }
        Ok((rows, unreadable))
    }

    fn write(
        &mut self,
        step: &'static str,
        work: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<()>,
    ) -> Result<(), LedgerError> {
        let written = self
            .connection
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .and_then(|transaction| {
                work(&transaction)?;
                transaction.commit()
            });
        written.map_err(|source| LedgerError::new(&self.path, step, source))
    }
}

/// `None` if a value is not valid.
fn read_row(incarnation: u64, row: &rusqlite::Row<'_>) -> Option<Row> {
    let text = |index| row.get::<_, String>(index).ok();
    let socket: Vec<u8> = row.get(4).ok()?;
    Some(Row {
        incarnation,
        session: SessionId::new(&text(1)?).ok()?,
        backend: text(2)?,
        name: text(3)?,
        socket: PathBuf::from(std::ffi::OsString::from_vec(socket)),
        boot: text(5)?,
        state: match text(6)?.as_str() {
            "starting" => State::Starting,
            "ready" => State::Ready,
            _ => return None,
        },
        created_at: Timestamp::from_millisecond(row.get(7).ok()?).ok()?,
    })
}

fn apply(transaction: &Transaction<'_>, note: &Note) -> rusqlite::Result<()> {
    match note {
        Note::Begun(incarnation) => set_next_incarnation(transaction, *incarnation),
        Note::Restored(row) => put(transaction, row),
        Note::Ready(incarnation) => change(
            transaction,
            "UPDATE boxes SET state = 'ready' WHERE incarnation = ?1",
            params![incarnation],
        ),
        Note::Ended(end) => {
            remove(transaction, end.incarnation)?;
            change(
                transaction,
                "INSERT INTO ended (session, incarnation, why, at_ms) VALUES (?1, ?2, ?3, ?4)",
                params![
                    end.session.as_str(),
                    end.incarnation,
                    end.why,
                    end.at.as_millisecond()
                ],
            )?;
            let newest = transaction.last_insert_rowid();
            let max_ended = i64::try_from(MAX_ENDED).unwrap_or(i64::MAX);
            change(
                transaction,
                "DELETE FROM ended WHERE number <= ?1",
                params![newest.saturating_sub(max_ended)],
            )
        }
        Note::Forgotten(incarnation) => remove(transaction, *incarnation),
    }
}

fn put(transaction: &Transaction<'_>, row: &Row) -> rusqlite::Result<()> {
    let state = match row.state {
        State::Starting => "starting",
        State::Ready => "ready",
    };
    change(
        transaction,
        "INSERT OR REPLACE INTO boxes
         (incarnation, session, backend, name, socket, spec, life, boot, state, created_ms)
         VALUES (?1, ?2, ?3, ?4, ?5, '', '', ?6, ?7, ?8)",
        params![
            row.incarnation,
            row.session.as_str(),
            row.backend,
            row.name,
            row.socket.as_os_str().as_bytes(),
            row.boot,
            state,
            row.created_at.as_millisecond(),
        ],
    )?;
    set_next_incarnation(transaction, row.incarnation.saturating_add(1))
}

fn set_next_incarnation(transaction: &Transaction<'_>, incarnation: u64) -> rusqlite::Result<()> {
    change(
        transaction,
        "INSERT INTO meta (name, value) VALUES (?1, ?2)
         ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value)",
        params![NEXT_INCARNATION, incarnation],
    )
}

fn remove(transaction: &Transaction<'_>, incarnation: u64) -> rusqlite::Result<()> {
    change(
        transaction,
        "DELETE FROM boxes WHERE incarnation = ?1",
        params![incarnation],
    )
}

fn change(
    transaction: &Transaction<'_>,
    statement: &str,
    values: impl rusqlite::Params,
) -> rusqlite::Result<()> {
    transaction.prepare_cached(statement)?.execute(values)?;
    Ok(())
}
