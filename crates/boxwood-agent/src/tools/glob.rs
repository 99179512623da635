//! `glob`: files whose path matches a pattern, most recently changed first.

use boxwood_api::GlobRequest;
use serde_json::{Map, Value};

use super::arguments::GlobArgs;
use super::context::CallContext;
use crate::error::ToolError;
use crate::paths::SkillAccess;

const MAX_MATCHES: u64 = 100;

pub(super) async fn run(
    context: &CallContext<'_>,
    args: GlobArgs,
) -> Result<Map<String, Value>, ToolError> {
    let target = context.target(&args.path, SkillAccess::Read)?;
    context.open().await?;
    let request = GlobRequest {
        pattern: args.pattern,
        path: target.path().to_owned(),
        limit: Some(MAX_MATCHES),
        ignored: false,
    };
    let found = context.boxes.glob(&context.session, request).await;
    context.result(found).await
}
