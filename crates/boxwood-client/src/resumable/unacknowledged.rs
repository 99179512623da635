//! Input that the daemon has not acknowledged.

use std::collections::VecDeque;

use bytes::{Buf as _, Bytes};

/// Limit of unacknowledged input. Less than what the daemon buffers for a program that does not read, so that a
/// signal never waits behind input.
const MAX_BYTES: u64 = 512 * 1024;

/// All input from the first byte on that may have to be sent again.
pub(super) struct Unacknowledged {
    /// The number of bytes that were acknowledged.
    accepted: u64,
    chunks: VecDeque<Bytes>,
    bytes: u64,
    /// The program takes no more input.
    refused: bool,
}

/// The daemon has less input than it had acknowledged.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InputLost;

impl Unacknowledged {
    /// The program has already accepted this much from earlier clients.
    pub(super) fn new(accepted: u64) -> Self {
        Self {
            accepted,
            chunks: VecDeque::new(),
            bytes: 0,
            refused: false,
        }
    }

    /// Discards all input, now and later.
    pub(super) fn refuse(&mut self) {
        self.refused = true;
        self.chunks.clear();
        self.bytes = 0;
    }

    pub(super) fn has_room(&self) -> bool {
        self.bytes < MAX_BYTES
    }

    pub(super) fn push(&mut self, chunk: Bytes) {
        if self.refused {
            return;
        }
        self.bytes += chunk.len() as u64;
        self.chunks.push_back(chunk);
    }

    /// `accepted` counts from the program's start.
    pub(super) fn accept(&mut self, accepted: u64) -> Result<(), InputLost> {
        let mut newly_accepted = accepted.checked_sub(self.accepted).ok_or(InputLost)?;
        self.accepted = accepted;
        while let Some(first) = self.chunks.front_mut() {
            let length = first.len() as u64;
            if length > newly_accepted {
                // Smaller than the length of a chunk, so it fits.
                first.advance(usize::try_from(newly_accepted).unwrap_or_default());
                self.bytes -= newly_accepted;
                break;
            }
            newly_accepted -= length;
            self.bytes -= length;
            self.chunks.pop_front();
        }
        Ok(())
    }

    /// What to send on a new connection.
    pub(super) fn chunks(&self) -> Vec<Bytes> {
        self.chunks.iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(unsent: &Unacknowledged) -> String {
        let all: Vec<u8> = unsent.chunks().concat();
        assert_eq!(all.len() as u64, unsent.bytes);
        String::from_utf8(all).unwrap()
    }

    #[test]
    fn only_unacknowledged_input_is_resent() {
        let mut unsent = Unacknowledged::new(100);
        unsent.push(Bytes::from_static(b"hello "));
        unsent.push(Bytes::from_static(b"world"));
        assert_eq!(unsent.accept(100), Ok(()));
        assert_eq!(text(&unsent), "hello world");
        assert_eq!(unsent.accept(103), Ok(()));
        assert_eq!(text(&unsent), "lo world");
        assert_eq!(unsent.accept(107), Ok(()));
        assert_eq!(text(&unsent), "orld");
        assert_eq!(unsent.accept(111), Ok(()));
        assert_eq!(text(&unsent), "");
        unsent.push(Bytes::from_static(b"!"));
        assert_eq!(unsent.accept(111), Ok(()));
        assert_eq!(text(&unsent), "!");
    }

    #[test]
    fn input_of_other_clients_is_not_resent() {
        let mut unsent = Unacknowledged::new(0);
        unsent.push(Bytes::from_static(b"ab"));
        assert_eq!(unsent.accept(9), Ok(()));
        assert_eq!(text(&unsent), "");
        unsent.push(Bytes::from_static(b"c"));
        assert_eq!(unsent.accept(10), Ok(()));
        assert_eq!(text(&unsent), "");
        assert_eq!(unsent.accept(3), Err(InputLost));
    }

    #[test]
    fn acknowledgements_free_space() {
        let mut unsent = Unacknowledged::new(0);
        unsent.push(Bytes::from(vec![0; 512 * 1024]));
        assert!(!unsent.has_room());
        unsent.accept(1).unwrap();
        assert!(unsent.has_room());
        unsent.push(Bytes::from(vec![0; 512 * 1024]));
        assert!(!unsent.has_room());
        unsent.refuse();
        unsent.push(Bytes::from(vec![0; 512 * 1024]));
        assert!(unsent.has_room() && unsent.chunks().is_empty());
    }
}
