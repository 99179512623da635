//! Our own rules, in the shape of pydantic's: for what its models accept and a box cannot have.

use boxwood_api::{FieldError, IdError};

use super::errors::{Errors, Location, Wrong};
use super::input::Input;
use super::repr::Shown;

/// Tells a fault that `boxwood-api` found where the field stands in `input`.
pub(super) fn push(errors: &mut Errors, input: &Input<'_>, fault: &FieldError) {
    // `extra_mounts[3].host_path` is `extra_mounts.3.host_path` here, and its text begins at the
    // innermost field.
    let steps = fault
        .field()
        .split(['[', ']', '.'])
        .filter(|step| !step.is_empty());
    let mut at = Location::default();
    let mut culprit = input;
    for step in steps {
        at = at.then(step);
        culprit = culprit.member(step).unwrap_or(culprit);
    }
    let text = fault.to_string();
    let rule = text.split_once("]: ").map_or(&*text, |(_, rule)| rule);
    errors.push(&at, &Wrong::value(rule), Shown::Value(culprit));
}

/// Likewise for an id.
pub(super) fn push_id(errors: &mut Errors, input: &Input<'_>, name: &str, fault: &IdError) {
    let culprit = input.member(name).unwrap_or(input);
    let wrong = Wrong::value(&fault.to_string());
    errors.push(
        &Location::default().then(name),
        &wrong,
        Shown::Value(culprit),
    );
}

/// For the fields of `boxwood-api`, whose own rules refuse either end.
pub(super) fn saturated(number: i128) -> u64 {
    u64::try_from(number.max(0)).unwrap_or(u64::MAX)
}
