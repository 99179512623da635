//! `grep`: lines of files that match a regular expression.

use boxwood_api::GrepRequest;
use serde_json::{Map, Value};

use super::arguments::GrepArgs;
use super::context::CallContext;
use crate::error::ToolError;
use crate::paths::SkillAccess;

const MAX_MATCHES: u64 = 200;

pub(super) async fn run(
    context: &CallContext<'_>,
    args: GrepArgs,
) -> Result<Map<String, Value>, ToolError> {
    let target = context.target(&args.path, SkillAccess::Read)?;
    context.open().await?;
    let request = GrepRequest {
        pattern: args.pattern,
        path: target.path().to_owned(),
        include: args.include,
        file_type: args.file_type,
        ignore_case: args.ignore_case,
        limit: Some(MAX_MATCHES),
        ignored: false,
    };
    let found = context.boxes.grep(&context.session, request).await;
    context.result(found).await
}
