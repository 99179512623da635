//! nsjail's log, in a memfd: nsjail reports errors there, and never blocks on a reader.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::process::Stdio;

use rustix::fs::{MemfdFlags, memfd_create};

/// More than nsjail logs before it fails.
const MAX_BYTES: usize = 16 * 1024;
/// The last lines name the call that failed.
const LINES: usize = 3;

pub(crate) struct Log(File);

impl Log {
    pub(crate) fn open() -> io::Result<Self> {
        Ok(Self(File::from(memfd_create(
            "nsjail-log",
            MemfdFlags::CLOEXEC,
        )?)))
    }

    pub(crate) fn stdio(&self) -> io::Result<Stdio> {
        Ok(Stdio::from(self.0.try_clone()?))
    }

    /// The last lines of the log, joined into one.
    pub(crate) fn last_lines(&self) -> String {
        let mut buffer = vec![0; MAX_BYTES];
        let read = self.0.read_at(&mut buffer, 0).unwrap_or(0);
        last_lines(&String::from_utf8_lossy(&buffer[..read]))
    }
}

/// Strips the prefix of each line: `[W][2026-01-01T00:00:00+0000][1] text`.
fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text
        .lines()
        .map(|line| line.rsplit_once("] ").map_or(line, |(_, text)| text).trim())
        .filter(|line| !line.is_empty())
        .collect();
    let from = lines.len().saturating_sub(LINES);
    if lines.is_empty() {
        return "it logged nothing".to_owned();
    }
    lines[from..].join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_joined_without_timestamps() {
        let text = "[W][2026-01-01T00:00:00+0000][1] a\n[W][2026-01-01T00:00:00+0000][7] mount('/') \
                    failed: No\n\n[E][2026-01-01T00:00:00+0000][1] Couldn't launch\n[F][x][1] bye\n";
        assert_eq!(
            last_lines(text),
            "mount('/') failed: No; Couldn't launch; bye"
        );
        assert_eq!(last_lines("\n"), "it logged nothing");
    }
}
