//! Whom a request of today's clients is for.

use serde_json::Value;

use super::coerce;
use super::errors::{Errors, Location, Wrong};
use super::input::Input;
use super::model::{Extra, Model, entries};
use super::path::stripped;

/// A workspace of a platform, and which placement of it is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::langbot) struct ActionContext {
    pub(in crate::langbot) instance_uuid: String,
    pub(in crate::langbot) workspace_uuid: String,
    /// 1 or more.
    pub(in crate::langbot) placement_generation: u64,
    pub(in crate::langbot) installation_uuid: Option<String>,
}

/// The error is the text behind `ValidationError: `.
pub(in crate::langbot) fn action_context(data: &Value) -> Result<ActionContext, String> {
    read(&Input::from(data))
}

pub(super) fn read(data: &Input<'_>) -> Result<ActionContext, String> {
    let mut errors = Errors::of("ActionContext");
    let Some(sent) = entries(data, "ActionContext", &Location::default(), &mut errors) else {
        return Err(errors.text());
    };
    let mut model = Model::new(&sent, Location::default(), &mut errors);
    let context = ActionContext {
        instance_uuid: model.required("instance_uuid", name),
        workspace_uuid: model.required("workspace_uuid", name),
        placement_generation: model.optional("placement_generation", 1, |input| {
            let number = coerce::integer(input)?;
            counter(
                number,
                1,
                "placement_generation must be greater than or equal to 1",
            )
        }),
        installation_uuid: model.optional("installation_uuid", None, coerce::nullable(name)),
    };
    model.finish(Extra::Forbid);
    errors.check().map(|()| context)
}

/// Something's name, which is not empty.
pub(super) fn name(input: &Input<'_>) -> Result<String, Wrong> {
    match stripped(coerce::text(input)?) {
        name if name.is_empty() => Err(Wrong::value("must not be empty")),
        name => Ok(name),
    }
}

/// A number that grows, or a limit. Python's have no upper end; ours fit wherever they are kept.
pub(super) fn counter(number: i128, least: i128, rule: &str) -> Result<u64, Wrong> {
    if number < least {
        return Err(Wrong::value(rule));
    }
    i64::try_from(number)
        .ok()
        .and_then(|number| u64::try_from(number).ok())
        .ok_or_else(|| Wrong::value(&format!("must be at most {}", i64::MAX)))
}
