//! Access tokens for clients that are not trusted by uid.
//!
//! Only hashes are stored. A plain SHA-256 is enough, because tokens have 32 random bytes.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use boxwood_api::{TokenInfo, with_causes};
use jiff::Timestamp;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use subtle::{Choice, ConstantTimeEq as _};

const PREFIX: &str = "bxw_";

#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    #[error("failed to read the token file `{}`", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("the token file `{}` is damaged: {message}", path.display())]
    Parse { path: PathBuf, message: String },
    #[error("failed to write the token file `{}`", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("a token named `{name}` already exists")]
    Exists { name: String },
    #[error("no token is named `{name}`")]
    Unknown { name: String },
    #[error("invalid token name `{name}`: it must be 1 to 64 letters, digits, `-`, `_` and `.`")]
    Name { name: String },
    #[error("failed to get random bytes: {message}")]
    Random { message: String },
}

/// A new token. It cannot be shown again.
pub struct NewToken {
    pub info: TokenInfo,
    secret: String,
}

impl NewToken {
    pub fn reveal(&self) -> &str {
        &self.secret
    }
}

impl fmt::Debug for NewToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewToken")
            .field("info", &self.info)
            .finish_non_exhaustive()
    }
}

#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenFile {
    #[serde(default)]
    token: Vec<Stored>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Stored {
    name: String,
    created_at: Timestamp,
    sha256: String,
}

/// The tokens of a state directory. The file is reloaded when it changes, so that `boxwood token`
/// works with a running daemon.
pub struct Tokens {
    path: PathBuf,
    cached: Mutex<Option<(Stamp, Vec<Stored>)>>,
}

/// Detects changes of the file. Each write creates a new inode.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

impl Tokens {
    pub fn new(state_dir: &Path) -> Self {
        Self {
            path: state_dir.join("tokens.toml"),
            cached: Mutex::new(None),
        }
    }

