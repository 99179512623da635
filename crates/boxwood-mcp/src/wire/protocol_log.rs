//! A log of the recent messages of a server, without their contents.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::hosting::Secrets;
use crate::lock;

/// Methods, ids and invalid lines are cut to this length.
const MAX_SHOWN_CHARS: usize = 120;
/// Bytes of a method, an id or an invalid line that are searched for secrets before it is cut.
const MAX_READ_BYTES: usize = 8 * MAX_SHOWN_CHARS;

/// The last lines, such as `> tools/call 17 (231 B)`.
#[derive(Debug)]
pub(crate) struct ProtocolLog {
    max_lines: usize,
    lines: Mutex<VecDeque<String>>,
    secrets: Mutex<Arc<Secrets>>,
}

impl Default for ProtocolLog {
    fn default() -> Self {
        Self::new(500)
    }
}

impl ProtocolLog {
    pub(crate) fn new(max_lines: usize) -> Self {
        Self {
            max_lines: max_lines.max(1),
            lines: Mutex::default(),
            secrets: Mutex::default(),
        }
    }

    /// Redacts these values in all further lines.
    pub(crate) fn set_secrets(&self, secrets: Arc<Secrets>) {
        *lock(&self.secrets) = secrets;
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        let lines = lock(&self.lines);
        lines.iter().cloned().collect()
    }

    pub(crate) fn sent(&self, what: &str, id: Option<&str>, bytes: usize) {
        self.push(self.message('>', what, id, bytes));
    }

    pub(crate) fn received(&self, what: &str, id: Option<&str>, bytes: usize) {
        self.push(self.message('<', what, id, bytes));
    }

    pub(crate) fn response(
        &self,
        what: &str,
        id: u64,
        outcome: &str,
        after: Duration,
        bytes: usize,
    ) {
        let what = self.shown(what);
        let after = after.as_millis();
        self.push(format!(
            "< {what} {id} {outcome} after {after} ms ({bytes} B)"
        ));
    }

    /// A problem.
    pub(crate) fn note(&self, text: &str) {
        let text = self.secrets().hide(text.to_owned());
        self.push(format!("! {text}"));
    }

    /// A response to an unknown, cancelled or answered request.
    pub(crate) fn unmatched_response(&self, id: &str) {
        self.push(format!(
            "! response to unknown request, id {}",
            self.shown(id)
        ));
    }

    /// The start of a line that is not a message.
    pub(crate) fn garbage(&self, why: &str, line: &[u8]) {
        let head = String::from_utf8_lossy(&line[..line.len().min(MAX_READ_BYTES)]);
        let bytes = line.len();
        // Longer lines are already shortened here.
        let head = self.secrets().hide_before_cut(head.into_owned());
        self.push(format!("! {why} ({bytes} B): {}", printable(&head)));
    }

    fn push(&self, line: String) {
        let mut lines = lock(&self.lines);
        if lines.len() >= self.max_lines {
            lines.pop_front();
        }
        lines.push_back(line);
    }

    fn message(&self, direction: char, what: &str, id: Option<&str>, bytes: usize) -> String {
        let mut line = format!("{direction} {}", self.shown(what));
        if let Some(id) = id {
            let _ = write!(line, " {}", self.shown(id));
        }
        let _ = write!(line, " ({bytes} B)");
        line
    }

    /// The text comes from the server.
    fn shown(&self, text: &str) -> String {
        let head = &text[..text.floor_char_boundary(MAX_READ_BYTES)];
        let secrets = self.secrets();
        let head = if head.len() < text.len() {
            secrets.hide_before_cut(head.to_owned())
        } else {
            secrets.hide(head.to_owned())
        };
        printable(&head)
    }

    fn secrets(&self) -> Arc<Secrets> {
        let secrets = lock(&self.secrets);
        Arc::clone(&secrets)
    }
}

/// Escapes control characters and shortens the text.
fn printable(text: &str) -> String {
    let mut shown = String::new();
    for (at, char) in text.chars().enumerate() {
        if at == MAX_SHOWN_CHARS {
            shown.push('…');
            break;
        }
        if char.is_control() {
            shown.extend(char.escape_default());
        } else {
            shown.push(char);
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_redacted_before_a_line_is_shortened() {
        let log = ProtocolLog::default();
        let variables = [("TOKEN".to_owned(), "hunter2-secret".to_owned())].into();
        log.set_secrets(Arc::new(Secrets::of(&variables)));
        log.garbage("no message", b"TOKEN=hunter2-secret");
        let across = format!("{}hunter2-secret", "x".repeat(MAX_SHOWN_CHARS - 7));
        log.garbage("no message", across.as_bytes());
        let across = format!("{}hunter2-secret", "x".repeat(MAX_READ_BYTES - 7));
        log.garbage("no message", across.as_bytes());
        log.received("notifications/hunter2-secret", Some("hunter2-secret"), 9);
        log.note("write queue full, dropped: hunter2-secret");
        let across = format!("{}hunter2-secret", "x".repeat(MAX_SHOWN_CHARS - 7));
        log.unmatched_response(&across);
        let lines = log.lines();
        assert_eq!(lines.len(), 6);
        assert!(
            lines.iter().all(|line| !line.contains("hunter")),
            "{lines:?}"
        );
        assert_eq!(lines[0], "! no message (20 B): TOKEN=[TOKEN]");
        assert_eq!(lines[3], "< notifications/[TOKEN] [TOKEN] (9 B)");
        assert_eq!(lines[4], "! write queue full, dropped: [TOKEN]");
    }
}
