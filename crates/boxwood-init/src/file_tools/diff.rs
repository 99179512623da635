//! The unified diff of an edit.

use std::fmt::Write as _;
use std::time::Duration;

use similar::TextDiff;

/// The rest of a longer diff is omitted.
const MAX_BYTES: usize = 64 * 1024;
const MAX_LINE_BYTES: usize = 2_000;
/// No diff for files with more lines: comparing them needs a multiple of the memory of the file.
const MAX_LINES: usize = 200_000;
/// After this time the rest of the diff is less exact.
const TIMEOUT: Duration = Duration::from_millis(200);

pub(super) fn unified(path: &str, before: &[u8], after: &[u8]) -> String {
    let mut text = format!("--- {path}\n+++ {path}\n");
    if !write_hunks(&mut text, before, after) {
        text.push_str("... the rest of the diff is left out\n");
    }
    text
}

/// Returns false if the diff is not complete.
fn write_hunks(text: &mut String, before: &[u8], after: &[u8]) -> bool {
    let is_long = |text: &[u8]| memchr::memchr_iter(b'\n', text).count() > MAX_LINES;
    if is_long(before) || is_long(after) {
        return false;
    }
    let (before, after) = (lines(before), lines(after));
    let diff = TextDiff::configure()
        .timeout(TIMEOUT)
        .diff_slices(&before, &after);
    for hunk in diff.unified_diff().iter_hunks() {
        let _ = writeln!(text, "{}", hunk.header());
        for change in hunk.iter_changes() {
            if text.len() > MAX_BYTES {
                return false;
            }
            let _ = write!(text, "{}", change.tag());
            push_line(text, change.value());
        }
    }
    true
}

/// Only a newline ends a line. `TextDiff::diff_lines` also splits at carriage returns, which `MAX_LINES` does not
/// count.
fn lines(text: &[u8]) -> Vec<&[u8]> {
    text.split_inclusive(|&byte| byte == b'\n').collect()
}

fn push_line(text: &mut String, line: &[u8]) {
    let body = line.strip_suffix(b"\n").unwrap_or(line);
    let shown = &body[..body.len().min(MAX_LINE_BYTES)];
    text.push_str(&String::from_utf8_lossy(shown));
    if shown.len() < body.len() {
        text.push_str(" ... the rest of the line is left out");
    }
    text.push('\n');
    if !line.ends_with(b"\n") {
        text.push_str("\\ No newline at end of file\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The diff of a replacement of every `old` by `new`, without its two head lines.
    fn diff(before: &str, old: &str, new: &str) -> String {
        let after = before.replace(old, new);
        let text = unified("/f", before.as_bytes(), after.as_bytes());
        let body = text.strip_prefix("--- /f\n+++ /f\n").expect("a head");
        assert_eq!(applied(before, body), after, "{body}");
        body.to_owned()
    }

    /// The result of `patch`.
    fn applied(before: &str, diff: &str) -> String {
        let lines: Vec<&str> = before.split_inclusive('\n').collect();
        let (mut out, mut at) = (String::new(), 0);
        let mut shown = diff.lines().peekable();
        while let Some(line) = shown.next() {
            if let Some(head) = line.strip_prefix("@@ -") {
                let mut numbers = head.split(' ').next().expect("a range").split(',');
                let start: usize = numbers.next().expect("a start").parse().expect("number");
                let empty = numbers.next() == Some("0");
                let start = if empty { start } else { start - 1 };
                out.extend(lines[at..start].iter().copied());
                at = start;
                continue;
            }
            let unended = shown.next_if(|next| next.starts_with('\\')).is_some();
            let end = if unended { "" } else { "\n" };
            let body = format!("{}{end}", &line[1..]);
            match &line[..1] {
                "+" => out.push_str(&body),
                sign => {
                    assert_eq!(lines[at], body, "{diff}");
                    at += 1;
                    if sign == " " {
                        out.push_str(&body);
                    }
                }
            }
        }
        out.extend(lines[at..].iter().copied());
        out
    }

    #[test]
    fn near_changes_share_a_hunk_and_far_ones_do_not() {
        let lines: Vec<String> = (1..=30).map(|n| format!("{n}\n")).collect();
        let text = lines.concat();
        let text = text.replace("5\n", "x\n");
        assert_eq!(diff(&text, "x", "y").matches("@@ -").count(), 3);
        let near = "x\n1\n2\n3\n4\n5\n6\nx\n";
        assert_eq!(
            diff(near, "x", "y"),
            "@@ -1,8 +1,8 @@\n-x\n+y\n 1\n 2\n 3\n 4\n 5\n 6\n-x\n+y\n"
        );
    }

    #[test]
    fn lines_that_stay_are_not_shown_as_changed() {
        let before = "a\nb\nc\nd\ne\n";
        assert_eq!(
            diff(before, "a\nb\nc\nd", "a\nB\nc\nD"),
            "@@ -1,5 +1,5 @@\n a\n-b\n+B\n c\n-d\n+D\n e\n"
        );
        assert_eq!(
            diff(before, "c\n", ""),
            "@@ -1,5 +1,4 @@\n a\n b\n-c\n d\n e\n"
        );
        assert_eq!(
            diff(before, "c\n", "c\nc2\n"),
            "@@ -1,5 +1,6 @@\n a\n b\n c\n+c2\n d\n e\n"
        );
    }

    #[test]
    fn a_missing_final_newline_is_shown() {
        assert_eq!(
            diff("a\nb", "b", "c"),
            "@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+c\n\\ No newline at end of file\n"
        );
        assert_eq!(diff("a\n", "a\n", ""), "@@ -1 +0,0 @@\n-a\n");
        assert_eq!(
            diff("a\nb\n", "\nb\n", "\nb"),
            "@@ -1,2 +1,2 @@\n a\n-b\n+b\n\\ No newline at end of file\n"
        );
    }

    #[test]
    fn a_carriage_return_does_not_end_a_line() {
        assert_eq!(
            diff("a\rb\nc\n", "b", "x"),
            "@@ -1,2 +1,2 @@\n-a\rb\n+a\rx\n c\n"
        );
    }

    #[test]
    fn every_replacement_of_small_texts_can_be_applied() {
        let texts = [
            "",
            "a",
            "a\n",
            "a\nb",
            "a\na\nb\n",
            "b\n\n\na\nb\na\n",
            "ab\nab\n\nab",
        ];
        let words = ["a", "b", "\n", "a\n", "\na", "ab", "\n\n", "b\na"];
        for text in texts {
            for old in words {
                for new in ["", "x", "\n", "x\n", "a\nx\nb", "\nx"] {
                    if text.contains(old) {
                        diff(text, old, new);
                    }
                }
            }
        }
    }

    #[test]
    fn a_long_diff_is_cut() {
        let before = "line\n".repeat(100_000);
        let after = "LINE\n".repeat(100_000);
        let text = unified("/f", before.as_bytes(), after.as_bytes());
        assert!(text.len() < MAX_BYTES + 4096);
        assert!(text.ends_with("left out\n"));
    }

    #[test]
    fn a_file_with_too_many_lines_has_no_diff() {
        let before = "\n".repeat(MAX_LINES + 1);
        let text = unified("/f", before.as_bytes(), b"");
        assert_eq!(
            text,
            "--- /f\n+++ /f\n... the rest of the diff is left out\n"
        );
    }

    #[test]
    fn a_long_line_is_cut() {
        let text = unified("/f", b"", &vec![b'x'; 3 * MAX_BYTES]);
        assert!(text.len() < MAX_LINE_BYTES + 200, "{}", text.len());
        assert!(text.contains("... the rest of the line is left out\n"));
    }
}
