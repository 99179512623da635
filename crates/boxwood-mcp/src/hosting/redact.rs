//! Keeps the values of a server's variables out of everything that is shown.
//!
//! Comes in: variables, and texts that a server or an installer wrote. Goes out: the texts with the names
//! of variables where their values stood. A server that fails mostly says why, and sometimes it says it
//! with its whole environment. What is cut is hidden first: half a value would not be found any more.

use std::collections::BTreeMap;

use memchr::memmem::Finder;

use super::fault::Fault;
use super::tail::{MAX_LINE_BYTES, tail_of_lines};

/// Shorter ones stand in many words by accident, and are no secrets.
const SHORTEST: usize = 6;
/// Lines of values that are looked for, one by one. Far more than any key has; the longest count.
const MOST_LINES: usize = 2_000;
/// Of what a server wrote to stderr, shown in the error.
const SHOWN_BYTES: usize = 500;
/// Of what it answered.
const SHOWN_CHARS: usize = 500;

/// What must not be seen, in every form it may be written in. The longest come first, since one value may
/// be part of another.
#[derive(Debug, Default)]
pub(crate) struct Secrets {
    forms: Vec<Form>,
}

#[derive(Debug, PartialEq, Eq)]
struct Form {
    text: String,
    /// Of the variable.
    name: String,
}

impl Secrets {
    pub(crate) fn of(variables: &BTreeMap<String, String>) -> Self {
        // However much there is of one value, another is always looked for.
        let mut forms = Vec::new();
        let mut lines = Vec::new();
        for (name, value) in variables {
            let form = |text: &str| {
                let (text, name) = (text.to_owned(), name.clone());
                (text.len() >= SHORTEST).then_some(Form { text, name })
            };
            forms.extend(form(value));
            // As it stands in a JSON text.
            let quoted = serde_json::to_string(value).unwrap_or_default();
            let escaped = quoted
                .strip_prefix('"')
                .and_then(|rest| rest.strip_suffix('"'));
            if let Some(escaped) = escaped.filter(|escaped| escaped != value) {
                forms.extend(form(escaped));
            }
            // Logs come line by line, keys do not.
            if value.contains('\n') {
                lines.extend(value.lines().map(str::trim).filter_map(form));
            }
        }
        sort(&mut lines);
        lines.truncate(MOST_LINES);
        forms.append(&mut lines);
        sort(&mut forms);
        Self { forms }
    }

    /// `text` with the name of a variable, in brackets, wherever its value stood. One pass: a name may
    /// itself contain a value, and would grow without end if it were looked through again.
    pub(crate) fn hide(&self, text: String) -> String {
        // Most lines are short, and most that is looked for cannot be in them.
        let too_long = self
            .forms
            .partition_point(|form| form.text.len() > text.len());
        let mut found: Vec<_> = self.forms[too_long..]
            .iter()
            .filter_map(|form| Found::first(form, &text))
            .collect();
        let mut shown = String::new();
        let mut done = 0;
        let mut last = "";
        // The first of all, and of those the longest: `forms` has it first.
        while let Some(next) = found.iter().min_by_key(|found| found.at) {
            let name = next.form.name.as_str();
            if next.at >= done {
                shown.push_str(&text[done..next.at]);
                shown.push_str(&next.form.shown());
            } else if name != last {
                // Two values overlap. Nothing of either is left to see.
                shown.push_str(&next.form.shown());
            }
            (done, last) = (next.end(), name);
            found.retain_mut(|found| found.reach_past(done, &text));
        }
        if done == 0 {
            return text;
        }
        shown.push_str(&text[done..]);
        shown
    }

    /// A line of the greatest length was cut.
    pub(crate) fn hide_line(&self, line: &str) -> String {
        if line.len() + char::MAX.len_utf8() > MAX_LINE_BYTES {
            self.hide_before_cut(line.to_owned())
        } else {
            self.hide(line.to_owned())
        }
    }

    /// What is shown of a server's own words, of which only a beginning may have been kept.
    pub(crate) fn hide_words(&self, words: String) -> String {
        let words = self.hide_before_cut(words);
        words.trim().chars().take(SHOWN_CHARS).collect()
    }

    /// Of a text whose beginning is lost: it may begin in the middle of a value.
    pub(crate) fn hide_behind_cut(&self, text: String) -> String {
        let text = self.hide(text);
        let rest = text.trim_start_matches(char::REPLACEMENT_CHARACTER);
        let cut = |form: &Form| overlap(form.text.as_bytes(), rest.as_bytes());
        match self.longest(cut) {
            Some((form, length)) => format!("{}{}", form.shown(), &rest[length..]),
            None => text,
        }
    }

    /// Of a text whose end is lost: it may end in the middle of a value.
    pub(crate) fn hide_before_cut(&self, text: String) -> String {
        let text = self.hide(text);
        let rest = text.trim_end_matches(char::REPLACEMENT_CHARACTER);
        let cut = |form: &Form| overlap(rest.as_bytes(), form.text.as_bytes());
        match self.longest(cut) {
            Some((form, length)) => {
                format!("{}{}", &rest[..rest.len() - length], form.shown())
            }
            None => text,
        }
    }

    fn longest(&self, cut: impl Fn(&Form) -> usize) -> Option<(&Form, usize)> {
        let cuts = self.forms.iter().map(|form| (form, cut(form)));
        cuts.filter(|(_, length)| *length >= SHORTEST)
            .max_by_key(|(_, length)| *length)
    }
}

/// Where a value stands in a text, of all places that are not hidden yet the first.
struct Found<'a> {
    form: &'a Form,
    finder: Finder<'a>,
    at: usize,
}

