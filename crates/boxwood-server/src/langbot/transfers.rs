//! Files that a client sends in pieces before it says what they are for.
//!
//! Comes in: pieces under a key of the client's choice. Goes out: the whole file, once. Never here: a
//! path; the pieces stay in memory, within bounds, and what nobody asks for is forgotten.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};
use tokio::time::{Duration, Instant};

use super::Fault;

/// For the file to be asked for after its last piece.
const KEPT_FOR: Duration = Duration::from_mins(10);

/// Files under way, of all clients.
const MAX_FILES: usize = 64;

const MAX_KEY_BYTES: usize = 200;

pub(crate) struct Transfers {
    files: Mutex<HashMap<String, Partial>>,
    max_file_bytes: usize,
}

struct Partial {
    bytes: Vec<u8>,
    next_piece: u64,
    pieces: u64,
    touched: Instant,
}

impl Transfers {
    /// `max_file_bytes` for one file, and twice that for all of them together.
    pub(crate) fn new(max_file_bytes: usize) -> Self {
        Self {
            files: Mutex::default(),
            max_file_bytes,
        }
    }

    /// Takes one piece. A piece that was there already is taken for a repetition, and the first one
    /// begins the file anew.
    pub(crate) fn take_piece(&self, data: &Map<String, Value>) -> Result<(), Fault> {
        let key = key(data)?;
        let number = |name: &str| {
            let value = data.get(name).ok_or_else(|| Fault::missing(name))?;
            value
                .as_u64()
                .ok_or_else(|| Fault::new("ValueError", format!("{name} must be a whole number")))
        };
        let (index, pieces) = (number("chunk_index")?, number("chunk_amount")?);
        let text = data
            .get("chunk_base64")
            .ok_or_else(|| Fault::missing("chunk_base64"))?
            .as_str()
            .ok_or_else(|| Fault::new("TypeError", "chunk_base64 must be text"))?;
        let piece = STANDARD
            .decode(text)
            .map_err(|error| Fault::new("ValueError", format!("chunk_base64: {error}")))?;
        if index >= pieces {
            return Err(Fault::new(
                "ValueError",
                format!("chunk_index {index} is not below chunk_amount {pieces}"),
            ));
        }
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        files.retain(|_, file| now - file.touched < KEPT_FOR);
        if index == 0 {
            files.remove(key);
            if files.len() >= MAX_FILES {
                return Err(too_much("too many files are being sent at the same time"));
            }
        }
        let others: usize = files
            .iter()
            .filter(|(name, _)| name.as_str() != key)
            .map(|(_, file)| file.bytes.len())
            .sum();
        let file = match (files.get_mut(key), index) {
            (Some(file), _) => file,
            (None, 0) => files.entry(key.to_owned()).or_insert(Partial {
                bytes: Vec::new(),
                next_piece: 0,
                pieces,
                touched: now,
            }),
            (None, _) => {
                return Err(Fault::new(
                    "ValueError",
                    format!("no file `{key}` is being sent; begin with chunk_index 0"),
                ));
            }
        };
        file.touched = now;
        if index < file.next_piece {
            return Ok(());
        }
        if index > file.next_piece || pieces != file.pieces {
            return Err(Fault::new(
                "ValueError",
                format!("chunk {} of `{key}` is missing", file.next_piece),
            ));
        }
        let length = file.bytes.len() + piece.len();
        if length > self.max_file_bytes || others + length > 2 * self.max_file_bytes {
            files.remove(key);
            return Err(too_much(&format!(
                "the file is larger than {} bytes",
                self.max_file_bytes
            )));
        }
        file.bytes.extend_from_slice(&piece);
        file.next_piece += 1;
        Ok(())
    }

    /// The whole file, which is then forgotten.
    pub(crate) fn collect(&self, data: &Map<String, Value>) -> Result<Vec<u8>, Fault> {
        let key = key(data)?;
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        match files.remove(key) {
            Some(file) if file.next_piece == file.pieces => Ok(file.bytes),
            Some(_) => Err(Fault::validation(format!(
                "the file `{key}` is not complete"
            ))),
            None => Err(Fault::validation(format!("no file `{key}` was sent"))),
        }
    }
}