    pub fn create(&self, name: &str) -> Result<NewToken, TokenError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty() || name.len() > 64 || !name.chars().all(plain) {
            return Err(TokenError::Name {
                name: name.to_owned(),
            });
        }
        let mut bytes = [0_u8; 32];
        getrandom::fill(&mut bytes).map_err(|error| TokenError::Random {
            message: error.to_string(),
        })?;
        let secret = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes));
        let info = TokenInfo {
            name: name.to_owned(),
            created_at: Timestamp::now(),
        };
        let stored = Stored {
            name: info.name.clone(),
            created_at: info.created_at,
            sha256: hash(secret.as_bytes()),
        };
        self.change(|file| {
            if file.token.iter().any(|token| token.name == name) {
                return Err(TokenError::Exists {
                    name: name.to_owned(),
                });
            }
            file.token.push(stored);
            Ok(())
        })?;
        Ok(NewToken { info, secret })
    }

    pub fn list(&self) -> Result<Vec<TokenInfo>, TokenError> {
        let file = self.read()?;
        Ok(file
            .token
            .into_iter()
            .map(|token| TokenInfo {
                name: token.name,
                created_at: token.created_at,
            })
            .collect())
    }

    pub fn revoke(&self, name: &str) -> Result<(), TokenError> {
        self.change(|file| {
            let before = file.token.len();
            file.token.retain(|token| token.name != name);
            if file.token.len() == before {
                return Err(TokenError::Unknown {
                    name: name.to_owned(),
                });
            }
            Ok(())
        })
    }

    /// The name of the presented token. Compares all hashes in constant time.
    pub(crate) fn check(&self, presented: &[u8]) -> Option<String> {
        let presented = hash(presented);
        let tokens = match self.current() {
            Ok(tokens) => tokens,
            Err(error) => {
                tracing::error!(error = %with_causes(&error), "failed to read the token file; tokens are refused until it can be read");
                return None;
            }
        };
        let mut matched = None;
        for token in &tokens {
            let equal: Choice = token.sha256.as_bytes().ct_eq(presented.as_bytes());
            if bool::from(equal) {
                matched = Some(token.name.clone());
            }
        }
        matched
    }

    fn current(&self) -> Result<Vec<Stored>, TokenError> {
        let stamp = match fs::metadata(&self.path) {
            Ok(metadata) => Stamp {
                inode: metadata.ino(),
                size: metadata.len(),
                changed: (metadata.ctime(), metadata.ctime_nsec()),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => {
                return Err(TokenError::Read {
                    path: self.path.clone(),
                    source,
                });
            }
        };
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((seen, tokens)) = &*cached
            && *seen == stamp
        {
            return Ok(tokens.clone());
        }
        // Clear first: if the file cannot be read, old tokens must not stay valid.
        *cached = None;
        let tokens = self.read()?.token;
        *cached = Some((stamp, tokens.clone()));
        Ok(tokens)
    }

    fn read(&self) -> Result<TokenFile, TokenError> {
        match fs::read_to_string(&self.path) {
            Ok(text) => toml::from_str(&text).map_err(|error| TokenError::Parse {
                path: self.path.clone(),
                message: error.message().to_owned(),
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(TokenFile::default()),
            Err(source) => Err(TokenError::Read {
                path: self.path.clone(),
                source,
            }),
        }
    }

    /// Updates the file under a lock between processes.
    fn change(
        &self,
        edit: impl FnOnce(&mut TokenFile) -> Result<(), TokenError>,
    ) -> Result<(), TokenError> {
        let write = |source| TokenError::Write {
            path: self.path.clone(),
            source,
        };
        if let Some(directory) = self.path.parent() {
            crate::state_dir::private_dir(directory).map_err(write)?;
        }
        let lock = create_private(&self.path.with_extension("lock")).map_err(write)?;
        flock(&lock, FlockOperation::LockExclusive).map_err(|error| write(error.into()))?;
        let mut file = self.read()?;
        edit(&mut file)?;
        let text = toml::to_string(&file).map_err(|error| write(io::Error::other(error)))?;
        let next = self.path.with_extension("toml.next");
        let mut out = create_private(&next).map_err(write)?;
        out.set_len(0).map_err(write)?;
        out.write_all(text.as_bytes()).map_err(write)?;
        out.sync_all().map_err(write)?;
        fs::rename(&next, &self.path).map_err(write)
    }
}

fn hash(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(Sha256::digest(bytes))
}

fn create_private(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_token_is_accepted_until_it_is_revoked() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let daemon = Tokens::new(dir.path());
        assert_eq!(daemon.check(b"anything"), None);
        let command = Tokens::new(dir.path());
        let token = command.create("ci").expect("created");
        assert_eq!(
            daemon.check(token.reveal().as_bytes()).as_deref(),
            Some("ci")
        );
        assert_eq!(daemon.check(b"bxw_other"), None);
        assert_eq!(daemon.check(b""), None);
        let second = command.create("second").expect("created");
        assert_eq!(
            daemon.check(second.reveal().as_bytes()).as_deref(),
            Some("second")
        );
        command.revoke("ci").expect("revoked");
        assert_eq!(daemon.check(token.reveal().as_bytes()), None);
        let names: Vec<_> = command
            .list()
            .expect("list")
            .into_iter()
            .map(|token| token.name)
            .collect();
        assert_eq!(names, ["second"]);
    }

    #[test]
    fn neither_the_file_nor_debug_shows_a_token() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let tokens = Tokens::new(dir.path());
        let token = tokens.create("ci").expect("created");
        let path = dir.path().join("tokens.toml");
        let text = fs::read_to_string(&path).expect("file");
        assert!(!text.contains(token.reveal()));
        assert!(!format!("{token:?}").contains(token.reveal()));
        let mode = fs::metadata(path).expect("file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_damaged_file_accepts_nothing() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let tokens = Tokens::new(dir.path());
        let token = tokens.create("ci").expect("created");
        assert!(tokens.check(token.reveal().as_bytes()).is_some());
        fs::write(dir.path().join("tokens.toml"), "token = 1").expect("write");
        assert_eq!(tokens.check(token.reveal().as_bytes()), None);
    }

    #[test]
    fn names_are_checked() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let tokens = Tokens::new(dir.path());
        tokens.create("ci").expect("created");
        assert!(matches!(
            tokens.create("ci"),
            Err(TokenError::Exists { .. })
        ));
        assert!(matches!(tokens.create("a b"), Err(TokenError::Name { .. })));
        assert!(matches!(tokens.create(""), Err(TokenError::Name { .. })));
        assert!(matches!(
            tokens.revoke("x"),
            Err(TokenError::Unknown { .. })
        ));
    }
}
