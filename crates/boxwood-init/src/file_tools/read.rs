//! Reads lines of a text file, or the names in a directory.

use std::collections::BinaryHeap;
use std::fs::File;
use std::os::fd::OwnedFd;

use rustix::fs::Dir;

use super::MAX_TEXT_BYTES;
use super::open::{self, Opened};
use super::types::{FileToolError, FileToolErrorKind, Text};

const MISSING: &str = "File not found";
/// A file with a NUL in its first bytes counts as binary.
const BINARY_CHECK_BYTES: usize = 8 * 1024;
const CHUNK: usize = 64 * 1024;
/// Up to this size, all lines are counted: it takes a few milliseconds.
const COUNTED_BYTES: u64 = 16 * 1024 * 1024;

pub(super) fn read(
    path: &str,
    offset: u64,
    limit: Option<u64>,
    max_bytes: u64,
    keep_going: &dyn Fn() -> bool,
) -> Result<Text, FileToolError> {
    for (number, name) in [(Some(offset), "offset"), (limit, "limit")] {
        if number == Some(0) {
            let text = format!("{name} must be at least 1");
            return Err(FileToolError::new(FileToolErrorKind::InvalidArgument, text));
        }
    }
    let range = Range {
        first: offset,
        lines: limit.unwrap_or(u64::MAX),
        bytes: usize::try_from(max_bytes).map_or(MAX_TEXT_BYTES, |bytes| bytes.min(MAX_TEXT_BYTES)),
    };
    match open::open(path, MISSING)? {
        Opened::Directory(directory) => {
            names(&directory, &range).map_err(FileToolError::of(path, MISSING))
        }
        Opened::File(mut file, stat) => {
            let size = u64::try_from(stat.st_size).unwrap_or(0);
            text(&mut file, size, &range, keep_going).map_err(FileToolError::of(path, MISSING))
        }
    }
}

struct Range {
    first: u64,
    lines: u64,
    bytes: usize,
}

/// The selected lines of a stream of bytes.
struct Slice<'a> {
    range: &'a Range,
    content: Vec<u8>,
    /// Number of newlines so far.
    ends: u64,
    /// The byte limit was reached.
    cut: bool,
    /// The stream has more than the selected lines.
    beyond: bool,
    last: Option<u8>,
}

impl<'a> Slice<'a> {
    fn new(range: &'a Range) -> Self {
        Self {
            range,
            content: Vec::new(),
            ends: 0,
            cut: false,
            beyond: false,
            last: None,
        }
    }

    fn push(&mut self, mut chunk: &[u8]) {
        self.last = chunk.last().copied().or(self.last);
        while !chunk.is_empty() {
            let line = self.ends + 1;
            let before = line < self.range.first;
            let after = self.cut || line - self.range.first.min(line) >= self.range.lines;
            if !before && after {
                self.beyond = true;
                self.ends += memchr::memchr_iter(b'\n', chunk).count() as u64;
                return;
            }
            let end = memchr::memchr(b'\n', chunk);
            let (part, rest) = chunk.split_at(end.map_or(chunk.len(), |end| end + 1));
            if !before {
                let remaining = self.range.bytes - self.content.len();
                self.content
                    .extend_from_slice(&part[..part.len().min(remaining)]);
                self.cut = part.len() > remaining;
                self.beyond |= self.cut;
            }
            self.ends += u64::from(end.is_some());
            chunk = rest;
        }
    }

    /// The number of lines, at the end of the stream.
    fn total(&self) -> u64 {
        self.ends + u64::from(self.last.is_some_and(|last| last != b'\n'))
    }

    fn is_full(&self) -> bool {
        self.beyond
    }

    fn into_content(mut self) -> (String, bool) {
        if self.cut
            && let Err(error) = std::str::from_utf8(&self.content)
            && error.error_len().is_none()
        {
            // The last character is incomplete.
            self.content.truncate(error.valid_up_to());
        }
        let mut content = String::from_utf8_lossy(&self.content).into_owned();
        // Replacement characters are longer than the bytes they replace.
        let fits = content.len() <= self.range.bytes;
        content.truncate(content.floor_char_boundary(self.range.bytes));
        (content, self.beyond || !fits)
    }
}

