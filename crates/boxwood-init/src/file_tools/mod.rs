//! Text in and out of files, and the search for it, done inside the box.
//!
//! Comes in: one order with paths of the box. Goes out: one answer of bounded size, or a refusal in the
//! words that agents know. Never here: whose box it is. Whoever runs this has become a command before,
//! so that a path leads nowhere that a command could not go; only a fork of init does it, because a
//! search has threads.

#[cfg(feature = "api")]
mod api;
mod diff;
mod edit;
mod failure;
mod glob;
mod grep;
mod leash;
mod listing;
mod open;
mod pattern;
mod read;
mod rules;
#[cfg(test)]
mod tests;
mod walk;
mod words;
mod write;

use std::time::Duration;

pub use leash::Wanted;
pub use words::{
    Edited, FileTool, Found, GrepLine, GrepOrder, Lines, Text, ToolAnswer, ToolFailure, ToolFault,
    ToolOrder, Written,
};

use leash::Leash;

/// No answer is larger than this; most are far smaller.
pub const LARGEST_ANSWER: usize = 5 * 1024 * 1024;
/// Most bytes of text that one answer carries. With names and numbers around it, it stays below
/// [`LARGEST_ANSWER`].
const MOST_TEXT: usize = 3 * 1024 * 1024;
/// The largest file that is written or edited in one call.
pub const LARGEST_TEXT: usize = 16 * 1024 * 1024;
/// How long a search goes on before it answers with what it has.
pub const SEARCH_TIME: Duration = Duration::from_secs(20);

/// Does what is asked, for as long as `wanted` says that somebody waits for it.
pub fn run(order: ToolOrder, wanted: &Wanted<'_>) -> Result<ToolAnswer, ToolFailure> {
    let leash = Leash::new(Duration::from_millis(order.search_ms));
    match order.tool {
        FileTool::Read {
            path,
            offset,
            limit,
            max_bytes,
        } => {
            let goes_on = || !leash.is_over() && wanted();
            read::read(&path, offset, limit, max_bytes, &goes_on).map(ToolAnswer::Read)
        }
        FileTool::Write { path, content } => {
            write::write(&path, content.as_bytes()).map(ToolAnswer::Write)
        }
        FileTool::Edit {
            path,
            old,
            new,
            all,
        } => edit::edit(&path, &old, &new, all).map(ToolAnswer::Edit),
        FileTool::Glob {
            pattern,
            path,
            limit,
            ignored,
        } => glob::glob(&pattern, &path, limit, ignored, leash, wanted).map(ToolAnswer::Glob),
        FileTool::Grep(order) => grep::grep(&order, leash, wanted).map(ToolAnswer::Grep),
    }
}
