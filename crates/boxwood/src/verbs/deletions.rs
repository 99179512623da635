//! Deletes or stops several objects. An error does not stop the others, and all errors are reported.

use serde_json::json;

use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::output::printable::printable;

pub(super) struct Deletions {
    output: Output,
    deleted: Vec<String>,
    failure: Option<Failure>,
}

impl Deletions {
    pub(super) fn new(output: Output) -> Self {
        Self {
            output,
            deleted: Vec::new(),
            failure: None,
        }
    }

    /// Prints the name at once, unless the output is JSON.
    pub(super) fn deleted(&mut self, name: impl Into<String>) -> Outcome<()> {
        let name = name.into();
        if !self.output.is_json() {
            Output::line(&printable(&name))?;
        }
        self.deleted.push(name);
        Ok(())
    }

    /// The last error is returned by `finish`; those before it are printed here.
    pub(super) fn failed(&mut self, failure: Failure) {
        if let Some(previous) = self.failure.replace(failure) {
            previous.print(self.output.format());
        }
    }

    /// `key` is the name of the JSON field.
    pub(super) fn finish(self, key: &str) -> Outcome<()> {
        if self.output.is_json() {
            Output::json(&json!({key: self.deleted}))?;
        }
        self.failure.map_or(Ok(()), Err)
    }
}
