//! Converts between types of `boxwood-api` and of the box.

use std::time::Duration;

use boxwood_api::{
    EditTextRequest, EditedText, GlobMatches, GlobRequest, GrepMatch, GrepMatches, GrepRequest,
    ReadTextRequest, TextSlice, WriteTextRequest, WrittenText,
};

use super::SEARCH_TIME;
use super::types::{Edited, FileTool, FileToolRequest, Found, GrepQuery, Lines, Text, Written};

const READ_BYTES: u64 = 256 * 1024;
const GLOB_LIMIT: usize = 100;
const GREP_LIMIT: usize = 200;
const MAX_PATHS: usize = 10_000;
const MAX_LINES: usize = 10_000;

fn limited(requested: Option<u64>, default: usize, max: usize) -> usize {
    requested.map_or(default, |requested| {
        usize::try_from(requested).unwrap_or(max).clamp(1, max)
    })
}

impl From<FileTool> for FileToolRequest {
    fn from(tool: FileTool) -> Self {
        let search: Duration = SEARCH_TIME;
        Self {
            tool,
            search_ms: u64::try_from(search.as_millis()).unwrap_or(u64::MAX),
        }
    }
}

impl From<ReadTextRequest> for FileTool {
    fn from(request: ReadTextRequest) -> Self {
        Self::Read {
            path: request.path,
            offset: request.offset.unwrap_or(1),
            limit: request.limit,
            max_bytes: request.max_bytes.unwrap_or(READ_BYTES),
        }
    }
}

impl From<WriteTextRequest> for FileTool {
    fn from(request: WriteTextRequest) -> Self {
        Self::Write {
            path: request.path,
            content: request.content,
        }
    }
}

impl From<EditTextRequest> for FileTool {
    fn from(request: EditTextRequest) -> Self {
        Self::Edit {
            path: request.path,
            old: request.old_string,
            new: request.new_string,
            all: request.replace_all,
        }
    }
}

impl From<GlobRequest> for FileTool {
    fn from(request: GlobRequest) -> Self {
        Self::Glob {
            pattern: request.pattern,
            path: request.path,
            limit: limited(request.limit, GLOB_LIMIT, MAX_PATHS),
            ignored: request.ignored,
        }
    }
}

impl From<GrepRequest> for FileTool {
    fn from(request: GrepRequest) -> Self {
        Self::Grep(GrepQuery {
            pattern: request.pattern,
            path: request.path,
            include: request.include,
            file_type: request.file_type,
            ignore_case: request.ignore_case,
            limit: limited(request.limit, GREP_LIMIT, MAX_LINES),
            ignored: request.ignored,
        })
    }
}

impl Text {
    pub fn at(self, path: String) -> TextSlice {
        TextSlice {
            path,
            content: self.content,
            is_directory: self.is_directory,
            is_binary: self.is_binary,
            first_line: self.first_line,
            lines: self.lines,
            total_lines: self.total_lines,
            size: self.size,
            truncated: self.truncated,
        }
    }
}

impl Written {
    pub fn at(self, path: String) -> WrittenText {
        WrittenText {
            path,
            size: self.size,
            created: self.created,
        }
    }
}

impl Edited {
    pub fn at(self, path: String) -> EditedText {
        EditedText {
            path,
            replaced: self.replaced,
            diff: self.diff,
            size: self.size,
        }
    }
}

impl From<Found> for GlobMatches {
    fn from(found: Found) -> Self {
        Self {
            matches: found.paths,
            total: found.total,
            truncated: found.truncated,
        }
    }
}

impl From<Lines> for GrepMatches {
    fn from(lines: Lines) -> Self {
        let matches = lines.lines.into_iter().map(|line| GrepMatch {
            file: line.file,
            line: line.line,
            content: line.content,
        });
        Self {
            matches: matches.collect(),
            total: lines.total,
            truncated: lines.truncated,
            files_searched: lines.files_searched,
        }
    }
}
