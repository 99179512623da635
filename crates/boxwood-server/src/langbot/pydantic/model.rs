//! One model being read: its fields in their order, then what is left over.

use super::coerce;
use super::errors::{Errors, Location, Wrong};
use super::input::Input;
use super::repr::Shown;

/// What happens to fields that the model does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extra {
    Ignore,
    Forbid,
}

/// Findings go to the errors and the caller reads on, so that one text tells all of them. A field
/// that was wrong reads as its default; nobody may use it, because [`Errors::check`] comes first.
pub(super) struct Model<'i, 'e> {
    entries: &'i [(&'i str, &'i Input<'i>)],
    at: Location,
    known: Vec<&'static str>,
    pub(super) errors: &'e mut Errors,
}

impl<'i, 'e> Model<'i, 'e> {
    pub(super) fn new(
        entries: &'i [(&'i str, &'i Input<'i>)],
        at: Location,
        errors: &'e mut Errors,
    ) -> Self {
        Self {
            entries,
            at,
            known: Vec::new(),
            errors,
        }
    }

    pub(super) fn at(&self, name: &str) -> Location {
        self.at.then(name)
    }

    /// The field as sent. Asking for it makes it a known one.
    pub(super) fn sent(&mut self, name: &'static str) -> Option<&'i Input<'i>> {
        self.known.push(name);
        self.entries
            .iter()
            .find(|(key, _)| *key == name)
            .map(|(_, input)| *input)
    }

    pub(super) fn required<T: Default>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&Input<'_>) -> Result<T, Wrong>,
    ) -> T {
        if let Some(input) = self.sent(name) {
            return self.read(name, input, T::default(), read);
        }
        let missing = Wrong::new("missing", "Field required");
        self.errors
            .push(&self.at(name), &missing, Shown::Entries(self.entries));
        T::default()
    }

    pub(super) fn optional<T>(
        &mut self,
        name: &'static str,
        default: T,
        read: impl FnOnce(&Input<'_>) -> Result<T, Wrong>,
    ) -> T {
        match self.sent(name) {
            Some(input) => self.read(name, input, default, read),
            None => default,
        }
    }

    fn read<T>(
        &mut self,
        name: &str,
        input: &Input<'_>,
        default: T,
        read: impl FnOnce(&Input<'_>) -> Result<T, Wrong>,
    ) -> T {
        match read(input) {
            Ok(value) => value,
            Err(wrong) => {
                self.errors
                    .push(&self.at(name), &wrong, Shown::Value(input));
                default
            }
        }
    }

    /// Texts by name; each wrong one is a finding of its own.
    pub(super) fn texts_by_name(&mut self, name: &'static str) -> Vec<(String, String)> {
        let mut texts = Vec::new();
        match self.sent(name) {
            None => {}
            Some(Input::Dict(entries)) => {
                let at = self.at(name);
                for (key, value) in entries {
                    match coerce::text(value) {
                        Ok(text) => texts.push((key.clone().into_owned(), text)),
                        Err(wrong) => {
                            self.errors.push(&at.then(key), &wrong, Shown::Value(value));
                        }
                    }
                }
            }
            Some(other) => {
                let wrong = Wrong::new("dict_type", "Input should be a valid dictionary");
                self.errors
                    .push(&self.at(name), &wrong, Shown::Value(other));
            }
        }
        texts
    }

    /// The elements of a list, none if it was left out or is not one.
    pub(super) fn list(&mut self, name: &'static str) -> &'i [Input<'i>] {
        match self.sent(name) {
            None => &[],
            Some(Input::List(items)) => items,
            Some(other) => {
                let wrong = Wrong::new("list_type", "Input should be a valid list");
                self.errors
                    .push(&self.at(name), &wrong, Shown::Value(other));
                &[]
            }
        }
    }

    /// To be called after the last field.
    pub(super) fn finish(&mut self, extra: Extra) {
        if extra == Extra::Ignore {
            return;
        }
        let forbidden = Wrong::new("extra_forbidden", "Extra inputs are not permitted");
        for (key, value) in self.entries {
            if !self.known.contains(key) {
                self.errors
                    .push(&self.at.then(key), &forbidden, Shown::Value(value));
            }
        }
    }
}

/// The entries of a dictionary; anything else is no model of this name.
pub(super) fn entries<'i>(
    input: &'i Input<'i>,
    class: &str,
    at: &Location,
    errors: &mut Errors,
) -> Option<Vec<(&'i str, &'i Input<'i>)>> {
    if let Input::Dict(entries) = input {
        return Some(entries.iter().map(|(key, value)| (&**key, value)).collect());
    }
    let wrong = Wrong::new(
        "model_type",
        format!("Input should be a valid dictionary or instance of {class}"),
    );
    errors.push(at, &wrong, Shown::Value(input));
    None
}
