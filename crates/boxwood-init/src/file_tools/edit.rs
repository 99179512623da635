//! Replaces an exact text in a file.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;
use std::time::{Duration, Instant};

use memchr::memmem::Finder;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::open::{self, Opened};
use super::types::{Edited, FileToolError, FileToolErrorKind};
use super::{MAX_FILE_BYTES, diff, write};

const MISSING: &str = "File not found";

/// No edit holds the lock longer; a command in the box may.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);
const RETRY: Duration = Duration::from_millis(2);

/// Works on bytes, so that the rest of the file is unchanged even if it is not UTF-8.
pub(super) fn edit(path: &str, old: &str, new: &str, all: bool) -> Result<Edited, FileToolError> {
    if old.is_empty() {
        let text = "old_string must not be empty; use `write` to write the whole file.";
        return Err(FileToolError::new(FileToolErrorKind::InvalidArgument, text));
    }
    let failed = FileToolError::of(path, MISSING);
    let _lock = lock_directory(Path::new(path));
    let before = match open::open(path, MISSING)? {
        Opened::Directory(_) => return Err(FileToolError::is_a_directory(path)),
        Opened::File(file, stat) => {
            let size = u64::try_from(stat.st_size).unwrap_or(0);
            if size > MAX_FILE_BYTES as u64 {
                return Err(write::too_large(path, size));
            }
            let mut text = Vec::new();
            // A file may grow meanwhile.
            file.take(MAX_FILE_BYTES as u64 + 1)
                .read_to_end(&mut text)
                .map_err(&failed)?;
            if text.len() > MAX_FILE_BYTES {
                return Err(write::too_large(path, text.len() as u64));
            }
            text
        }
    };
    let finder = Finder::new(old.as_bytes());
    let count = finder.find_iter(&before).count();
    match count {
        0 => {
            let text = "old_string not found in file.";
            return Err(FileToolError::new(FileToolErrorKind::InvalidArgument, text));
        }
        1 => {}
        _ if all => {}
        _ => {
            let text =
                format!("old_string matches {count} locations; provide a more unique string.");
            return Err(FileToolError::new(FileToolErrorKind::InvalidArgument, text));
        }
    }
    let unchanged = before.len() - count * old.len();
    let size = (count as u64)
        .saturating_mul(new.len() as u64)
        .saturating_add(unchanged as u64);
    if size > MAX_FILE_BYTES as u64 {
        return Err(write::too_large("the edited file", size));
    }
    let mut after = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
    let mut copied = 0;
    for match_start in finder.find_iter(&before) {
        after.extend_from_slice(&before[copied..match_start]);
        after.extend_from_slice(new.as_bytes());
        copied = match_start + old.len();
    }
    after.extend_from_slice(&before[copied..]);
    put(Path::new(path), &after).map_err(&failed)?;
    Ok(Edited {
        replaced: count as u64,
        diff: diff::unified(path, &before, &after),
        size,
    })
}

/// Serialises edits in a directory: a model may request several at once, and each must see the results of the others.
/// The file itself cannot be locked, because an edit replaces it. Without a lock the edit is made anyway.
fn lock_directory(path: &Path) -> Option<File> {
    let target = fs::canonicalize(path).ok()?;
    let directory = File::open(target.parent()?).ok()?;
    let started = Instant::now();
    loop {
        match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Some(directory),
            Err(Errno::AGAIN | Errno::INTR) if started.elapsed() < LOCK_TIMEOUT => {
                std::thread::sleep(RETRY);
            }
            Err(_) => return None,
        }
    }
}

fn put(path: &Path, content: &[u8]) -> io::Result<()> {
    // It exists, so its real path is known.
    let target = fs::canonicalize(path)?;
    let existing = fs::symlink_metadata(&target)?;
    write::replace(&target, Some(&existing), content)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(bytes: &[u8]) -> (tempfile::TempDir, String) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("file");
        fs::write(&path, bytes).expect("write");
        let path = path.to_str().expect("UTF-8").to_owned();
        (directory, path)
    }

    #[test]
    fn a_single_match_is_replaced_and_is_in_the_diff() {
        let (_directory, path) = file(b"one\ntwo\nthree\n");
        let edited = edit(&path, "two", "2", false).expect("edit");
        assert_eq!(fs::read(&path).expect("read"), b"one\n2\nthree\n");
        assert_eq!((edited.replaced, edited.size), (1, 12));
        assert!(
            edited
                .diff
                .ends_with("@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n"),
            "{}",
            edited.diff
        );
    }

    #[test]
    fn error_texts_are_those_of_langbot_box() {
        let (_directory, path) = file(b"aa aa aaa");
        let error = edit(&path, "b", "c", false).expect_err("not there");
        assert_eq!(error.text, "old_string not found in file.");
        let error = edit(&path, "aa", "c", false).expect_err("three times");
        assert_eq!(
            error.text,
            "old_string matches 3 locations; provide a more unique string."
        );
        let error = edit("/no/file", "a", "b", false).expect_err("no file");
        assert_eq!(error.text, "File not found: /no/file");
        assert!(edit(&path, "", "c", true).is_err());
        assert_eq!(fs::read(&path).expect("read"), b"aa aa aaa");
    }

    #[test]
    fn all_matches_are_replaced_on_request() {
        let (_directory, path) = file(b"aa aa aaa");
        assert_eq!(edit(&path, "aa", "b", true).expect("edit").replaced, 3);
        assert_eq!(fs::read(&path).expect("read"), b"b b ba");
    }

    #[test]
    fn edits_at_the_same_time_do_not_undo_each_other() {
        let lines: Vec<String> = (0..80).map(|line| format!("<{line}>\n")).collect();
        let (_directory, path) = file(lines.concat().as_bytes());
        std::thread::scope(|scope| {
            for share in lines.chunks(10) {
                let path = &path;
                scope.spawn(move || {
                    for line in share {
                        let new = line.replace('<', "[");
                        edit(path, line, &new, false).expect("edit");
                    }
                });
            }
        });
        let after = fs::read_to_string(&path).expect("read");
        assert_eq!(after, lines.concat().replace('<', "["));
    }

    #[test]
    fn bytes_that_are_not_utf8_are_kept() {
        let (_directory, path) = file(b"\xff\xfe here \x00 \xc3");
        edit(&path, "here", "there", false).expect("edit");
        assert_eq!(fs::read(&path).expect("read"), b"\xff\xfe there \x00 \xc3");
    }

    #[test]
    fn large_files_and_large_results_are_refused() {
        let (_directory, path) = file(&vec![b'x'; MAX_FILE_BYTES + 1]);
        let error = edit(&path, "x", "y", true).expect_err("too large");
        assert_eq!(error.fault, FileToolErrorKind::TooLarge);
        let (_directory, path) = file(&vec![b'x'; 1 << 20]);
        let error = edit(&path, "x", &"y".repeat(1 << 10), true).expect_err("too large");
        assert_eq!(error.fault, FileToolErrorKind::TooLarge);
    }
}
