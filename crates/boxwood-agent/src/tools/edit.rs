//! `edit`: an exact text in a file, replaced by another.

use boxwood_api::EditTextRequest;
use serde_json::{Map, Value};

use super::arguments::EditArgs;
use super::context::CallContext;
use super::skill_edit;
use crate::error::ToolError;
use crate::paths::{SkillAccess, ToolPath};

pub(super) async fn run(
    context: &CallContext<'_>,
    args: EditArgs,
) -> Result<Map<String, Value>, ToolError> {
    let path = match context.target(&args.path, SkillAccess::Use)? {
        ToolPath::Skill { name, tail, path } => {
            if tail.is_empty() {
                return Err(ToolError::rule(
                    "Path must name a file in the skill's package.",
                ));
            }
            return skill_edit::run(context, &name, &tail, &path, &args).await;
        }
        ToolPath::Workspace { path } | ToolPath::KeptOutput { path } => path,
    };
    context.open().await?;
    let request = EditTextRequest {
        path,
        old_string: args.old_string,
        new_string: args.new_string,
        replace_all: args.replace_all,
    };
    let edited = context.boxes.edit_text(&context.session, request).await;
    context.result(edited).await
}
