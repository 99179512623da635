//! `grep`: lines of files that fit a regular expression.

use boxwood_api::{GrepMatch, GrepRequest};
use serde_json::{Map, Value};

use super::arguments::GrepArgs;
use super::context::CallContext;
use super::object;
use crate::error::ToolError;
use crate::paths::SkillAccess;

const MOST_MATCHES: u64 = 200;

pub(super) async fn run(
    context: &CallContext<'_>,
    args: GrepArgs,
) -> Result<Map<String, Value>, ToolError> {
    let place = context.place(&args.path, SkillAccess::Read)?;
    context.open().await?;
    let request = GrepRequest {
        pattern: args.pattern,
        path: place.path().to_owned(),
        include: args.include,
        file_type: args.file_type,
        ignore_case: args.ignore_case,
        limit: Some(MOST_MATCHES),
        ignored: false,
    };
    let found = context.boxes.grep(&context.session, request).await;
    Ok(match context.done(found).await? {
        Ok(found) => object([
            ("ok", true.into()),
            (
                "matches",
                found
                    .matches
                    .into_iter()
                    .map(shown)
                    .collect::<Vec<_>>()
                    .into(),
            ),
            ("total", found.total.into()),
            ("truncated", found.truncated.into()),
            ("files_searched", found.files_searched.into()),
        ]),
        Err(result) => result,
    })
}

fn shown(found: GrepMatch) -> Value {
    Value::Object(object([
        ("file", found.file.into()),
        ("line", found.line.into()),
        ("content", found.content.into()),
    ]))
}
