//! Files that a client uploads in chunks before the action that uses them.
//!
//! Chunks are stored in memory under a key that the client chooses, within limits. A file is returned
//! once; unused files expire.

use std::collections::HashMap;
use std::sync::Mutex;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};
use tokio::time::{Duration, Instant};

use crate::error::{capacity_exceeded, value_error};
use crate::langbot::lock;
use crate::{ActionError, params};

/// Time until an unused file expires.
const EXPIRY: Duration = Duration::from_mins(10);

/// Incomplete or unused files of all clients.
const MAX_FILES: usize = 64;

const MAX_KEY_BYTES: usize = 200;

pub(crate) struct Uploads {
    files: Mutex<HashMap<String, Partial>>,
    max_file_bytes: usize,
}

struct Partial {
    bytes: Vec<u8>,
    next_chunk: u64,
    chunks: u64,
    touched: Instant,
}

impl Uploads {
    /// `max_file_bytes` limits one file; twice that limits all files together.
    pub(crate) fn new(max_file_bytes: usize) -> Self {
        Self {
            files: Mutex::default(),
            max_file_bytes,
        }
    }

    /// Adds one chunk. A chunk that was added already is ignored, and the first chunk restarts the file.
    pub(crate) fn add_chunk(&self, data: &Map<String, Value>) -> Result<(), ActionError> {
        let key = key(data)?;
        let number = |name: &str| {
            let value = params::required(data, name)?;
            value
                .as_u64()
                .ok_or_else(|| value_error(format!("{name} must be a whole number")))
        };
        let (index, chunks) = (number("chunk_index")?, number("chunk_amount")?);
        let chunk = STANDARD
            .decode(params::text(data, "chunk_base64")?)
            .map_err(|error| value_error(format!("chunk_base64: {error}")))?;
        if index >= chunks {
            return Err(value_error(format!(
                "chunk_index {index} is not below chunk_amount {chunks}"
            )));
        }
        let mut files = lock(&self.files);
        let now = Instant::now();
        files.retain(|_, file| now - file.touched < EXPIRY);
        if index == 0 {
            files.remove(key);
            if files.len() >= MAX_FILES {
                let message =
                    format!("{MAX_FILES} files are being uploaded already; try again later");
                return Err(capacity_exceeded(message));
            }
            let empty = Partial {
                bytes: Vec::new(),
                next_chunk: 0,
                chunks,
                touched: now,
            };
            files.insert(key.to_owned(), empty);
        }
        let all_bytes: usize = files.values().map(|file| file.bytes.len()).sum();
        let Some(file) = files.get_mut(key) else {
            let message = format!("no upload `{key}`; start with chunk_index 0");
            return Err(value_error(message));
        };
        file.touched = now;
        if index < file.next_chunk {
            return Ok(());
        }
        if chunks != file.chunks {
            let expected = file.chunks;
            return Err(value_error(format!(
                "chunk_amount of `{key}` was {expected} before, not {chunks}"
            )));
        }
        if index > file.next_chunk {
            let message = format!("chunk {} of `{key}` is missing", file.next_chunk);
            return Err(value_error(message));
        }
        let limit = self.max_file_bytes;
        if file.bytes.len() + chunk.len() > limit {
            files.remove(key);
            let message = format!("the file is larger than {limit} bytes");
            return Err(capacity_exceeded(message));
        }
        let total_limit = limit.saturating_mul(2);
        if all_bytes + chunk.len() > total_limit {
            files.remove(key);
            let message = format!(
                "the uploads of all clients are larger than {total_limit} bytes; try again later"
            );
            return Err(capacity_exceeded(message));
        }
        file.bytes.extend_from_slice(&chunk);
        file.next_chunk += 1;
        Ok(())
    }

    /// Removes and returns a file. An incomplete file is removed too and has to be uploaded again.
    pub(crate) fn take(&self, data: &Map<String, Value>) -> Result<Vec<u8>, ActionError> {
        let key = key(data)?;
        let mut files = lock(&self.files);
        match files.remove(key) {
            Some(file) if file.next_chunk == file.chunks => Ok(file.bytes),
            Some(_) => Err(ActionError::validation(format!(
                "the file `{key}` is not complete; upload it again from chunk_index 0"
            ))),
            None => Err(ActionError::validation(format!(
                "no upload `{key}`; it may have expired"
            ))),
        }
    }
}

