//! Where a verb's answer goes: a table for people, JSON for programs.

use std::io::{self, IsTerminal, Write};

use clap::ValueEnum;
use serde::Serialize;

use crate::failure::Outcome;
use crate::printable::{printable, printable_json};
use crate::table::Table;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputFormat {
    /// For people
    #[default]
    Table,
    /// For programs
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
        let text = serde_json::to_string_pretty(value).map_err(crate::failure::internal)?;
        Self::line(&printable_json(&text))
    }

    /// One JSON value on one line, for streams of them.
    pub(crate) fn json_line(value: &impl Serialize) -> Outcome<()> {
        let text = serde_json::to_string(value).map_err(crate::failure::internal)?;
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
        let mut stdout = io::stdout().lock();
        stdout.write_all(table.render(self.colour).as_bytes())?;
        Ok(stdout.flush()?)
    }

    /// One line of text that is already safe to print.
    pub(crate) fn line(text: &str) -> Outcome<()> {
        let mut stdout = io::stdout().lock();
        writeln!(stdout, "{text}")?;
        Ok(stdout.flush()?)
    }
}

impl Colour {
    /// On a terminal that can show it, unless the person said no (<https://no-color.org>).
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
