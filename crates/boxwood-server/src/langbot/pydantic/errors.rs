//! What is wrong with an input, told as pydantic tells it.
//!
//! Comes in: one finding after another, in the order of the model. Goes out: one text with all of
//! them. Never here: which inputs are wrong.

use std::borrow::Cow;
use std::fmt::Write;

use super::repr::{HIDDEN, Shown};

/// Findings beyond these are counted but not told: a request with a million wrong fields must not
/// be answered with a hundred megabytes.
const MOST_TOLD: usize = 100;

/// Why one value is refused: pydantic's name for it, and the sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    kind: &'static str,
    message: Cow<'static, str>,
}

impl Wrong {
    pub(super) fn new(kind: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }

    /// A rule of the model's own, beyond the type.
    pub(super) fn value(rule: &str) -> Self {
        Self::new("value_error", format!("Value error, {rule}"))
    }
}

/// Where a value stands, outermost first. Empty for the model itself.
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
        // A name that is empty has a line of its own all the same.
        if path.is_empty() {
            path.push('\n');
        }
        Self(path)
    }
}

impl Location {
    /// What is set for a process is nobody else's to read, and errors end up in logs.
    fn is_secret(&self) -> bool {
        self.0 == "env" || self.0.starts_with("env.")
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

    pub(super) fn push(&mut self, at: &Location, wrong: &Wrong, shown: Shown<'_>) {
        self.count += 1;
        if self.lines.len() >= MOST_TOLD {
            return;
        }
        let mut line = String::new();
        if !at.0.is_empty() {
            line.push_str(at.0.trim_end_matches('\n'));
            line.push('\n');
        }
        // Writing to a `String` cannot fail.
        let _ = write!(
            line,
            "  {} [type={}, input_value={}, input_type={}]\n    \
             For further information visit https://errors.pydantic.dev/2.14/v/{}",
            wrong.message,
            wrong.kind,
            if at.is_secret() {
                HIDDEN.to_owned()
            } else {
                shown.clipped()
            },
            shown.type_name(),
            wrong.kind
        );
        self.lines.push(line);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Nothing, or the whole text.
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
