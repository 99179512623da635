//! Some lines of a text file, or the names in a directory.

use std::collections::BinaryHeap;
use std::fs::File;
use std::os::fd::OwnedFd;

use rustix::fs::Dir;

use super::MOST_TEXT;
use super::open::{self, Opened};
use super::words::{Text, ToolFailure, ToolFault};

const MISSING: &str = "File not found";
/// Text has no NUL; so much of a file is looked at to tell.
const LOOK: usize = 8 * 1024;
const CHUNK: usize = 64 * 1024;
/// The lines of a file of this size are counted to its end: it takes a few milliseconds.
const CHEAP: u64 = 16 * 1024 * 1024;

pub(super) fn read(
    path: &str,
    offset: u64,
    limit: Option<u64>,
    max_bytes: u64,
    goes_on: &dyn Fn() -> bool,
) -> Result<Text, ToolFailure> {
    for (number, name) in [(Some(offset), "offset"), (limit, "limit")] {
        if number == Some(0) {
            let text = format!("{name} must be at least 1");
            return Err(ToolFailure::new(ToolFault::Unfit, text));
        }
    }
    let wish = Wish {
        first: offset,
        lines: limit.unwrap_or(u64::MAX),
        bytes: usize::try_from(max_bytes).map_or(MOST_TEXT, |bytes| bytes.min(MOST_TEXT)),
    };
    match open::open(path, MISSING)? {
        Opened::Directory(directory) => {
            names(&directory, &wish).map_err(ToolFailure::of(path, MISSING))
        }
        Opened::File(mut file, stat) => {
            let size = u64::try_from(stat.st_size).unwrap_or(0);
            text(&mut file, size, &wish, goes_on).map_err(ToolFailure::of(path, MISSING))
        }
    }
}

struct Wish {
    first: u64,
    lines: u64,
    bytes: usize,
}

/// What is kept of a stream of bytes, line by line.
struct Slice<'a> {
    wish: &'a Wish,
    kept: Vec<u8>,
    /// Line ends so far.
    ends: u64,
    /// Some of it was wanted, and there was no room.
    cut: bool,
    /// There was something behind what is kept.
    beyond: bool,
    last: Option<u8>,
}

impl<'a> Slice<'a> {
    fn new(wish: &'a Wish) -> Self {
        Self {
            wish,
            kept: Vec::new(),
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
            let before = line < self.wish.first;
            let behind = self.cut || line - self.wish.first.min(line) >= self.wish.lines;
            if !before && behind {
                self.beyond = true;
                self.ends += memchr::memchr_iter(b'\n', chunk).count() as u64;
                return;
            }
            let end = memchr::memchr(b'\n', chunk);
            let (piece, rest) = chunk.split_at(end.map_or(chunk.len(), |end| end + 1));
            if !before {
                let room = self.wish.bytes - self.kept.len();
                self.kept.extend_from_slice(&piece[..piece.len().min(room)]);
                self.cut = piece.len() > room;
                self.beyond |= self.cut;
            }
            self.ends += u64::from(end.is_some());
            chunk = rest;
        }
    }

    /// All of it has been seen.
    fn total(&self) -> u64 {
        self.ends + u64::from(self.last.is_some_and(|last| last != b'\n'))
    }

    fn is_full(&self) -> bool {
        self.beyond
    }

    fn into_content(mut self) -> (String, bool) {
        if self.cut
            && let Err(error) = std::str::from_utf8(&self.kept)
            && error.error_len().is_none()
        {
            // The last character was cut in two.
            self.kept.truncate(error.valid_up_to());
        }
        let mut content = String::from_utf8_lossy(&self.kept).into_owned();
        // What stands for bytes that are no text is longer than they are.
        let whole = content.len() <= self.wish.bytes;
        content.truncate(content.floor_char_boundary(self.wish.bytes));
        (content, self.beyond || !whole)
    }
}