/// Keys are not used as paths, but only the format of the published clients is accepted.
fn key(data: &Map<String, Value>) -> Result<&str, ActionError> {
    let key = params::required(data, "file_key")?;
    let is_valid = |key: &&str| {
        (1..=MAX_KEY_BYTES).contains(&key.len())
            && !key.starts_with('.')
            && key
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    key.as_str()
        .filter(is_valid)
        .ok_or_else(|| value_error("file_key has an invalid format"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn chunk(key: &str, index: u64, chunks: u64, bytes: &[u8]) -> Map<String, Value> {
        let value = json!({
            "file_key": key, "chunk_index": index, "chunk_amount": chunks,
            "chunk_base64": STANDARD.encode(bytes), "file_length": 0, "chunk_size": bytes.len(),
        });
        value.as_object().expect("an object").clone()
    }

    fn take(uploads: &Uploads, key: &str) -> Result<Vec<u8>, ActionError> {
        uploads.take(json!({ "file_key": key }).as_object().expect("an object"))
    }

    #[test]
    fn chunks_form_a_file_that_is_returned_once() {
        let uploads = Uploads::new(100);
        for (index, bytes) in [b"one ", b"two "].into_iter().enumerate() {
            let taken = chunk("k-1.zip", index as u64, 3, bytes);
            uploads.add_chunk(&taken).expect("taken");
            uploads
                .add_chunk(&taken)
                .expect("a repeated chunk is ignored");
        }
        assert!(take(&uploads, "k-1.zip").is_err(), "not complete");
        for (index, bytes) in [b"one ", b"two ", b"end."].into_iter().enumerate() {
            uploads
                .add_chunk(&chunk("k-1.zip", index as u64, 3, bytes))
                .expect("taken");
        }
        assert_eq!(take(&uploads, "k-1.zip").expect("whole"), b"one two end.");
        assert!(take(&uploads, "k-1.zip").is_err());
        uploads
            .add_chunk(&chunk("empty.zip", 0, 1, b""))
            .expect("taken");
        assert_eq!(take(&uploads, "empty.zip").expect("whole"), b"");
    }

    #[test]
    fn keys_that_are_paths_are_rejected() {
        let uploads = Uploads::new(100);
        for key in [
            "../x",
            "/etc/passwd",
            "a/b",
            "",
            ".hidden",
            "..",
            "a\0b",
            &"x".repeat(201),
        ] {
            assert!(uploads.add_chunk(&chunk(key, 0, 1, b"x")).is_err(), "{key}");
            assert!(take(&uploads, key).is_err(), "{key}");
        }
    }

    #[test]
    fn memory_is_bounded() {
        let uploads = Uploads::new(100);
        uploads
            .add_chunk(&chunk("a", 0, 2, &[0; 100]))
            .expect("fits");
        let refused = uploads.add_chunk(&chunk("a", 1, 2, &[0; 1]));
        let error = refused.expect_err("one file is too large");
        assert!(error.message().starts_with("the file is larger"), "{error}");
        for key in ["b", "c"] {
            uploads
                .add_chunk(&chunk(key, 0, 1, &[0; 100]))
                .expect("fits");
        }
        let refused = uploads.add_chunk(&chunk("d", 0, 1, &[0; 100]));
        let error = refused.expect_err("all files together are too large");
        assert!(
            error.message().starts_with("the uploads of all clients"),
            "{error}"
        );
        for number in 0..MAX_FILES + 8 {
            let _ = uploads.add_chunk(&chunk(&format!("n{number}"), 0, 2, b""));
        }
        let files = uploads.files.lock().expect("no panic").len();
        assert!(files <= MAX_FILES);
    }

    #[test]
    fn invalid_chunks_are_rejected() {
        let uploads = Uploads::new(100);
        for wrong in [
            chunk("k", 1, 1, b"x"),
            chunk("k", 5, 9, b"x"),
            json!({"file_key": "k", "chunk_index": -1, "chunk_amount": 1, "chunk_base64": ""})
                .as_object()
                .expect("object")
                .clone(),
            json!({"file_key": "k", "chunk_index": 0, "chunk_amount": 1, "chunk_base64": "%%"})
                .as_object()
                .expect("object")
                .clone(),
            json!({"file_key": "k", "chunk_index": 0, "chunk_amount": 1})
                .as_object()
                .expect("object")
                .clone(),
            json!({"file_key": 7}).as_object().expect("object").clone(),
        ] {
            assert!(uploads.add_chunk(&wrong).is_err(), "{wrong:?}");
        }
    }
}
