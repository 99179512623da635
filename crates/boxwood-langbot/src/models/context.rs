//! The workspace that a request is for.

use serde_json::Value;

use super::coerce;
use super::errors::{Errors, Invalid, Location};
use super::model::{Model, fields};

/// A workspace of a LangBot instance, and the generation of its placement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ActionContext {
    pub(crate) instance_uuid: String,
    pub(crate) workspace_uuid: String,
    /// 1 or more.
    pub(crate) placement_generation: u64,
    pub(crate) installation_uuid: Option<String>,
}

/// The error is the text after `ValidationError: `.
pub(crate) fn action_context(data: &Value) -> Result<ActionContext, String> {
    let mut errors = Errors::of("ActionContext");
    let Some(sent) = fields(data, "ActionContext", &Location::default(), &mut errors) else {
        return Err(errors.text());
    };
    let mut model = Model::new(sent, Location::default(), &mut errors);
    let context = ActionContext {
        instance_uuid: model.required("instance_uuid", name),
        workspace_uuid: model.required("workspace_uuid", name),
        placement_generation: model.optional("placement_generation", 1, |input| {
            let rule = "placement_generation must be greater than or equal to 1";
            counter(coerce::integer(input)?, 1, rule)
        }),
        installation_uuid: model.optional("installation_uuid", None, coerce::nullable(name)),
    };
    model.forbid_unknown();
    errors.check().map(|()| context)
}

/// A name that is not empty.
pub(super) fn name(input: &Value) -> Result<String, Invalid> {
    coerce::non_empty(input, "must not be empty")
}

/// A counter or a limit. Python's integers have no upper bound; these fit in 63 bits.
pub(super) fn counter(number: i128, min: i128, rule: &str) -> Result<u64, Invalid> {
    match u64::try_from(number) {
        _ if number < min => Err(Invalid::value(rule)),
        Ok(number) if number <= i64::MAX.unsigned_abs() => Ok(number),
        _ => Err(Invalid::value(&format!("must be at most {}", i64::MAX))),
    }
}
