//! Opens the ledger: missing, valid, damaged, or on a full disk.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use boxwood_api::SessionId;
use jiff::Timestamp;
use rusqlite::{Connection, OpenFlags};

use super::{NEXT_INCARNATION, Note, Store};
use crate::error::{LedgerError, OpenError, directory_of, is_busy, is_damage, is_full};
use crate::schema::{self, DatabaseState};
use crate::{End, Opened};

/// The previous daemon may still be exiting.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Suffixes of the files of a database.
const SUFFIXES: [&str; 3] = ["", "-wal", "-shm"];

/// What an opened ledger contains, without its boxes.
pub(crate) struct Contents {
    pub(crate) opened: Opened,
    /// Oldest first.
    pub(crate) ends: Vec<End>,
    pub(crate) next_incarnation: u64,
}

enum Attempt {
    Open(Connection, Opened),
    /// Damaged, or not a ledger.
    Unusable(String),
    Full,
}

impl Store {
    pub(crate) fn open(path: &Path) -> Result<(Self, Contents), OpenError> {
        let sqlite = |source| OpenError::Sqlite {
            path: path.to_owned(),
            source,
        };
        let why = match attempt(path)? {
            Attempt::Open(connection, opened) => {
                return start(path, connection, opened).map_err(sqlite);
            }
            Attempt::Full => return Self::open_in_memory(path).map_err(sqlite),
            Attempt::Unusable(why) => why,
        };
        let moved_to = move_aside(path).map_err(|source| OpenError::MoveAside {
            path: path.to_owned(),
            source,
        })?;
        let started = match attempt(path)? {
            Attempt::Open(connection, Opened::Fresh) => {
                start(path, connection, Opened::Damaged { moved_to, why })
            }
            // Another process created it meanwhile, or the disk is full.
            Attempt::Open(..) | Attempt::Unusable(_) | Attempt::Full => Self::open_in_memory(path),
        };
        started.map_err(sqlite)
    }

    fn open_in_memory(path: &Path) -> rusqlite::Result<(Store, Contents)> {
        let mut connection = Connection::open_in_memory()?;
        schema::prepare(&mut connection)?;
        let why = LedgerError::Full {
            directory: directory_of(path),
        };
        let (mut store, contents) = start(path, connection, Opened::InMemory { why })?;
        store.is_in_memory = true;
        Ok((store, contents))
    }

    /// Moves the ledger from memory to disk if there is space again.
    pub(super) fn move_to_disk(&mut self) -> Result<(), LedgerError> {
        if !self.is_in_memory {
            return Ok(());
        }
        let error = |source| LedgerError::new(&self.path, "moving it from memory to disk", source);
        let draft = with_suffix(&self.path, ".new");
        // A leftover of a failed attempt.
        let _ = fs::remove_file(&draft);
        let text = draft.to_string_lossy();
        let written = self.connection.execute("VACUUM INTO ?1", [text.as_ref()]);
        if let Err(source) = written {
            let _ = fs::remove_file(&draft);
            return Err(error(source));
        }
        let renaming = |source: io::Error| {
            let code = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_IOERR);
            error(rusqlite::Error::SqliteFailure(
                code,
                Some(source.to_string()),
            ))
        };
        if is_nonempty(&self.path) {
            move_aside(&self.path).map_err(renaming)?;
        }
        fs::rename(&draft, &self.path).map_err(renaming)?;
        let connection = connect(&self.path).map_err(error)?;
        set_pragmas(&connection).map_err(error)?;
        self.connection = connection;
        self.is_in_memory = false;
        Ok(())
    }
}

