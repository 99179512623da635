//! Aligned tables. Cells are escaped, so that only the colours added here reach the terminal.

use unicode_width::UnicodeWidthStr;

use super::Colour;
use super::printable::printable;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tone {
    #[default]
    Plain,
    Good,
    Warning,
    Bad,
    Faint,
}

impl Tone {
    fn code(self) -> Option<&'static str> {
        match self {
            Self::Plain => None,
            Self::Good => Some("32"),
            Self::Warning => Some("33"),
            Self::Bad => Some("31"),
            Self::Faint => Some("2"),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Cell {
    text: String,
    tone: Tone,
}

impl Cell {
    pub(crate) fn toned(text: impl AsRef<str>, tone: Tone) -> Self {
        Self {
            text: printable(text.as_ref()).into_owned(),
            tone,
        }
    }
}

impl<T: AsRef<str>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::toned(text, Tone::Plain)
    }
}

#[derive(Debug)]
pub(crate) struct Table {
    header: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    pub(crate) fn new(header: &[&'static str]) -> Self {
        Self {
            header: header.to_vec(),
            rows: Vec::new(),
        }
    }

    /// A table of names and values without a header.
    pub(crate) fn of_facts() -> Self {
        Self::new(&[])
    }

    pub(crate) fn row<const N: usize>(&mut self, cells: [Cell; N]) {
        self.rows.push(cells.into_iter().collect());
    }

    pub(crate) fn fact(&mut self, name: &str, value: impl AsRef<str>) {
        self.row([Cell::toned(name, Tone::Faint), value.into()]);
    }

    /// Adds the row unless the value is missing or empty.
    pub(crate) fn maybe_fact<T: AsRef<str>>(&mut self, name: &str, value: Option<T>) {
        if let Some(value) = value.filter(|value| !value.as_ref().is_empty()) {
            self.fact(name, value);
        }
    }

    /// One row per line of the text.
    pub(crate) fn fact_lines(&mut self, name: &str, text: &str) {
        for line in text.lines() {
            self.fact(name, line);
        }
    }

    pub(crate) fn render(&self, colour: Colour) -> String {
        let mut widths: Vec<usize> = self.header.iter().map(|title| title.width()).collect();
        for row in &self.rows {
            widths.resize(widths.len().max(row.len()), 0);
            for (width, cell) in widths.iter_mut().zip(row) {
                *width = (*width).max(cell.text.width());
            }
        }
        let mut text = String::new();
        if !self.header.is_empty() {
            let titles = self.header.iter().map(|title| (*title, Tone::Plain));
            push_line(&mut text, titles, &widths, colour);
        }
        for row in &self.rows {
            let cells = row.iter().map(|cell| (cell.text.as_str(), cell.tone));
            push_line(&mut text, cells, &widths, colour);
        }
        text
    }
}

fn push_line<'a>(
    text: &mut String,
    cells: impl ExactSizeIterator<Item = (&'a str, Tone)>,
    widths: &[usize],
    colour: Colour,
) {
    let last = cells.len().saturating_sub(1);
    for (column, ((cell, tone), width)) in cells.zip(widths).enumerate() {
        match tone.code().filter(|_| colour == Colour::Always) {
            Some(code) => text.extend(["\u{1b}[", code, "m", cell, "\u{1b}[0m"]),
            None => text.push_str(cell),
        }
        // No padding at the end of a line: it would wrap on narrow terminals.
        if column < last {
            text.push_str(&" ".repeat(width.saturating_sub(cell.width()) + 3));
        }
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_by_their_width_on_screen() {
        let mut table = Table::new(&["NAME", "N"]);
        table.row(["字字字".into(), "1".into()]);
        table.row(["a".into(), "2".into()]);
        assert_eq!(
            table.render(Colour::Never),
            "NAME     N\n字字字   1\na        2\n"
        );
    }

    #[test]
    fn escape_sequences_in_cells_do_not_reach_the_terminal() {
        let mut table = Table::of_facts();
        table.row([Cell::toned("\u{1b}[2J", Tone::Bad), "x\ny".into()]);
        assert_eq!(
            table.render(Colour::Always),
            "\u{1b}[31m\\u{1b}[2J\u{1b}[0m   x\\ny\n"
        );
    }
}
