//! Lines that fit a regular expression.

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

use super::MOST_TEXT;
use super::leash::{Leash, Wanted};
use super::listing::Kind;
use super::open::{self, CALMLY, Opened};
use super::pattern::{self, Pattern};
use super::walk::{self, Met, Visit};
use super::words::{GrepLine, GrepOrder, Lines, ToolFailure, ToolFault};

const LONGEST_LINE: usize = 2_000;
/// How much of a cut line stands before what fits.
const LEAD: usize = 200;
/// A file with a longer line is passed by, and the answer says that it is not whole.
const LONGEST_SEARCHED_LINE: usize = 8 * 1024 * 1024;
const BUFFER: usize = 64 * 1024;
/// Room for one compiled expression, and for what each thread builds of it while it searches.
const EXPRESSION: usize = 4 * 1024 * 1024;

pub(super) fn grep(
    order: &GrepOrder,
    leash: Leash,
    wanted: &Wanted<'_>,
) -> Result<Lines, ToolFailure> {
    let leash = Arc::new(leash);
    let search = Arc::new(Search {
        matcher: matcher(order)?,
        include: order
            .include
            .as_deref()
            .map(|include| pattern::compile(include, &order.path))
            .transpose()?,
        types: order.file_type.as_deref().map(types).transpose()?,
        limit: order.limit,
        root: order.path.clone(),
        leash: Arc::clone(&leash),
        found: Mutex::default(),
        searched: AtomicU64::new(0),
    });
    match open::open(&order.path, "Path not found")? {
        Opened::Directory(top) => {
            let root = Path::new(&order.path);
            walk::walk(root, top, order.ignored, &search, &leash, wanted);
        }
        // Who names a file wants that file.
        Opened::File(file, _) => {
            let mut tools = search.tools();
            search.search(&mut tools, file, || order.path.clone());
            search.pause(&mut tools);
        }
    }
    let mut found = std::mem::take(&mut *search.found());
    found.lines.sort_unstable();
    let truncated = leash.is_partial() || found.total > found.lines.len() as u64;
    Ok(Lines {
        lines: found.lines,
        total: found.total,
        truncated,
        files_searched: search.searched.load(Ordering::Relaxed),
    })
}

fn matcher(order: &GrepOrder) -> Result<RegexMatcher, ToolFailure> {
    RegexMatcherBuilder::new()
        .case_insensitive(order.ignore_case)
        .line_terminator(Some(b'\n'))
        .size_limit(EXPRESSION)
        .dfa_size_limit(EXPRESSION)
        .build(&order.pattern)
        .map_err(|error| {
            let text = format!("Invalid regex: {error}");
            ToolFailure::new(ToolFault::Unfit, text)
        })
}