fn attempt(path: &Path) -> Result<Attempt, OpenError> {
    let outcome = create_private(path)
        .and_then(|()| connect(path))
        .and_then(|mut connection| {
            let state = match schema::inspect(&connection)? {
                DatabaseState::Foreign(why) => DatabaseState::Foreign(why),
                state => {
                    set_pragmas(&connection)?;
                    schema::prepare(&mut connection)?.map_or(state, DatabaseState::Foreign)
                }
            };
            Ok((connection, state))
        });
    match outcome {
        Ok((connection, DatabaseState::Ready)) => Ok(Attempt::Open(connection, Opened::Known)),
        Ok((connection, DatabaseState::Empty)) => Ok(Attempt::Open(connection, Opened::Fresh)),
        Ok((_, DatabaseState::Foreign(why))) => Ok(Attempt::Unusable(why)),
        Err(error) if is_damage(&error) => Ok(Attempt::Unusable(error.to_string())),
        Err(error) if is_busy(&error) => Err(OpenError::InUse {
            path: path.to_owned(),
        }),
        Err(error) if is_full(path, &error) => Ok(Attempt::Full),
        Err(source) => Err(OpenError::Sqlite {
            path: path.to_owned(),
            source,
        }),
    }
}

/// The ledger contains paths of the host, so only the daemon's user may read it. Other errors are reported when it is
/// opened.
fn create_private(path: &Path) -> rusqlite::Result<()> {
    let created = fs::OpenOptions::new()
        .write(true)
        // An existing file is not opened: closing it would release the locks of this process.
        .create_new(true)
        .mode(0o600)
        .open(path);
    match created {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
            ) =>
        {
            Err(rusqlite::Error::SqliteFailure(
                rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_FULL),
                None,
            ))
        }
        Ok(_) | Err(_) => Ok(()),
    }
}

fn connect(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    // One daemon at a time. Without a shared memory file, a full disk cannot cause SIGBUS.
    connection.pragma_update(None, "locking_mode", "exclusive")?;
    Ok(connection)
}

fn set_pragmas(connection: &Connection) -> rusqlite::Result<()> {
    // A commit must survive a crash of the daemon, but not of the machine, which no box survives.
    connection.pragma_update(None, "journal_mode", "wal")?;
    connection.pragma_update(None, "synchronous", "normal")
}

fn start(
    path: &Path,
    connection: Connection,
    opened: Opened,
) -> rusqlite::Result<(Store, Contents)> {
    let written: Option<u64> = connection.query_row(
        "SELECT max(value) FROM (
             SELECT value FROM meta WHERE name = ?1
             UNION ALL SELECT max(incarnation) + 1 FROM boxes
             UNION ALL SELECT max(incarnation) + 1 FROM ended)",
        [NEXT_INCARNATION],
        |row| row.get(0),
    )?;
    let ends = read_ends(&connection)?;
    let mut store = Store {
        path: path.to_owned(),
        connection,
        is_in_memory: false,
        deferred: Vec::new(),
    };
    let next_incarnation = written.unwrap_or_else(|| {
        let first = first_incarnation();
        // Written at once: otherwise a restored box, whose number is smaller, would determine the next number.
        store.note(Note::Begun(first));
        first
    });
    let contents = Contents {
        opened,
        ends,
        next_incarnation,
    };
    Ok((store, contents))
}

/// The first number of a new ledger. Must not repeat numbers of a lost ledger, so it starts at the time in microseconds.
fn first_incarnation() -> u64 {
    u64::try_from(Timestamp::now().as_microsecond()).unwrap_or(1)
}

fn read_ends(connection: &Connection) -> rusqlite::Result<Vec<End>> {
    let mut statement =
        connection.prepare("SELECT session, incarnation, why, at_ms FROM ended ORDER BY number")?;
    let ends = statement.query_map([], |row| {
        let (session, at_ms): (String, i64) = (row.get(0)?, row.get(3)?);
        // Unreadable rows are skipped.
        let (Ok(session), Ok(at)) = (SessionId::new(&session), Timestamp::from_millisecond(at_ms))
        else {
            return Ok(None);
        };
        Ok(Some(End {
            session,
            incarnation: row.get(1)?,
            why: row.get(2)?,
            at,
        }))
    })?;
    ends.filter_map(Result::transpose).collect()
}

/// Renames the damaged files, so that the damage can be examined.
fn move_aside(path: &Path) -> io::Result<PathBuf> {
    let at = Timestamp::now().strftime("%Y%m%dT%H%M%S.%6fZ");
    let aside = with_suffix(path, &format!(".damaged-{at}"));
    for suffix in SUFFIXES {
        match fs::rename(with_suffix(path, suffix), with_suffix(&aside, suffix)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(aside)
}

fn is_nonempty(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.len() > 0)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    PathBuf::from(name)
}