/// Stops when `keep_going` returns false; the result is truncated then.
fn text(
    file: &mut File,
    size: u64,
    range: &Range,
    keep_going: &dyn Fn() -> bool,
) -> std::io::Result<Text> {
    let mut buffer = vec![0_u8; CHUNK];
    let mut read = open::fill(file, &mut buffer)?;
    if memchr::memchr(0, &buffer[..read.min(BINARY_CHECK_BYTES)]).is_some() {
        return Ok(Text {
            is_binary: true,
            first_line: range.first,
            size,
            ..Text::default()
        });
    }
    let mut slice = Slice::new(range);
    let mut ended = true;
    while read > 0 {
        slice.push(&buffer[..read]);
        if slice.is_full() && size > COUNTED_BYTES || !keep_going() {
            slice.beyond = true;
            ended = false;
            break;
        }
        read = open::fill(file, &mut buffer)?;
    }
    let total_lines = ended.then(|| slice.total());
    Ok(finish(slice, total_lines, size))
}

fn finish(slice: Slice<'_>, total_lines: Option<u64>, size: u64) -> Text {
    let first_line = slice.range.first;
    let (content, truncated) = slice.into_content();
    Text {
        lines: lines_in(&content),
        content,
        first_line,
        total_lines,
        size,
        truncated,
        ..Text::default()
    }
}

fn lines_in(content: &str) -> u64 {
    let ends = memchr::memchr_iter(b'\n', content.as_bytes()).count() as u64;
    ends + u64::from(!content.is_empty() && !content.ends_with('\n'))
}

