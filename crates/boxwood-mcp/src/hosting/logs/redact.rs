//! Replaces the values of a server's variables in all shown text.
//!
//! Text is redacted before it is cut, because a partial value would not be found.

use std::collections::BTreeMap;

use memchr::memmem::Finder;

use super::tail::{MAX_LINE_BYTES, tail_of_lines};
use crate::hosting::supervisor::fault::Fault;

/// Shorter values occur in ordinary words and are not redacted.
const MIN_SECRET_BYTES: usize = 6;
/// Limit for the lines of multi-line values. The longest are kept.
const MAX_VALUE_LINES: usize = 2_000;
/// Limit for the stderr in an error.
const MAX_STDERR_BYTES: usize = 500;
/// Limit for the server's message in an error.
const MAX_MESSAGE_CHARS: usize = 500;

/// All secret values in every notation. Sorted by length, longest first, because one value may contain another.
#[derive(Debug, Default)]
pub(crate) struct Secrets {
    forms: Vec<Form>,
}

#[derive(Debug)]
struct Form {
    /// Built once, since every line of output is searched.
    finder: Finder<'static>,
    /// Name of the variable.
    name: String,
}

impl Secrets {
    pub(crate) fn of(variables: &BTreeMap<String, String>) -> Self {
        // Whole values are always searched for. Only their lines are limited.
        let mut forms = Vec::new();
        let mut lines = Vec::new();
        for (name, value) in variables {
            let form = |text: &str| {
                (text.len() >= MIN_SECRET_BYTES).then(|| Form {
                    finder: Finder::new(text).into_owned(),
                    name: name.clone(),
                })
            };
            forms.extend(form(value));
            // As written in JSON.
            let quoted = serde_json::to_string(value).unwrap_or_default();
            let escaped = quoted
                .strip_prefix('"')
                .and_then(|rest| rest.strip_suffix('"'));
            if let Some(escaped) = escaped.filter(|escaped| escaped != value) {
                forms.extend(form(escaped));
            }
            // Logs are processed line by line, so each line of a multi-line value counts.
            if value.contains('\n') {
                lines.extend(value.lines().map(str::trim).filter_map(form));
            }
        }
        sort(&mut lines);
        lines.truncate(MAX_VALUE_LINES);
        forms.append(&mut lines);
        sort(&mut forms);
        Self { forms }
    }

    /// Replaces each value by the name of its variable in brackets, in one pass. A second pass could find values in
    /// inserted names.
    pub(crate) fn hide(&self, text: String) -> String {
        // Values longer than the text cannot occur in it.
        let too_long = self
            .forms
            .partition_point(|form| form.text().len() > text.len());
        let mut found: Vec<(usize, usize, &str)> = Vec::new();
        for form in &self.forms[too_long..] {
            let first = found.len();
            let mut from = 0;
            while let Some(at) = form.finder.find(&text.as_bytes()[from..]) {
                let at = from + at;
                let end = at + form.text().len();
                match found.get_mut(first..).and_then(<[_]>::last_mut) {
                    // The value overlaps itself.
                    Some((_, last_end, _)) if at < *last_end => *last_end = end,
                    _ => found.push((at, end, &form.name)),
                }
                from = at + 1;
            }
        }
        // Stable, so that the longest of several values at one place comes first.
        found.sort_by_key(|(at, ..)| *at);
        let mut shown = String::new();
        let mut copied = 0;
        let mut last = "";
        for (at, end, name) in found {
            if end <= copied {
                continue;
            }
            if at >= copied {
                shown.push_str(&text[copied..at]);
            }
            // Overlapping values are both hidden completely.
            if at >= copied || name != last {
                shown.extend(["[", name, "]"]);
            }
            (copied, last) = (end, name);
        }
        if copied == 0 {
            return text;
        }
        shown.push_str(&text[copied..]);
        shown
    }

    /// Redacts one line. A line of the maximum length may have been cut.
    pub(crate) fn hide_line(&self, line: &str) -> String {
        if line.len() + char::MAX.len_utf8() > MAX_LINE_BYTES {
            self.hide_before_cut(line.to_owned())
        } else {
            self.hide(line.to_owned())
        }
    }

    /// Redacts and shortens a server message, whose end may have been cut.
    pub(crate) fn hide_message(&self, message: String) -> String {
        let message = self.hide_before_cut(message);
        message.trim().chars().take(MAX_MESSAGE_CHARS).collect()
    }

    /// For text whose beginning was cut, possibly in the middle of a value.
    pub(crate) fn hide_behind_cut(&self, text: String) -> String {
        let text = self.hide(text);
        let rest = text.trim_start_matches(char::REPLACEMENT_CHARACTER);
        let cut = |form: &Form| overlap(form.text(), rest.as_bytes());
        match self.longest(cut) {
            Some((form, length)) => format!("{}{}", form.shown(), &rest[length..]),
            None => text,
        }
    }