/// A file can be larger than anybody could wait for; what was not reached by then is as if it were not
/// kept.
fn text(
    file: &mut File,
    size: u64,
    wish: &Wish,
    goes_on: &dyn Fn() -> bool,
) -> std::io::Result<Text> {
    let mut buffer = vec![0_u8; CHUNK];
    let mut read = open::fill(file, &mut buffer)?;
    if memchr::memchr(0, &buffer[..read.min(LOOK)]).is_some() {
        return Ok(Text {
            is_binary: true,
            first_line: wish.first,
            size,
            ..Text::default()
        });
    }
    let mut slice = Slice::new(wish);
    let mut ended = true;
    while read > 0 {
        slice.push(&buffer[..read]);
        if slice.is_full() && size > CHEAP || !goes_on() {
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
    let first_line = slice.wish.first;
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

/// The first names in their order, however many there are: of a directory without end the answer
/// keeps what fits.
fn names(directory: &OwnedFd, wish: &Wish) -> std::io::Result<Text> {
    let mut kept = BinaryHeap::new();
    let (mut bytes, mut total) = (0, 0_u64);
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        total += 1;
        bytes += name.len() + 1;
        kept.push(name.to_vec());
        while bytes > MOST_TEXT {
            let Some(last) = kept.pop() else { break };
            bytes -= last.len() + 1;
        }
    }
    let whole = kept.len() as u64 == total;
    let mut slice = Slice::new(wish);
    let names = kept.into_sorted_vec();
    for (place, name) in names.iter().enumerate() {
        if place > 0 {
            slice.push(b"\n");
        }
        slice.push(name);
    }
    let mut text = finish(slice, Some(total), 0);
    // The line end before a name that was not wanted.
    if text.truncated && text.content.ends_with('\n') {
        text.content.pop();
    }
    text.is_directory = true;
    text.truncated |= !whole;
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

    fn read(path: &str, offset: u64, limit: Option<u64>, most: u64) -> Result<Text, ToolFailure> {
        super::read(path, offset, limit, most, &|| true)
    }

    #[test]
    fn a_file_without_an_end_is_given_up() {
        let (_home, path) = at("large", b"a\nb\n");
        let file = File::options().write(true).open(&path).expect("a file");
        // Far more than could be read, and text as far as anybody looks.
        std::os::unix::fs::FileExt::write_all_at(&file, &vec![b'x'; LOOK], 4).expect("written");
        file.set_len(1 << 42).expect("sparse");
        let looks = std::cell::Cell::new(0);
        let goes_on = || {
            looks.set(looks.get() + 1);
            looks.get() < 3
        };
        let read = super::read(&path, 1 << 40, None, 100, &goes_on).expect("read");
        assert_eq!((read.content.as_str(), read.total_lines), ("", None));
        assert!(read.truncated);
        assert_eq!(looks.get(), 3);
    }

    fn slice(bytes: &[u8], offset: u64, limit: Option<u64>, most: u64) -> Text {
        let (_directory, path) = at("file", bytes);
        read(&path, offset, limit, most).expect("read")
    }

    #[test]
    fn a_whole_file_comes_back_as_it_is() {
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
    fn the_cap_of_bytes_never_cuts_a_character() {
        let read = slice("aää\nbbb".as_bytes(), 1, None, 4);
        assert_eq!(read.content, "aä");
        assert!(read.truncated);
        assert_eq!((read.lines, read.total_lines), (1, Some(2)));
        // Bytes that are no text become longer ones, and the cap still holds.
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
    fn what_is_not_there_or_no_file_is_told() {
        let missing = read("/no/such/file", 1, None, 10).expect_err("nothing there");
        assert_eq!(missing.text, "File not found: /no/such/file");
        assert_eq!(missing.fault, ToolFault::NotFound);
        let device = read("/dev/null", 1, None, 10).expect_err("a device");
        assert_eq!(device.text, "Not a regular file: /dev/null");
        let kernels = read("/proc/self/status", 1, None, 10).expect_err("procfs");
        assert_eq!(kernels.fault, ToolFault::NotAFile);
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
        assert_eq!(pipe.fault, ToolFault::NotAFile);
    }
}
