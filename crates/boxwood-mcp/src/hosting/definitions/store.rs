//! Server definitions on disk.
//!
//! A server has two files: the definition, and the values of its variables, which only the daemon's user can read.
//! The definition names a revision of the values. While the definition is being replaced, the values file holds
//! both revisions, so that a crash leaves a consistent pair.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use boxwood_api::{McpServerName, McpServerSpec};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::hosting::HostingError;

/// Longer files are not read.
const MAX_FILE_BYTES: u64 = 16 << 20;
/// No server name starts with a dot, so these names never clash.
const TEMPORARY: &str = ".new-";

/// A stored definition, with the values of its variables.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Stored {
    pub(crate) spec: McpServerSpec,
    pub(crate) created_at: Timestamp,
    pub(crate) updated_at: Timestamp,
}

/// The definitions that could be read, by name, and the errors of the others.
#[derive(Debug, Default)]
pub(crate) struct Listed {
    pub(crate) servers: Vec<Stored>,
    /// Servers whose definition could not be read. They may still be running.
    pub(crate) unread: Vec<McpServerName>,
    pub(crate) notices: Vec<String>,
}

impl Listed {
    /// Names of all stored servers, including unreadable ones.
    pub(crate) fn names(&self) -> impl Iterator<Item = &McpServerName> {
        let read = self.servers.iter().map(|stored| &stored.spec.name);
        read.chain(&self.unread)
    }
}

/// The directory of definitions. Its functions block on the disk.
#[derive(Debug)]
pub(crate) struct Store {
    servers: PathBuf,
    secrets: PathBuf,
    run_records: PathBuf,
    /// Held while files are changed.
    write_lock: Mutex<()>,
}

/// `servers/<name>.json`. The spec in it has no values of variables.
#[derive(Serialize, Deserialize)]
struct ServerFile {
    created_at: Timestamp,
    updated_at: Timestamp,
    /// Revision of the values. `None` without variables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    revision: Option<u64>,
    spec: McpServerSpec,
}

type Values = BTreeMap<String, String>;

/// `secrets/<name>.json`: values by revision.
type SecretFile = BTreeMap<u64, Values>;

impl Store {
    /// Creates missing directories and removes leftovers of a crash.
    pub(crate) fn open(directory: &Path) -> Result<Self, HostingError> {
        let store = Self {
            servers: directory.join("servers"),
            secrets: directory.join("secrets"),
            // The name that earlier daemons use.
            run_records: directory.join("greetings"),
            write_lock: Mutex::new(()),
        };
        store
            .prepare(directory)
            .map_err(failed("opening the store of MCP servers"))?;
        Ok(store)
    }

    fn prepare(&self, directory: &Path) -> io::Result<()> {
        private_dir(directory)?;
        for subdirectory in [&self.servers, &self.secrets, &self.run_records] {
            private_dir(subdirectory)?;
            for name in names(subdirectory)? {
                if name.starts_with(TEMPORARY) {
                    fs::remove_file(subdirectory.join(name))?;
                }
            }
        }
        // Files without a definition are left if a removal was interrupted, because the definition is removed first.
        for subdirectory in [&self.secrets, &self.run_records] {
            for name in names(subdirectory)? {
                if !self.servers.join(&name).try_exists()? {
                    fs::remove_file(subdirectory.join(name))?;
                }
            }
        }
        Ok(())
    }

    /// Reads all definitions. Errors of single files are returned in the list.
    pub(crate) fn list(&self) -> Result<Listed, HostingError> {
        let mut listed = Listed::default();
        let mut files = names(&self.servers).map_err(failed("listing the MCP servers"))?;
        files.sort_unstable();
        for file in files {
            let Some(name) = file.strip_suffix(".json") else {
                continue;
            };
            let Ok(name) = McpServerName::new(name) else {
                let notice = format!("`servers/{file}` is not a valid server name");
                listed.notices.push(notice);
                continue;
            };
            match self.read(&name) {
                Ok(Some(stored)) => listed.servers.push(stored),
                Ok(None) => {}
                Err(error) => {
                    let notice = format!("MCP server `{name}` cannot be read: {error}");
                    listed.notices.push(notice);
                    listed.unread.push(name);
                }
            }
        }
        Ok(listed)
    }

    /// Adds or replaces a definition. A replaced one keeps its creation time.
    pub(crate) fn put(&self, spec: &McpServerSpec, now: Timestamp) -> Result<Stored, HostingError> {
        let _locked = self.write_lock();
        self.write(spec, now)
            .map_err(failed("storing an MCP server"))
    }

    /// Returns false if there was none.
    pub(crate) fn remove(&self, name: &McpServerName) -> Result<bool, HostingError> {
        let _locked = self.write_lock();
        let remove_files = || {
            let existed = remove(&file(&self.servers, name))?;
            remove(&file(&self.secrets, name))?;
            remove(&file(&self.run_records, name))?;
            io::Result::Ok(existed)
        };
        remove_files().map_err(failed("removing an MCP server"))
    }

