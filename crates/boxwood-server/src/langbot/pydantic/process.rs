//! The program that a client wants started and kept.

use boxwood_api::{DEFAULT_MOUNT_PATH, FieldError, ProcessId, ProcessSpec};

use serde_json::Value;

use super::errors::{Errors, Location, Wrong};
use super::input::Input;
use super::model::{Extra, Model, entries};
use super::own_rules::saturated;
use super::path::{in_box, stripped};
use super::repr::Shown;
use super::{coerce, own_rules};
use crate::langbot::Era;

/// As for boxes.
const MAX_MEMORY_MB: u64 = 1 << 26;

/// A process that was read.
#[derive(Clone, Debug)]
pub(in crate::langbot) struct GivenProcess {
    pub(in crate::langbot) spec: ProcessSpec,
    /// Today's clients may bound a process; 0 means as much as the box.
    pub(in crate::langbot) memory_mb: u64,
}

/// The error is the text behind `BoxValidationError: `.
pub(in crate::langbot) fn process_spec(data: &Value, era: Era) -> Result<GivenProcess, String> {
    read(&Input::from(data), era)
}

pub(super) fn read(data: &Input<'_>, era: Era) -> Result<GivenProcess, String> {
    let mut errors = Errors::of("BoxManagedProcessSpec");
    let Some(sent) = entries(
        data,
        "BoxManagedProcessSpec",
        &Location::default(),
        &mut errors,
    ) else {
        return Err(errors.text());
    };
    let (id, spec, memory_mb) = fields(
        &mut Model::new(&sent, Location::default(), &mut errors),
        era,
    );
    if !errors.is_empty() {
        return Err(errors.text());
    }
    let process_id = match ProcessId::new(&id) {
        Ok(process_id) => process_id,
        Err(fault) => {
            own_rules::push_id(&mut errors, data, "process_id", &fault);
            return Err(errors.text());
        }
    };
    let checked = ProcessSpec { process_id, ..spec }
        .validate()
        .and_then(|spec| {
            if memory_mb > MAX_MEMORY_MB {
                let rule = format!("must be at most {MAX_MEMORY_MB}");
                return Err(FieldError::new("memory_mb", &rule));
            }
            Ok(GivenProcess { spec, memory_mb })
        });
    checked.map_err(|fault| {
        own_rules::push(&mut errors, data, &fault);
        errors.text()
    })
}

fn fields(model: &mut Model<'_, '_>, era: Era) -> (String, ProcessSpec, u64) {
    let process_id = model.optional("process_id", "default".to_owned(), coerce::text);
    let command = model.required("command", |input| match stripped(coerce::text(input)?) {
        command if command.is_empty() => Err(Wrong::value("command must not be empty")),
        command => Ok(command),
    });
    let args = arguments(model);
    let env = model.texts_by_name("env").into_iter().collect();
    let cwd = model.optional("cwd", DEFAULT_MOUNT_PATH.to_owned(), |input| {
        coerce::text(input).and_then(|path| in_box("cwd", path))
    });
    let memory_mb = match era {
        Era::June => 0,
        Era::Today => model.optional("memory_mb", 0, |input| {
            coerce::integer(input).map(saturated)
        }),
    };
    let spec = ProcessSpec {
        process_id: ProcessId::default(),
        command,
        args,
        env,
        cwd,
    };
    model.finish(Extra::Ignore);
    (process_id, spec, memory_mb)
}

fn arguments(model: &mut Model<'_, '_>) -> Vec<String> {
    let at = model.at("args");
    let mut arguments = Vec::new();
    for (index, item) in model.list("args").iter().enumerate() {
        match coerce::text(item) {
            Ok(argument) => arguments.push(argument),
            Err(wrong) => {
                let at = at.then(&index.to_string());
                model.errors.push(&at, &wrong, Shown::Value(item));
            }
        }
    }
    arguments
}
