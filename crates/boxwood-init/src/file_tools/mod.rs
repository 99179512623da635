//! The file tools of agents: read, write, edit, glob and grep, run inside the box.
//!
//! One request with paths of the box, one response of bounded size. Runs in a fork of init that has the uid and
//! restrictions of a command: a search uses threads, and init itself must have only one.

#[cfg(feature = "api")]
mod api;
mod diff;
mod edit;
mod open;
mod read;
mod search;
mod types;
mod write;

use std::time::Duration;

pub use search::IsCallerWaiting;
pub use types::{
    Edited, FileTool, FileToolError, FileToolErrorKind, FileToolRequest, FileToolResponse, Found,
    GrepLine, GrepQuery, Lines, Text, Written,
};

use search::{SearchControl, glob, grep};

/// Maximum size of an encoded response.
pub const MAX_RESPONSE_BYTES: usize = 5 * 1024 * 1024;
/// Maximum bytes of text in one response. With names and numbers it stays below [`MAX_RESPONSE_BYTES`].
const MAX_TEXT_BYTES: usize = 3 * 1024 * 1024;
/// The largest file that is written or edited in one call.
pub const MAX_FILE_BYTES: usize = 16 * 1024 * 1024;
/// A search that takes longer returns a partial result.
pub const SEARCH_TIME: Duration = Duration::from_secs(20);

/// Runs a tool. Stops early if `is_caller_waiting` returns false because the caller no longer waits.
pub fn run(
    request: FileToolRequest,
    is_caller_waiting: &IsCallerWaiting<'_>,
) -> Result<FileToolResponse, FileToolError> {
    let control = SearchControl::new(Duration::from_millis(request.search_ms));
    match request.tool {
        FileTool::Read {
            path,
            offset,
            limit,
            max_bytes,
        } => {
            let keep_going = || !control.is_over() && is_caller_waiting();
            read::read(&path, offset, limit, max_bytes, &keep_going).map(FileToolResponse::Read)
        }
        FileTool::Write { path, content } => {
            write::write(&path, content.as_bytes()).map(FileToolResponse::Write)
        }
        FileTool::Edit {
            path,
            old,
            new,
            all,
        } => edit::edit(&path, &old, &new, all).map(FileToolResponse::Edit),
        FileTool::Glob {
            pattern,
            path,
            limit,
            ignored,
        } => glob::glob(&pattern, &path, limit, ignored, control, is_caller_waiting)
            .map(FileToolResponse::Glob),
        FileTool::Grep(query) => {
            grep::grep(&query, control, is_caller_waiting).map(FileToolResponse::Grep)
        }
    }
}