    /// The run record of a running server. An unreadable one counts as missing, and the server is restarted.
    pub(crate) fn run_record<T: DeserializeOwned>(&self, name: &McpServerName) -> Option<T> {
        read_json(&file(&self.run_records, name)).ok().flatten()
    }

    pub(crate) fn put_run_record(
        &self,
        name: &McpServerName,
        run_record: &impl Serialize,
    ) -> Result<(), HostingError> {
        let _locked = self.write_lock();
        write_json(&file(&self.run_records, name), run_record)
            .map_err(failed("storing the run record of an MCP server"))
    }

    fn write_lock(&self) -> std::sync::MutexGuard<'_, ()> {
        self.write_lock
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self, name: &McpServerName) -> io::Result<Option<Stored>> {
        let Some(stored) = read_json::<ServerFile>(&file(&self.servers, name))? else {
            return Ok(None);
        };
        let mut spec = stored.spec;
        if spec.name != *name {
            let other = spec.name;
            return Err(invalid_data(format!(
                "its file contains the name `{other}`"
            )));
        }
        if let Some(revision) = stored.revision {
            let secrets: SecretFile = read_json(&file(&self.secrets, name))?.unwrap_or_default();
            let values = secrets.get(&revision);
            spec.env = values.cloned().ok_or_else(|| {
                invalid_data(
                    "the values of its variables are missing; add the server again".to_owned(),
                )
            })?;
        }
        Ok(Some(Stored {
            spec,
            created_at: stored.created_at,
            updated_at: stored.updated_at,
        }))
    }

    fn write(&self, spec: &McpServerSpec, now: Timestamp) -> io::Result<Stored> {
        let name = &spec.name;
        let path = file(&self.servers, name);
        let secrets = file(&self.secrets, name);
        // An unreadable definition can still be replaced.
        let old: Option<ServerFile> = read_json(&path).ok().flatten();
        let mut values: SecretFile = read_json(&secrets).ok().flatten().unwrap_or_default();
        let revision =
            (!spec.env.is_empty()).then(|| values.last_key_value().map_or(1, |(last, _)| last + 1));
        if let Some(revision) = revision {
            values.insert(revision, spec.env.clone());
            write_json(&secrets, &values)?;
        }
        let stored = Stored {
            spec: spec.clone(),
            created_at: old.as_ref().map_or(now, |old| old.created_at),
            updated_at: now,
        };
        write_json(
            &path,
            &ServerFile {
                created_at: stored.created_at,
                updated_at: now,
                revision,
                spec: McpServerSpec {
                    env: Values::new(),
                    ..spec.clone()
                },
            },
        )?;
        // The old values are no longer needed.
        match revision {
            None => {
                remove(&secrets)?;
            }
            Some(revision) if values.len() > 1 => {
                values.retain(|stored_revision, _| *stored_revision == revision);
                write_json(&secrets, &values)?;
            }
            Some(_) => {}
        }
        Ok(stored)
    }
}

fn file(directory: &Path, name: &McpServerName) -> PathBuf {
    directory.join(format!("{name}.json"))
}

/// Accessible only to the daemon's user, even if the directory existed before.
fn private_dir(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o700))
}

/// Ignores names that are not UTF-8.
fn names(directory: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory)? {
        if let Ok(name) = entry?.file_name().into_string() {
            names.push(name);
        }
    }
    Ok(names)
}

fn read_json<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(invalid_data(format!(
            "it is longer than {MAX_FILE_BYTES} bytes"
        )));
    }
    // The parser's message may quote a value.
    serde_json::from_slice(&bytes).map(Some).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        invalid_data(format!("invalid file at line {line} column {column}"))
    })
}

/// Writes a temporary file, flushes it and renames it, so that after a crash the file has its old or its new content.
fn write_json(path: &Path, value: &impl Serialize) -> io::Result<()> {
    let directory = path.parent().unwrap_or_else(|| Path::new("."));
    let mut temporary = tempfile::Builder::new()
        .prefix(TEMPORARY)
        .permissions(fs::Permissions::from_mode(0o600))
        .tempfile_in(directory)?;
    serde_json::to_writer(&mut temporary, value)?;
    temporary.write_all(b"\n")?;
    temporary.as_file().sync_all()?;
    temporary.persist(path).map_err(|error| error.error)?;
    // Without this, a power failure may undo the rename.
    File::open(directory)?.sync_all()
}

/// Returns false if the file was missing.
fn remove(path: &Path) -> io::Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    }
    if let Some(directory) = path.parent() {
        File::open(directory)?.sync_all()?;
    }
    Ok(true)
}

fn invalid_data(message: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

fn failed(doing: &'static str) -> impl FnOnce(io::Error) -> HostingError {
    move |source| HostingError::Storage { doing, source }
}

#[cfg(test)]
mod tests;
