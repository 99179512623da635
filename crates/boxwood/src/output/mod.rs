//! Prints the results of verbs: tables and text for people, JSON for programs.

pub(crate) mod printable;
pub(crate) mod reason;
pub(crate) mod status_line;
pub(crate) mod table;

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use clap::ValueEnum;
use jiff::Timestamp;
use serde::Serialize;

use crate::failure::{Failure, Outcome};
use crate::flags::duration_text;
use printable::{printable, printable_json, printable_line};
use table::Table;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// Tables and text
    #[default]
    Table,
    /// JSON
    Json,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    format: OutputFormat,
    colour: Colour,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Colour {
    Always,
    Never,
}

impl Output {
    pub(crate) fn new(format: OutputFormat) -> Self {
        Self {
            format,
            colour: Colour::of_stdout(),
        }
    }

    pub(crate) fn format(self) -> OutputFormat {
        self.format
    }

    pub(crate) fn is_json(self) -> bool {
        self.format == OutputFormat::Json
    }

    /// Pretty JSON, one value.
    pub(crate) fn json(value: &impl Serialize) -> Outcome<()> {
        let text = serde_json::to_string_pretty(value).map_err(Failure::internal)?;
        Self::line(&printable_json(&text))
    }

    /// One JSON value on one line, for streams of them.
    pub(crate) fn json_line(value: &impl Serialize) -> Outcome<()> {
        let text = serde_json::to_string(value).map_err(Failure::internal)?;
        Self::line(&printable_json(&text))
    }

    /// The table, or the JSON value it was made from.
    pub(crate) fn table_or(
        self,
        value: &impl Serialize,
        table: impl FnOnce() -> Table,
    ) -> Outcome<()> {
        match self.format {
            OutputFormat::Json => Self::json(value),
            OutputFormat::Table => self.table(&table()),
        }
    }

    /// The name of an object, or the object as JSON.
    pub(crate) fn name_or(self, value: &impl Serialize, name: &str) -> Outcome<()> {
        match self.format {
            OutputFormat::Json => Self::json(value),
            OutputFormat::Table => Self::line(&printable(name)),
        }
    }

    pub(crate) fn table(self, table: &Table) -> Outcome<()> {
        Self::bytes(table.render(self.colour).as_bytes())
    }

    /// One object as it is, or several as a list.
    pub(crate) fn json_of_all<T: Serialize>(values: &[T]) -> Outcome<()> {
        match values {
            [one] => Self::json(one),
            several => Self::json(&several),
        }
    }

    /// One name per line.
    pub(crate) fn names<'a>(names: impl IntoIterator<Item = &'a str>) -> Outcome<()> {
        let mut names = names.into_iter();
        names.try_for_each(|name| Self::line(&printable(name)))
    }

    /// Untrusted text of several lines.
    pub(crate) fn text(text: &str) -> Outcome<()> {
        let mut lines = text.lines();
        lines.try_for_each(|line| Self::line(&printable_line(line)))
    }

    /// Bytes as they are.
    pub(crate) fn bytes(bytes: &[u8]) -> Outcome<()> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(bytes)?;
        Ok(stdout.flush()?)
    }

    /// One line of text that is already safe to print.
    pub(crate) fn line(text: &str) -> Outcome<()> {
        Self::bytes(format!("{text}\n").as_bytes())
    }
}

impl Colour {
    /// On a terminal that supports it, unless `NO_COLOR` is set (<https://no-color.org>).
    fn of_stdout() -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        let dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        if io::stdout().is_terminal() && !refused && !dumb {
            Self::Always
        } else {
            Self::Never
        }
    }
}

/// How long ago something was, for a column.
pub(crate) fn ago(then: Timestamp) -> String {
    let elapsed = Timestamp::now().duration_since(then);
    // The daemon's clock may be ahead.
    let elapsed = Duration::try_from(elapsed).unwrap_or_default();
    match elapsed.as_secs() {
        0 => "now".to_owned(),
        _ => format!("{} ago", duration_text(elapsed)),
    }
}

/// A time, and how long ago it was.
pub(crate) fn time(then: Timestamp) -> String {
    format!("{then} ({})", ago(then))
}

pub(crate) fn yes_no(value: bool) -> &'static str {
    if value { "yes" } else { "no" }
}

/// An enum as in the API: `on`, `timed_out`.
pub(crate) fn wire_word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        Ok(other) => other.to_string(),
        Err(_) => "?".to_owned(),
    }
}

/// Prints messages about a request on stderr, such as changes made by the profile.
pub(crate) fn print_notices(notices: &[String]) {
    for notice in notices {
        eprintln!("boxwood: {}", printable(notice));
    }
}
