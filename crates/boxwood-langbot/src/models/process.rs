//! The specification of a managed process.

use boxwood_api::{DEFAULT_MOUNT_PATH, FieldError, ProcessId, ProcessSpec};

use serde_json::Value;

use super::coerce::{self, saturated};
use super::errors::{Errors, Location};
use super::model::{self, Model};
use super::paths::in_box;
use crate::WireFormat;

/// The same limit as for boxes.
const MAX_MEMORY_MB: u64 = 1 << 26;

/// A validated process specification.
#[derive(Clone, Debug)]
pub(crate) struct ValidProcess {
    pub(crate) spec: ProcessSpec,
    /// Memory limit of the process (SDK 0.7); 0 means the limit of the box.
    pub(crate) memory_mb: u64,
}

/// The error is the text after `BoxValidationError: `.
pub(crate) fn process_spec(data: &Value, version: WireFormat) -> Result<ValidProcess, String> {
    let class = "BoxManagedProcessSpec";
    let mut errors = Errors::of(class);
    let Some(sent) = model::fields(data, class, &Location::default(), &mut errors) else {
        return Err(errors.text());
    };
    let model = &mut Model::new(sent, Location::default(), &mut errors);
    let (id, mut valid) = fields(model, version);
    errors.check()?;
    valid.spec.process_id =
        ProcessId::new(&id).map_err(|error| errors.text_with("process_id", &error))?;
    let checked = valid.spec.validate().and_then(|spec| {
        if valid.memory_mb > MAX_MEMORY_MB {
            let rule = format!("must be at most {MAX_MEMORY_MB}");
            return Err(FieldError::new("memory_mb", rule));
        }
        Ok(ValidProcess { spec, ..valid })
    });
    checked.map_err(|error| {
        errors.push_field(&error);
        errors.text()
    })
}

/// The process id as sent, and the other fields. Each is read where it stands, so the order is that of pydantic's
/// errors.
fn fields(model: &mut Model<'_, '_>, version: WireFormat) -> (String, ValidProcess) {
    let id = model.optional("process_id", "default".to_owned(), coerce::text);
    let spec = ProcessSpec {
        process_id: ProcessId::default(),
        command: model.required("command", |input| {
            coerce::non_empty(input, "command must not be empty")
        }),
        args: arguments(model),
        env: model.string_map("env"),
        cwd: model.optional("cwd", DEFAULT_MOUNT_PATH.to_owned(), |input| {
            coerce::text(input).and_then(|path| in_box("cwd", path))
        }),
    };
    let memory_mb = match version {
        WireFormat::V0_4 => 0,
        WireFormat::V0_7 => model.optional("memory_mb", 0, |input| {
            coerce::integer(input).map(saturated)
        }),
    };
    (id, ValidProcess { spec, memory_mb })
}

fn arguments(model: &mut Model<'_, '_>) -> Vec<String> {
    let at = model.at("args");
    let mut arguments = Vec::new();
    for (index, item) in model.list("args").iter().enumerate() {
        match coerce::text(item) {
            Ok(argument) => arguments.push(argument),
            Err(invalid) => model.errors.push(&at.then(&index.to_string()), &invalid),
        }
    }
    arguments
}
