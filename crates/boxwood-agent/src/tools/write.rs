//! `write`: a whole file, in the workspace or in the package of an activated skill.

use boxwood_api::WriteTextRequest;
use bytes::Bytes;
use serde_json::{Map, Value};

use super::arguments::WriteArgs;
use super::context::CallContext;
use super::object;
use crate::error::ToolError;
use crate::paths::{SkillAccess, ToolPath};

pub(super) async fn run(
    context: &CallContext<'_>,
    args: WriteArgs,
) -> Result<Map<String, Value>, ToolError> {
    match context.target(&args.path, SkillAccess::Use)? {
        // The package is mounted read-only in the box, so the file is written in the skill store.
        ToolPath::Skill { name, tail, path } => {
            if tail.is_empty() {
                return Err(ToolError::rule(
                    "Path must name a file in the skill's package.",
                ));
            }
            let size = args.content.len();
            let written = context
                .boxes
                .write_skill_file(&name, &tail, Bytes::from(args.content))
                .await;
            let written = written.map(|()| object([("path", path.into()), ("size", size.into())]));
            context.result(written).await
        }
        ToolPath::Workspace { path } | ToolPath::KeptOutput { path } => {
            context.open().await?;
            let request = WriteTextRequest {
                path,
                content: args.content,
            };
            let written = context.boxes.write_text(&context.session, request).await;
            context.result(written).await
        }
    }
}