/// Never a path here, and still only what the clients make: a hash, a dash, an extension.
fn key(data: &Map<String, Value>) -> Result<&str, Fault> {
    let key = data
        .get("file_key")
        .ok_or_else(|| Fault::missing("file_key"))?;
    let legal = |key: &&str| {
        (1..=MAX_KEY_BYTES).contains(&key.len())
            && !key.starts_with('.')
            && key
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
    };
    key.as_str()
        .filter(legal)
        .ok_or_else(|| Fault::new("ValueError", "file_key is not a file key"))
}

fn too_much(text: &str) -> Fault {
    Fault::new("BoxCapacityExceededError", text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn piece(key: &str, index: u64, pieces: u64, bytes: &[u8]) -> Map<String, Value> {
        let value = json!({
            "file_key": key, "chunk_index": index, "chunk_amount": pieces,
            "chunk_base64": STANDARD.encode(bytes), "file_length": 0, "chunk_size": bytes.len(),
        });
        value.as_object().expect("an object").clone()
    }

    fn collect(transfers: &Transfers, key: &str) -> Result<Vec<u8>, Fault> {
        transfers.collect(json!({ "file_key": key }).as_object().expect("an object"))
    }

    #[test]
    fn pieces_become_a_file_that_is_handed_out_once() {
        let transfers = Transfers::new(100);
        for (index, bytes) in [b"one ", b"two "].into_iter().enumerate() {
            let taken = piece("k-1.zip", index as u64, 3, bytes);
            transfers.take_piece(&taken).expect("taken");
            transfers
                .take_piece(&taken)
                .expect("a repetition changes nothing");
        }
        assert!(collect(&transfers, "k-1.zip").is_err(), "not complete");
        for (index, bytes) in [b"one ", b"two ", b"end."].into_iter().enumerate() {
            transfers
                .take_piece(&piece("k-1.zip", index as u64, 3, bytes))
                .expect("taken");
        }
        assert_eq!(
            collect(&transfers, "k-1.zip").expect("whole"),
            b"one two end."
        );
        assert!(collect(&transfers, "k-1.zip").is_err());
        transfers
            .take_piece(&piece("empty.zip", 0, 1, b""))
            .expect("taken");
        assert_eq!(collect(&transfers, "empty.zip").expect("whole"), b"");
    }

    #[test]
    fn keys_that_are_paths_are_refused() {
        let transfers = Transfers::new(100);
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
            assert!(
                transfers.take_piece(&piece(key, 0, 1, b"x")).is_err(),
                "{key}"
            );
            assert!(collect(&transfers, key).is_err(), "{key}");
        }
    }

    #[test]
    fn memory_is_bounded() {
        let transfers = Transfers::new(100);
        transfers
            .take_piece(&piece("a", 0, 2, &[0; 100]))
            .expect("fits");
        assert!(transfers.take_piece(&piece("a", 1, 2, &[0; 1])).is_err());
        for key in ["b", "c"] {
            transfers
                .take_piece(&piece(key, 0, 1, &[0; 100]))
                .expect("fits");
        }
        assert!(transfers.take_piece(&piece("d", 0, 1, &[0; 100])).is_err());
        for number in 0..MAX_FILES + 8 {
            let _ = transfers.take_piece(&piece(&format!("n{number}"), 0, 2, b""));
        }
        let files = transfers.files.lock().expect("no panic").len();
        assert!(files <= MAX_FILES);
    }

    #[test]
    fn odd_pieces_are_refused() {
        let transfers = Transfers::new(100);
        for wrong in [
            piece("k", 1, 1, b"x"),
            piece("k", 5, 9, b"x"),
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
            assert!(transfers.take_piece(&wrong).is_err(), "{wrong:?}");
        }
    }
}
