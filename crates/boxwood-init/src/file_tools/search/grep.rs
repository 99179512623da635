//! Finds lines that match a regular expression.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use grep_matcher::Matcher as _;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{
    BinaryDetection, MmapChoice, Searcher, SearcherBuilder, Sink, SinkFinish, SinkMatch,
};
use ignore::types::{Types, TypesBuilder};
use rustix::fs::{Mode, OFlags};

use super::pattern::{self, Pattern};
use super::walk::{self, Entry, Kind, Visit};
use super::{IsCallerWaiting, SearchControl};
use crate::file_tools::MAX_TEXT_BYTES;
use crate::file_tools::open::{self, OPEN_FLAGS, Opened};
use crate::file_tools::types::{FileToolError, FileToolErrorKind, GrepLine, GrepQuery, Lines};

const MAX_LINE_CHARS: usize = 2_000;
/// Bytes shown before the match in a truncated line.
const LEADING_BYTES: usize = 200;
/// A file with a longer line is skipped, and the result is partial.
const MAX_SEARCHED_LINE_BYTES: usize = 8 * 1024 * 1024;
const BUFFER: usize = 64 * 1024;
/// Memory limit of the compiled expression, and of the cache of each thread.
const EXPRESSION_BYTES: usize = 4 * 1024 * 1024;

pub(in crate::file_tools) fn grep(
    query: &GrepQuery,
    control: SearchControl,
    is_caller_waiting: &IsCallerWaiting<'_>,
) -> Result<Lines, FileToolError> {
    let control = Arc::new(control);
    let search = Arc::new(Search {
        matcher: matcher(query)?,
        include: query
            .include
            .as_deref()
            .map(|include| pattern::compile(include, &query.path))
            .transpose()?,
        types: query.file_type.as_deref().map(types).transpose()?,
        limit: query.limit,
        root: query.path.clone(),
        control: Arc::clone(&control),
        found: Mutex::default(),
        searched: AtomicU64::new(0),
    });
    match open::open(&query.path, "Path not found")? {
        Opened::Directory(top) => {
            let root = Path::new(&query.path);
            walk::walk(
                root,
                top,
                query.ignored,
                &search,
                &control,
                is_caller_waiting,
            );
        }
        // A file that is named explicitly is always searched.
        Opened::File(file, _) => {
            let mut state = search.thread_state();
            search.search(&mut state, file, || query.path.clone());
            search.after_directory(&mut state);
        }
    }
    let mut found = std::mem::take(&mut *search.found());
    found.lines.sort_unstable();
    let truncated = control.is_partial() || found.total > found.lines.len() as u64;
    Ok(Lines {
        lines: found.lines,
        total: found.total,
        truncated,
        files_searched: search.searched.load(Ordering::Relaxed),
    })
}

fn matcher(query: &GrepQuery) -> Result<RegexMatcher, FileToolError> {
    RegexMatcherBuilder::new()
        .case_insensitive(query.ignore_case)
        .line_terminator(Some(b'\n'))
        .size_limit(EXPRESSION_BYTES)
        .dfa_size_limit(EXPRESSION_BYTES)
        .build(&query.pattern)
        .map_err(|error| {
            let text = format!("Invalid regex: {error}");
            FileToolError::new(FileToolErrorKind::InvalidArgument, text)
        })
}

fn types(name: &str) -> Result<Types, FileToolError> {
    TypesBuilder::new()
        .add_defaults()
        .select(name)
        .build()
        .map_err(|_| {
            let text =
                format!("Unknown file type: {name}; use a name such as py, js, rust, or a glob");
            FileToolError::new(FileToolErrorKind::InvalidArgument, text)
        })
}

#[derive(Default)]
struct Found {
    lines: Vec<GrepLine>,
    bytes: usize,
    total: u64,
}

struct Search {
    matcher: RegexMatcher,
    include: Option<Pattern>,
    types: Option<Types>,
    limit: usize,
    root: String,
    control: Arc<SearchControl>,
    found: Mutex<Found>,
    searched: AtomicU64,
}

pub(super) struct ThreadState {
    searcher: Searcher,
    /// A copy, so that threads do not share its scratch space.
    matcher: RegexMatcher,
    buffer: Vec<u8>,
    searched: u64,
}

impl Visit for Search {
    type ThreadState = ThreadState;

    fn thread_state(&self) -> ThreadState {
        let searcher = SearcherBuilder::new()
            .line_number(true)
            .binary_detection(BinaryDetection::quit(0))
            .memory_map(MmapChoice::never())
            .heap_limit(Some(MAX_SEARCHED_LINE_BYTES))
            .build();
        ThreadState {
            searcher,
            matcher: self.matcher.clone(),
            buffer: vec![0; BUFFER],
            searched: 0,
        }
    }