/// The first names in sorted order, in bounded memory.
fn names(directory: &OwnedFd, range: &Range) -> std::io::Result<Text> {
    let mut first_names = BinaryHeap::new();
    let (mut bytes, mut total) = (0, 0_u64);
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        total += 1;
        bytes += name.len() + 1;
        first_names.push(name.to_vec());
        while bytes > MAX_TEXT_BYTES {
            let Some(last) = first_names.pop() else { break };
            bytes -= last.len() + 1;
        }
    }
    let is_complete = first_names.len() as u64 == total;
    let mut slice = Slice::new(range);
    let names = first_names.into_sorted_vec();
    for (index, name) in names.iter().enumerate() {
        if index > 0 {
            slice.push(b"\n");
        }
        slice.push(name);
    }
    let mut text = finish(slice, Some(total), 0);
    // The newline before the first omitted name.
    if text.truncated && text.content.ends_with('\n') {
        text.content.pop();
    }
    text.is_directory = true;
    text.truncated |= !is_complete;
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(name: &str, bytes: &[u8]) -> (tempfile::TempDir, String) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join(name);
        std::fs::write(&path, bytes).expect("write");
        let path = path.to_str().expect("UTF-8").to_owned();
        (directory, path)
    }

    fn read(
        path: &str,
        offset: u64,
        limit: Option<u64>,
        max_bytes: u64,
    ) -> Result<Text, FileToolError> {
        super::read(path, offset, limit, max_bytes, &|| true)
    }

    #[test]
    fn reading_stops_when_the_caller_has_gone() {
        let (_home, path) = at("large", b"a\nb\n");
        let file = File::options().write(true).open(&path).expect("a file");
        // A huge sparse file whose beginning is text.
        std::os::unix::fs::FileExt::write_all_at(&file, &vec![b'x'; BINARY_CHECK_BYTES], 4)
            .expect("written");
        file.set_len(1 << 42).expect("sparse");
        let calls = std::cell::Cell::new(0);
        let keep_going = || {
            calls.set(calls.get() + 1);
            calls.get() < 3
        };
        let read = super::read(&path, 1 << 40, None, 100, &keep_going).expect("read");
        assert_eq!((read.content.as_str(), read.total_lines), ("", None));
        assert!(read.truncated);
        assert_eq!(calls.get(), 3);
    }

    fn slice(bytes: &[u8], offset: u64, limit: Option<u64>, max_bytes: u64) -> Text {
        let (_directory, path) = at("file", bytes);
        read(&path, offset, limit, max_bytes).expect("read")
    }

    #[test]
    fn a_whole_file_is_returned_unchanged() {
        for text in ["", "a", "a\n", "a\r\nb", "ä\n\n\nö\n"] {
            let read = slice(text.as_bytes(), 1, None, 1000);
            assert_eq!(read.content, text);
            assert_eq!(read.lines, text.lines().count() as u64, "{text:?}");
            assert_eq!(read.total_lines, Some(read.lines), "{text:?}");
            assert!(!read.truncated && !read.is_binary);
        }
    }

    #[test]
    fn lines_are_counted_from_one() {
        let read = slice(b"one\ntwo\nthree\nfour", 2, Some(2), 1000);
        assert_eq!(read.content, "two\nthree\n");
        assert_eq!((read.first_line, read.lines), (2, 2));
        assert_eq!(read.total_lines, Some(4));
        assert!(read.truncated);
        let read = slice(b"one\ntwo\nthree\nfour", 4, Some(9), 1000);
        assert_eq!(
            (read.content.as_str(), read.truncated, read.total_lines),
            ("four", false, Some(4))
        );
        let read = slice(b"one\ntwo\n", 3, None, 1000);
        assert_eq!(
            (read.content.as_str(), read.lines, read.truncated),
            ("", 0, false)
        );
        let read = slice(b"one\ntwo\n", 1, Some(2), 1000);
        assert!(!read.truncated);
    }

    #[test]
    fn the_byte_limit_never_splits_a_character() {
        let read = slice("aää\nbbb".as_bytes(), 1, None, 4);
        assert_eq!(read.content, "aä");
        assert!(read.truncated);
        assert_eq!((read.lines, read.total_lines), (1, Some(2)));
        // Replacement characters are longer than the invalid bytes, and the limit still holds.
        let read = slice(&[0xff; 10], 1, None, 10);
        assert_eq!(read.content, "\u{fffd}".repeat(3));
        assert!(read.truncated);
    }

    #[test]
    fn a_long_file_is_sliced_across_chunks() {
        let lines: Vec<String> = (1..=50_000).map(|n| format!("line {n}\n")).collect();
        let text = lines.concat();
        let read = slice(text.as_bytes(), 30_000, Some(3), 1 << 20);
        assert_eq!(read.content, "line 30000\nline 30001\nline 30002\n");
        assert_eq!(read.total_lines, Some(50_000));
    }

    #[test]
    fn a_file_with_nul_bytes_is_binary() {
        let read = slice(b"\x7fELF\0\0", 1, None, 100);
        assert!(read.is_binary && read.content.is_empty());
        assert_eq!(read.size, 6);
    }

    #[test]
    fn a_directory_gives_its_names_in_order() {
        let (directory, _) = at("b", b"");
        for name in ["a", "c", ".hidden"] {
            std::fs::write(directory.path().join(name), "").expect("write");
        }
        let path = directory.path().to_str().expect("UTF-8");
        let read_all = read(path, 1, None, 1000).expect("read");
        assert!(read_all.is_directory && !read_all.truncated);
        assert_eq!(read_all.content, ".hidden\na\nb\nc");
        assert_eq!(read_all.total_lines, Some(4));
        let some = read(path, 2, Some(2), 1000).expect("read");
        assert_eq!((some.content.as_str(), some.truncated), ("a\nb", true));
    }

    #[test]
    fn missing_paths_and_special_files_are_errors() {
        let missing = read("/no/such/file", 1, None, 10).expect_err("nothing there");
        assert_eq!(missing.text, "File not found: /no/such/file");
        assert_eq!(missing.fault, FileToolErrorKind::NotFound);
        let device = read("/dev/null", 1, None, 10).expect_err("a device");
        assert_eq!(device.text, "Not a regular file: /dev/null");
        let procfs = read("/proc/self/status", 1, None, 10).expect_err("procfs");
        assert_eq!(procfs.fault, FileToolErrorKind::NotAFile);
        let pipe = tempfile::tempdir().expect("a directory");
        let pipe = pipe.path().join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .expect("a pipe");
        let pipe = read(pipe.to_str().expect("UTF-8"), 1, None, 10).expect_err("a pipe");
        assert_eq!(pipe.fault, FileToolErrorKind::NotAFile);
    }
}