impl<'a> Found<'a> {
    fn first(form: &'a Form, text: &str) -> Option<Self> {
        let finder = Finder::new(&form.text);
        let at = finder.find(text.as_bytes())?;
        Some(Self { form, finder, at })
    }

    fn end(&self) -> usize {
        self.at + self.form.text.len()
    }

    /// Goes on to the first place that ends behind `done`. Whether there is one.
    fn reach_past(&mut self, done: usize, text: &str) -> bool {
        if self.end() > done {
            return true;
        }
        let from = done + 1 - self.form.text.len();
        let found = self.finder.find(&text.as_bytes()[from..]);
        self.at = from + found.unwrap_or_default();
        found.is_some()
    }
}

impl Form {
    fn shown(&self) -> String {
        format!("[{}]", self.name)
    }
}

/// The longest first, each of them once.
fn sort(forms: &mut Vec<Form>) {
    forms.sort_by(|a, b| {
        let by_length = b.text.len().cmp(&a.text.len());
        by_length.then_with(|| (&a.name, &a.text).cmp(&(&b.name, &b.text)))
    });
    forms.dedup();
}

/// How many bytes at the end of one text begin the other. In one pass, however much the texts repeat
/// themselves.
fn overlap(ends: &[u8], begins: &[u8]) -> usize {
    let begins = &begins[..begins.len().min(ends.len())];
    if begins.is_empty() {
        return 0;
    }
    let ends = &ends[ends.len() - begins.len()..];
    // For each beginning, how long the longest shorter one is that it ends with.
    let mut shorter = vec![0; begins.len()];
    let mut length = 0;
    for at in 1..begins.len() {
        while length > 0 && begins[at] != begins[length] {
            length = shorter[length - 1];
        }
        length += usize::from(begins[at] == begins[length]);
        shorter[at] = length;
    }
    let mut matched = 0;
    for byte in ends {
        if matched == begins.len() {
            matched = shorter[matched - 1];
        }
        while matched > 0 && *byte != begins[matched] {
            matched = shorter[matched - 1];
        }
        matched += usize::from(begins.get(matched) == Some(byte));
    }
    matched
}

impl Fault {
    /// What the server said is part of the message from here on, and not before.
    pub(crate) fn redacted(mut self, secrets: &Secrets) -> Self {
        self.message = secrets.hide(self.message);
        self.hint = self.hint.map(|hint| secrets.hide(hint));
        if let Some(said) = self.said.take() {
            let said = secrets.hide_words(said);
            if !said.is_empty() {
                self.message = format!("{}: {said}", self.message);
            }
        }
        if let Some(stderr) = self.stderr.take() {
            let stderr = secrets.hide_behind_cut(stderr);
            let last = tail_of_lines(stderr.trim(), SHOWN_BYTES).trim();
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
    fn values_that_overlap_are_hidden_to_their_ends() {
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
            // Each name has every other value in it, many times.
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
    fn a_value_of_many_lines_is_found_line_by_line() {
        check("read second-line of it", "read [KEY] of it");
        check("-----BEGIN-----\nfirst-line\n  second-line\n", "[KEY]");
    }

    #[test]
    fn what_a_cut_left_of_a_value_is_hidden_too() {
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
    fn texts_that_repeat_themselves_overlap_in_one_pass() {
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
    fn the_last_words_are_hidden_before_they_are_cut() {
        let mut fault = Fault::new(McpPhase::McpInit, "it ended");
        fault.stderr = Some(format!("token hunter2-long{}", "x".repeat(SHOWN_BYTES - 5)));
        let message = fault.redacted(&secrets()).message;
        assert!(!message.contains("-long"), "{message}");
        assert!(message.starts_with("it ended; stderr: "), "{message}");
    }

    #[test]
    fn what_a_server_answered_is_hidden_before_it_is_cut() {
        for before in [SHOWN_CHARS - 9, SHOWN_CHARS - 1] {
            let said = format!("{}hunter2-long and on", "x".repeat(before));
            let fault = Fault::new(McpPhase::McpInit, "refused").saying(said);
            let message = fault.redacted(&secrets()).message;
            assert!(!message.contains("hun"), "{message}");
            assert!(message.len() <= "refused: ".len() + SHOWN_CHARS);
        }
        let kept = Fault::new(McpPhase::McpInit, "refused").saying("no say \"fri".to_owned());
        assert_eq!(kept.redacted(&secrets()).message, "refused: no [JSON]");
    }

    #[test]
    fn a_line_that_was_cut_shows_no_half_of_a_value() {
        let variables = [("TOKEN".to_owned(), "hunter2-long".to_owned())].into();
        let secrets = Secrets::of(&variables);
        let line = format!("{}hunter2-l", "x".repeat(MAX_LINE_BYTES - 9));
        assert!(secrets.hide_line(&line).ends_with("x[TOKEN]"));
        assert_eq!(secrets.hide_line("hunter2-l"), "hunter2-l");
    }

    #[test]
    fn a_value_of_endless_lines_does_not_uncover_another() {
        let long = |number| format!("{number:040}\n");
        let variables = [
            ("LONG", (0..3 * MOST_LINES).map(long).collect()),
            ("TOKEN", "hunter2".to_owned()),
            ("JSON", "a\"b\"c".to_owned()),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value));
        let secrets = Secrets::of(&variables.into());
        let shown = secrets.hide(r#"hunter2 {"a\"b\"c"}"#.to_owned());
        assert_eq!(shown, r#"[TOKEN] {"[JSON]"}"#);
        assert!(secrets.forms.len() < MOST_LINES + 10);
    }
}