    /// For text whose end was cut, possibly in the middle of a value.
    pub(crate) fn hide_before_cut(&self, text: String) -> String {
        let text = self.hide(text);
        let rest = text.trim_end_matches(char::REPLACEMENT_CHARACTER);
        let cut = |form: &Form| overlap(rest.as_bytes(), form.text());
        match self.longest(cut) {
            Some((form, length)) => {
                format!("{}{}", &rest[..rest.len() - length], form.shown())
            }
            None => text,
        }
    }

    fn longest(&self, cut: impl Fn(&Form) -> usize) -> Option<(&Form, usize)> {
        let cuts = self.forms.iter().map(|form| (form, cut(form)));
        cuts.filter(|(_, length)| *length >= MIN_SECRET_BYTES)
            .max_by_key(|(_, length)| *length)
    }
}

impl Form {
    fn text(&self) -> &[u8] {
        self.finder.needle()
    }

    fn shown(&self) -> String {
        format!("[{}]", self.name)
    }
}

/// Sorts by length, longest first, and removes duplicates.
fn sort(forms: &mut Vec<Form>) {
    forms.sort_by(|a, b| {
        let by_length = b.text().len().cmp(&a.text().len());
        by_length.then_with(|| (&a.name, a.text()).cmp(&(&b.name, b.text())))
    });
    forms.dedup_by(|a, b| a.name == b.name && a.text() == b.text());
}

/// Length of the longest suffix of `first` that is a prefix of `second`, in linear time (Knuth-Morris-Pratt).
fn overlap(first: &[u8], second: &[u8]) -> usize {
    let second = &second[..second.len().min(first.len())];
    if second.is_empty() {
        return 0;
    }
    let first = &first[first.len() - second.len()..];
    // Failure function: for each prefix, the length of its longest proper border.
    let mut borders = vec![0; second.len()];
    let mut length = 0;
    for at in 1..second.len() {
        while length > 0 && second[at] != second[length] {
            length = borders[length - 1];
        }
        length += usize::from(second[at] == second[length]);
        borders[at] = length;
    }
    let mut matched = 0;
    for byte in first {
        if matched == second.len() {
            matched = borders[matched - 1];
        }
        while matched > 0 && *byte != second[matched] {
            matched = borders[matched - 1];
        }
        matched += usize::from(second.get(matched) == Some(byte));
    }
    matched
}

