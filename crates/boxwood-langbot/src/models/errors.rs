//! Validation errors in pydantic's format, up to and including the error type.

use std::borrow::Cow;
use std::fmt::Display;

use boxwood_api::FieldError;

/// Further errors are counted but not listed. A request with a million wrong fields must not produce a
/// response of a hundred megabytes.
const MAX_LISTED: usize = 100;

/// Why one value is invalid: pydantic's error type and message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Invalid {
    kind: &'static str,
    message: Cow<'static, str>,
}

impl Invalid {
    pub(super) fn new(kind: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }

    /// A rule of the model beyond the type of the field.
    pub(super) fn value(rule: &str) -> Self {
        Self::new("value_error", format!("Value error, {rule}"))
    }
}

/// Path of a value, outermost field first. Empty for the model itself.
#[derive(Clone, Debug, Default)]
pub(super) struct Location(String);

impl Location {
    #[must_use]
    pub(super) fn then(&self, step: &str) -> Self {
        let mut path = self.0.clone();
        if !path.is_empty() {
            path.push('.');
        }
        if step.contains('.') {
            path.push('`');
            path.push_str(step);
            path.push('`');
        } else {
            path.push_str(step);
        }
        // An empty name still gets a line of its own.
        if path.is_empty() {
            path.push('\n');
        }
        Self(path)
    }
}

pub(super) struct Errors {
    model: &'static str,
    lines: Vec<String>,
    count: usize,
}

impl Errors {
    pub(super) fn of(model: &'static str) -> Self {
        Self {
            model,
            lines: Vec::new(),
            count: 0,
        }
    }

    pub(super) fn push(&mut self, at: &Location, invalid: &Invalid) {
        self.count += 1;
        if self.lines.len() >= MAX_LISTED {
            return;
        }
        let (message, kind) = (&invalid.message, invalid.kind);
        let line = format!("  {message} [type={kind}]");
        self.lines.push(match at.0.trim_end_matches('\n') {
            "" if at.0.is_empty() => line,
            path => format!("{path}\n{line}"),
        });
    }

    /// Adds an error of `boxwood-api`: a value that pydantic accepts and a box cannot have.
    pub(super) fn push_field(&mut self, error: &FieldError) {
        // `extra_mounts[3].host_path` is `extra_mounts.3.host_path` in pydantic, and the message begins
        // at the innermost field.
        let at = error
            .field()
            .split(['[', ']', '.'])
            .filter(|step| !step.is_empty())
            .fold(Location::default(), |at, step| at.then(step));
        let text = error.to_string();
        let rule = text.split_once("]: ").map_or(&*text, |(_, rule)| rule);
        self.push(&at, &Invalid::value(rule));
    }

    /// The text with one more error: a value of this field that pydantic accepts and a box cannot have.
    pub(super) fn text_with(&mut self, field: &str, error: &impl Display) -> String {
        let at = Location::default().then(field);
        self.push(&at, &Invalid::value(&error.to_string()));
        self.text()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// `Err` with the whole text if there is any error.
    pub(super) fn check(&self) -> Result<(), String> {
        if self.is_empty() {
            Ok(())
        } else {
            Err(self.text())
        }
    }

    pub(super) fn text(&self) -> String {
        let plural = if self.count == 1 { "" } else { "s" };
        format!(
            "{} validation error{plural} for {}\n{}",
            self.count,
            self.model,
            self.lines.join("\n")
        )
    }
}