    fn on_entry(&self, state: &mut ThreadState, entry: &Entry<'_>) {
        // Symlinks are not followed.
        if entry.kind == Kind::Link || !self.is_wanted(entry.below) {
            return;
        }
        // Non-blocking, because the file may have been replaced.
        let flags = OPEN_FLAGS | OFlags::NOFOLLOW;
        if let Ok(fd) = rustix::fs::openat(entry.directory, entry.name, flags, Mode::empty()) {
            let shown = || walk::shown(Path::new(&self.root), entry.below);
            self.search(state, File::from(fd), shown);
        }
    }

    fn after_directory(&self, state: &mut ThreadState) {
        let searched = std::mem::take(&mut state.searched);
        self.searched.fetch_add(searched, Ordering::Relaxed);
    }
}

impl Search {
    fn is_wanted(&self, below: &Path) -> bool {
        let fits = |include: &Pattern| include.fits(below);
        self.include.as_ref().is_none_or(fits)
            && (self.types.as_ref()).is_none_or(|types| types.matched(below, false).is_whitelist())
    }

    fn found(&self) -> MutexGuard<'_, Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn search(&self, state: &mut ThreadState, mut file: File, path: impl Fn() -> String) {
        let ThreadState {
            searcher,
            matcher,
            buffer,
            searched,
        } = state;
        *searched += 1;
        let mut hits = Hits {
            matcher,
            lines: Vec::new(),
            max_lines: self.limit + 1,
            bytes: 0,
            is_binary: false,
        };
        // Most files fit into the buffer: a short read is the end of the file.
        let outcome = match file.read(buffer) {
            Ok(read) if read < buffer.len() => {
                if has_none(matcher, &buffer[..read]) {
                    return;
                }
                searcher.search_slice(&*matcher, &buffer[..read], &mut hits)
            }
            Ok(_) => {
                let rest = DeadlineReader {
                    file,
                    control: &self.control,
                };
                searcher.search_reader(&*matcher, buffer.as_slice().chain(rest), &mut hits)
            }
            // No longer a regular file.
            Err(_) => return,
        };
        if outcome.is_err() && !self.control.is_over() {
            // A line that is too long, or an I/O error.
            self.control.leave_out();
        }
        if hits.is_binary || hits.lines.is_empty() {
            return;
        }
        let file = path();
        let mut found = self.found();
        for (line, content) in hits.lines {
            found.total += 1;
            let bytes = file.len() + content.len();
            if found.lines.len() < self.limit && found.bytes + bytes <= MAX_TEXT_BYTES {
                found.bytes += bytes;
                found.lines.push(GrepLine {
                    file: file.clone(),
                    line,
                    content,
                });
            } else {
                self.control.end();
            }
        }
    }
}

/// Returns true if the buffer certainly has no matching line. A fast path for most files.
fn has_none(matcher: &RegexMatcher, bytes: &[u8]) -> bool {
    // A byte order mark: the text needs transcoding.
    let is_marked = matches!(bytes.first(), Some(0xef | 0xfe | 0xff));
    // An expression with `\A` or `\z` has none, and must be matched line by line.
    let is_of_lines = matcher.line_terminator().is_some();
    is_of_lines && !is_marked && matches!(matcher.find_candidate_line(bytes), Ok(None))
}

/// Fails after the deadline.
struct DeadlineReader<'a> {
    file: File,
    control: &'a SearchControl,
}

impl io::Read for DeadlineReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.control.is_over() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.file.read(buffer)
    }
}

/// Matches of one file. Discarded if the file turns out to be binary.
struct Hits<'a> {
    matcher: &'a RegexMatcher,
    lines: Vec<(u64, String)>,
    max_lines: usize,
    bytes: usize,
    is_binary: bool,
}

impl Sink for Hits<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, hit: &SinkMatch<'_>) -> io::Result<bool> {
        let content = self.shown(hit.bytes());
        self.bytes += content.len();
        self.lines.push((hit.line_number().unwrap_or(0), content));
        Ok(self.lines.len() < self.max_lines && self.bytes <= MAX_TEXT_BYTES)
    }

    fn finish(&mut self, _: &Searcher, end: &SinkFinish) -> io::Result<()> {
        self.is_binary = end.binary_byte_offset().is_some();
        Ok(())
    }
}

impl Hits<'_> {
    /// The line without its end; of a long line the part around the match.
    fn shown(&self, line: &[u8]) -> String {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let max_bytes = MAX_LINE_CHARS * char::MAX_LEN_UTF8;
        let found = self.matcher.find(line).ok().flatten();
        let distant_match =
            found.filter(|found| found.end() > MAX_LINE_CHARS && line.len() > MAX_LINE_CHARS);
        let start = distant_match.map_or(0, |found| {
            let start = found.start().saturating_sub(LEADING_BYTES);
            // At a character boundary.
            (start..line.len())
                .find(|&index| line[index] & 0xc0 != 0x80)
                .unwrap_or(start)
        });
        let part = &line[start..line.len().min(start + max_bytes)];
        let text = String::from_utf8_lossy(part);
        let mark = if start > 0 { "…" } else { "" };
        mark.chars()
            .chain(text.chars())
            .take(MAX_LINE_CHARS)
            .collect()
    }
}