impl Fault {
    /// Appends the redacted server output to the message.
    pub(crate) fn redacted(mut self, secrets: &Secrets) -> Self {
        self.message = secrets.hide(self.message);
        self.hint = self.hint.map(|hint| secrets.hide(hint));
        if let Some(server_message) = self.server_message.take() {
            let server_message = secrets.hide_message(server_message);
            if !server_message.is_empty() {
                self.message = format!("{}: {server_message}", self.message);
            }
        }
        if let Some(stderr) = self.stderr.take() {
            let stderr = secrets.hide_behind_cut(stderr);
            let last = tail_of_lines(stderr.trim(), MAX_STDERR_BYTES).trim();
            if !last.is_empty() {
                self.message = format!("{}; stderr: {last}", self.message);
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use boxwood_api::McpPhase;

    use super::*;

    fn secrets() -> Secrets {
        let variables = [
            ("TOKEN", "hunter2-long"),
            ("PART", "hunter2"),
            ("MODE", "x"),
            ("EMPTY", ""),
            ("KEY", "-----BEGIN-----\nfirst-line\n  second-line\n"),
            ("JSON", "say \"friend\""),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Secrets::of(&variables.into())
    }

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(secrets().hide(text.to_owned()), expected);
    }

    #[test]
    fn a_value_is_never_shown() {
        check("bad key hunter2-long!", "bad key [TOKEN]!");
        check("hunter2 hunter2-long", "[PART] [TOKEN]");
        check("nothing of x here", "nothing of x here");
        check("{\"a\":\"say \\\"friend\\\"\"}", "{\"a\":\"[JSON]\"}");
    }

    #[test]
    fn overlapping_values_are_hidden_completely() {
        check("say \"friend\"hunter2-long", "[JSON][TOKEN]");
        check("hunter2hunter2", "[PART][PART]");
        let variables = [("A", "prefix"), ("B", "fix-secret"), ("C", "xxxxxx")];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let secrets = Secrets::of(&variables.into());
        let hide = |text: &str| secrets.hide(text.to_owned());
        assert_eq!(hide("a prefix-secret"), "a [A][B]");
        assert_eq!(hide("\u{fc}xxxxxxxx\u{fc}"), "\u{fc}[C]\u{fc}");
    }

    #[test]
    fn a_name_that_contains_values_does_not_grow() {
        const NAME: usize = 256;
        let value = |number: u32| format!("value{number}");
        let variable = |number: u32| {
            // Each name contains every other value several times.
            let others = (0..7).filter(|other| *other != number).map(value);
            let name: String = others.collect::<String>().repeat(7);
            (name[..NAME - 4].to_owned(), value(number))
        };
        let variables: BTreeMap<_, _> = (0..7).map(variable).collect();
        let secrets = Secrets::of(&variables);
        let text = (0..7).map(value).collect::<String>();
        let shown = secrets.hide(text.clone());
        assert!(shown.len() <= text.len() * NAME, "{}", shown.len());
        assert_eq!(shown.matches('[').count(), 7);
    }

    #[test]
    fn multi_line_values_are_found_line_by_line() {
        check("read second-line of it", "read [KEY] of it");
        check("-----BEGIN-----\nfirst-line\n  second-line\n", "[KEY]");
    }

    #[test]
    fn partial_values_at_a_cut_are_hidden() {
        let behind = |text: &str| secrets().hide_behind_cut(text.to_owned());
        assert_eq!(behind("er2-long and on"), "[TOKEN] and on");
        assert_eq!(behind("\u{fffd}er2-long"), "[TOKEN]");
        assert_eq!(behind("long story"), "long story", "too short to tell");
        let before = |text: &str| secrets().hide_before_cut(text.to_owned());
        assert_eq!(before("it is hunter2-lo"), "it is [PART]-lo");
        assert_eq!(before("it is -----BEGIN-----\nfirst"), "it is [KEY]\nfirst");
        assert_eq!(before("it is say \"fri"), "it is [JSON]");
    }

    #[test]
    fn overlaps_of_repetitive_text_take_linear_time() {
        for (ends, begins, length) in [
            ("abcab", "abx", 2),
            ("aaaa", "aa", 2),
            ("aab", "aabaab", 3),
            ("xyz", "abc", 0),
            ("", "abc", 0),
            ("ababac", "abac", 4),
        ] {
            assert_eq!(overlap(ends.as_bytes(), begins.as_bytes()), length);
        }
        let long = "a".repeat(1 << 20);
        assert_eq!(overlap(long.as_bytes(), long.as_bytes()), 1 << 20);
    }

    #[test]
    fn stderr_is_redacted_before_it_is_cut() {
        let mut fault = Fault::new(McpPhase::McpInit, "it ended");
        fault.stderr = Some(format!(
            "token hunter2-long{}",
            "x".repeat(MAX_STDERR_BYTES - 5)
        ));
        let message = fault.redacted(&secrets()).message;
        assert!(!message.contains("-long"), "{message}");
        assert!(message.starts_with("it ended; stderr: "), "{message}");
    }

    #[test]
    fn server_messages_are_redacted_before_they_are_cut() {
        for before in [MAX_MESSAGE_CHARS - 9, MAX_MESSAGE_CHARS - 1] {
            let server_message = format!("{}hunter2-long and on", "x".repeat(before));
            let fault =
                Fault::new(McpPhase::McpInit, "refused").with_server_message(server_message);
            let message = fault.redacted(&secrets()).message;
            assert!(!message.contains("hun"), "{message}");
            assert!(message.len() <= "refused: ".len() + MAX_MESSAGE_CHARS);
        }
        let kept =
            Fault::new(McpPhase::McpInit, "refused").with_server_message("no say \"fri".to_owned());
        assert_eq!(kept.redacted(&secrets()).message, "refused: no [JSON]");
    }

    #[test]
    fn a_cut_line_shows_no_partial_value() {
        let variables = [("TOKEN".to_owned(), "hunter2-long".to_owned())].into();
        let secrets = Secrets::of(&variables);
        let line = format!("{}hunter2-l", "x".repeat(MAX_LINE_BYTES - 9));
        assert!(secrets.hide_line(&line).ends_with("x[TOKEN]"));
        assert_eq!(secrets.hide_line("hunter2-l"), "hunter2-l");
    }

    #[test]
    fn many_lines_of_one_value_do_not_displace_others() {
        let long = |number| format!("{number:040}\n");
        let variables = [
            ("LONG", (0..3 * MAX_VALUE_LINES).map(long).collect()),
            ("TOKEN", "hunter2".to_owned()),
            ("JSON", "a\"b\"c".to_owned()),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value));
        let secrets = Secrets::of(&variables.into());
        let shown = secrets.hide(r#"hunter2 {"a\"b\"c"}"#.to_owned());
        assert_eq!(shown, r#"[TOKEN] {"[JSON]"}"#);
        assert!(secrets.forms.len() < MAX_VALUE_LINES + 10);
    }
}