fn types(name: &str) -> Result<Types, ToolFailure> {
    TypesBuilder::new()
        .add_defaults()
        .select(name)
        .build()
        .map_err(|_| {
            let text =
                format!("Unknown file type: {name}; use a name such as py, js, rust, or a glob");
            ToolFailure::new(ToolFault::Unfit, text)
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
    leash: Arc<Leash>,
    found: Mutex<Found>,
    searched: AtomicU64,
}

pub(super) struct Tools {
    searcher: Searcher,
    /// A copy, so that threads do not share its scratch space.
    matcher: RegexMatcher,
    buffer: Vec<u8>,
    searched: u64,
}

impl Visit for Search {
    type Tools = Tools;

    fn tools(&self) -> Tools {
        let searcher = SearcherBuilder::new()
            .line_number(true)
            .binary_detection(BinaryDetection::quit(0))
            .memory_map(MmapChoice::never())
            .heap_limit(Some(LONGEST_SEARCHED_LINE))
            .build();
        Tools {
            searcher,
            matcher: self.matcher.clone(),
            buffer: vec![0; BUFFER],
            searched: 0,
        }
    }

    fn meet(&self, tools: &mut Tools, met: &Met<'_>) {
        // What a link leads to is searched where it is.
        if met.kind == Kind::Link || !self.is_wanted(met.below) {
            return;
        }
        // A moment ago it was a file. Should it be something else by now, reading does not wait.
        let flags = CALMLY | OFlags::NOFOLLOW;
        if let Ok(fd) = rustix::fs::openat(met.directory, met.name, flags, Mode::empty()) {
            let shown = || walk::shown(Path::new(&self.root), met.below);
            self.search(tools, File::from(fd), shown);
        }
    }

    fn pause(&self, tools: &mut Tools) {
        let searched = std::mem::take(&mut tools.searched);
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

    fn search(&self, tools: &mut Tools, mut file: File, path: impl Fn() -> String) {
        let Tools {
            searcher,
            matcher,
            buffer,
            searched,
        } = tools;
        *searched += 1;
        let mut hits = Hits {
            matcher,
            lines: Vec::new(),
            most: self.limit + 1,
            bytes: 0,
            is_binary: false,
        };
        // Most files fit, and then one read is all that it takes: less than was asked for is the end.
        let searched = match file.read(buffer) {
            Ok(read) if read < buffer.len() => {
                if has_none(matcher, &buffer[..read]) {
                    return;
                }
                searcher.search_slice(&*matcher, &buffer[..read], &mut hits)
            }
            Ok(_) => {
                let rest = Leashed {
                    file,
                    leash: &self.leash,
                };
                searcher.search_reader(&*matcher, buffer.as_slice().chain(rest), &mut hits)
            }
            // Nobody writes to what has become a pipe, or the like.
            Err(_) => return,
        };
        if searched.is_err() && !self.leash.is_over() {
            // A line without end, or a disk that fails.
            self.leash.leave_out();
        }
        if hits.is_binary || hits.lines.is_empty() {
            return;
        }
        let file = path();
        let mut found = self.found();
        for (line, content) in hits.lines {
            found.total += 1;
            let bytes = file.len() + content.len();
            if found.lines.len() < self.limit && found.bytes + bytes <= MOST_TEXT {
                found.bytes += bytes;
                found.lines.push(GrepLine {
                    file: file.clone(),
                    line,
                    content,
                });
            } else {
                self.leash.end();
            }
        }
    }
}

/// Whether no line fits, as far as can be told without going from line to line. Most files are done with
/// this; whether they are text does not matter then.
fn has_none(matcher: &RegexMatcher, bytes: &[u8]) -> bool {
    // A mark of the encoding begins with one of these; such a text is read in another way.
    let is_marked = matches!(bytes.first(), Some(0xef | 0xfe | 0xff));
    // Without it the expression speaks of where a text begins or ends, and each line is one.
    let is_of_lines = matcher.line_terminator().is_some();
    is_of_lines && !is_marked && matches!(matcher.find_candidate_line(bytes), Ok(None))
}

/// A file that ends when time does.
struct Leashed<'a> {
    file: File,
    leash: &'a Leash,
}

impl io::Read for Leashed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.leash.is_over() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.file.read(buffer)
    }
}

/// What fits in one file. It counts only once the whole file is known to be text.
struct Hits<'a> {
    matcher: &'a RegexMatcher,
    lines: Vec<(u64, String)>,
    most: usize,
    bytes: usize,
    is_binary: bool,
}

impl Sink for Hits<'_> {
    type Error = io::Error;

    fn matched(&mut self, _: &Searcher, hit: &SinkMatch<'_>) -> io::Result<bool> {
        let content = self.shown(hit.bytes());
        self.bytes += content.len();
        self.lines.push((hit.line_number().unwrap_or(0), content));
        Ok(self.lines.len() < self.most && self.bytes <= MOST_TEXT)
    }

    fn finish(&mut self, _: &Searcher, end: &SinkFinish) -> io::Result<()> {
        self.is_binary = end.binary_byte_offset().is_some();
        Ok(())
    }
}

impl Hits<'_> {
    /// Without its end; of a long one the part around what fits.
    fn shown(&self, line: &[u8]) -> String {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let most = LONGEST_LINE * char::MAX_LEN_UTF8;
        let fits = self.matcher.find(line).ok().flatten();
        let far = fits.filter(|fits| fits.end() > LONGEST_LINE && line.len() > LONGEST_LINE);
        let start = far.map_or(0, |fits| {
            let start = fits.start().saturating_sub(LEAD);
            // At the beginning of a character.
            (start..line.len())
                .find(|&at| line[at] & 0xc0 != 0x80)
                .unwrap_or(start)
        });
        let part = &line[start..line.len().min(start + most)];
        let text = String::from_utf8_lossy(part);
        let mark = if start > 0 { "…" } else { "" };
        mark.chars()
            .chain(text.chars())
            .take(LONGEST_LINE)
            .collect()
    }
}
