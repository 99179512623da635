//! `read`: some lines of a file, or the names in a directory.

use boxwood_api::{ReadTextRequest, TextSlice};
use serde_json::{Map, Value};

use super::arguments::ReadArgs;
use super::context::CallContext;
use crate::error::ToolError;
use crate::paths::SkillAccess;

/// Limit of one result.
const MAX_BYTES: u64 = 256 * 1024;

pub(super) async fn run(
    context: &CallContext<'_>,
    args: ReadArgs,
) -> Result<Map<String, Value>, ToolError> {
    let target = context.target(&args.path, SkillAccess::Read)?;
    context.open().await?;
    let request = ReadTextRequest {
        path: target.path().to_owned(),
        offset: args.offset,
        limit: args.limit,
        max_bytes: Some(MAX_BYTES),
    };
    let read = context.boxes.read_text(&context.session, request).await;
    let notice = read.as_ref().ok().and_then(notice);
    let mut result = context.result(read).await?;
    result.extend(notice.map(|notice| ("notice".to_owned(), notice.into())));
    Ok(result)
}

/// How the model can read the rest.
fn notice(slice: &TextSlice) -> Option<String> {
    if slice.is_binary {
        return Some(format!(
            "this is a binary file of {} bytes; look at it with exec, for example with `xxd`",
            slice.size
        ));
    }
    if !slice.truncated {
        return None;
    }
    // Only the beginning of one long line fits, so there is no offset to continue at.
    if slice.lines <= 1 {
        return Some(
            "the line is too long to show whole; look at parts of it with exec, for example with \
             `cut -c`"
                .to_owned(),
        );
    }
    Some(format!(
        "there is more; go on with offset {}",
        slice.first_line.saturating_add(slice.lines)
    ))
}
