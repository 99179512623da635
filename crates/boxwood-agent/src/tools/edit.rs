//! `edit`: an exact text in a file, replaced by another.

use boxwood_api::EditTextRequest;
use serde_json::{Map, Value};

use super::scene::Scene;
use super::{object, skill_edit};
use crate::arguments::EditArgs;
use crate::error::ToolError;
use crate::paths::{Place, SkillAccess};

pub(super) async fn run(
    scene: &Scene<'_>,
    args: EditArgs,
) -> Result<Map<String, Value>, ToolError> {
    let path = match scene.place(&args.path, SkillAccess::Use)? {
        Place::Skill { name, tail, path } => {
            if tail.is_empty() {
                return Err(ToolError::rule(
                    "Path must name a file in the skill's package.",
                ));
            }
            return skill_edit::run(scene, &name, &tail, &path, &args).await;
        }
        Place::Workspace { path } | Place::KeptOutput { path } => path,
    };
    scene.open().await?;
    let wish = EditTextRequest {
        path,
        old_string: args.old_string,
        new_string: args.new_string,
        replace_all: args.replace_all,
    };
    let edited = scene.boxes.edit_text(&scene.session, wish).await;
    Ok(match scene.done(edited).await? {
        Ok(edited) => object([
            ("ok", true.into()),
            ("path", edited.path.into()),
            ("replaced", edited.replaced.into()),
            ("diff", edited.diff.into()),
            ("size", edited.size.into()),
        ]),
        Err(result) => result,
    })
}
