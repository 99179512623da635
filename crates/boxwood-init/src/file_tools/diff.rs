//! The unified diff of an edit.
//!
//! The replaced positions are known, so only the lines around them are compared. Common lines within a replacement are
//! found with a longest common subsequence if it is small.

use std::ops::Range;

const CONTEXT: usize = 3;
/// The rest of a longer diff is omitted.
const MAX_BYTES: usize = 64 * 1024;
const MAX_LINE_BYTES: usize = 2_000;
/// A larger replacement is shown as all old and all new lines.
const MAX_PAIRS: usize = 250_000;

/// Further replacements are not shown.
pub(super) const MAX_PLACES: usize = 2_000;
/// No diff for files with more lines: the line index would need more memory than the file.
const MAX_LINES: usize = 2_000_000;

pub(super) struct Change<'a> {
    pub(super) before: &'a [u8],
    pub(super) after: &'a [u8],
    /// Offsets in `before` at which `old_len` bytes were replaced by `new_len` bytes.
    pub(super) places: Vec<usize>,
    pub(super) old_len: usize,
    pub(super) new_len: usize,
    /// `places` is complete.
    pub(super) all_shown: bool,
}

impl Change<'_> {
    pub(super) fn unified(&self, path: &str) -> String {
        let mut text = format!("--- {path}\n+++ {path}\n");
        let long = |text: &[u8]| memchr::memchr_iter(b'\n', text).count() > MAX_LINES;
        if long(self.before) || long(self.after) || !self.show(&mut text) || !self.all_shown {
            text.push_str("... the rest of the diff is left out\n");
        }
        text
    }

    /// Returns false if the diff was cut.
    fn show(&self, text: &mut String) -> bool {
        let (old, new) = (Lines::of(self.before), Lines::of(self.after));
        let changes = self.by_lines(&old, &new);
        let changes = changes
            .into_iter()
            .flat_map(|(old_range, new_range)| refine(&old, &new, old_range, new_range));
        let mut page = Page {
            old: &old,
            new: &new,
            text,
        };
        let mut hunk = Vec::new();
        for change in changes {
            let far = |last: &Hunk| change.0.start - last.0.end > 2 * CONTEXT;
            if hunk.last().is_some_and(far) && !page.show(&std::mem::take(&mut hunk)) {
                return false;
            }
            hunk.push(change);
        }
        page.show(&hunk)
    }

    fn by_lines(&self, old: &Lines<'_>, new: &Lines<'_>) -> Vec<Hunk> {
        let mut changes: Vec<Hunk> = Vec::new();
        for (number, &place) in self.places.iter().enumerate() {
            let landed = place - number * self.old_len + number * self.new_len;
            let old_range = old.holding(place..place + self.old_len);
            let new_range = new.holding(landed..landed + self.new_len);
            match changes.last_mut() {
                Some(last) if last.0.end >= old_range.start || last.1.end >= new_range.start => {
                    last.0.end = last.0.end.max(old_range.end);
                    last.1.end = last.1.end.max(new_range.end);
                }
                _ => changes.push((old_range, new_range)),
            }
        }
        changes
    }
}

/// Lines of the old text and the lines that replaced them.
type Hunk = (Range<usize>, Range<usize>);

struct Lines<'a> {
    bytes: &'a [u8],
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    fn of(bytes: &'a [u8]) -> Self {
        let mut starts = vec![0];
        starts.extend(memchr::memchr_iter(b'\n', bytes).map(|end| end + 1));
        if starts.last() == Some(&bytes.len()) {
            starts.pop();
        }
        Self { bytes, starts }
    }

    fn count(&self) -> usize {
        self.starts.len()
    }

    fn line(&self, number: usize) -> &'a [u8] {
        let end = self.starts.get(number + 1).copied();
        &self.bytes[self.starts[number]..end.unwrap_or(self.bytes.len())]
    }

    /// The end of a text with a final newline is after the last line.
    fn at(&self, place: usize) -> usize {
        if place == self.bytes.len() && self.bytes.last().is_none_or(|&last| last == b'\n') {
            return self.count();
        }
        self.starts.partition_point(|&start| start <= place).max(1) - 1
    }

    /// The lines of these bytes, and the next line if they end one: an edit may have joined them.
    fn holding(&self, bytes: Range<usize>) -> Range<usize> {
        let first = self.at(bytes.start);
        let past = (self.at(bytes.end) + 1).min(self.count());
        first.min(past)..past
    }
}

/// Removes the lines that both sides share.
fn refine(old: &Lines<'_>, new: &Lines<'_>, mut a: Range<usize>, mut b: Range<usize>) -> Vec<Hunk> {
    while !a.is_empty() && !b.is_empty() && old.line(a.start) == new.line(b.start) {
        a.start += 1;
        b.start += 1;
    }
    while !a.is_empty() && !b.is_empty() && old.line(a.end - 1) == new.line(b.end - 1) {
        a.end -= 1;
        b.end -= 1;
    }
    if a.is_empty() && b.is_empty() {
        return Vec::new();
    }
    if a.is_empty() || b.is_empty() || a.len().saturating_mul(b.len()) > MAX_PAIRS {
        return vec![(a, b)];
    }
    // Longest common subsequence: `table[i][j]` is its length from there to both ends.
    let width = b.len() + 1;
    let mut table = vec![0_u32; (a.len() + 1) * width];
    for i in (0..a.len()).rev() {
        for j in (0..b.len()).rev() {
            table[i * width + j] = if old.line(a.start + i) == new.line(b.start + j) {
                table[(i + 1) * width + j + 1] + 1
            } else {
                table[(i + 1) * width + j].max(table[i * width + j + 1])
            };
        }
    }
    let mut changes: Vec<Hunk> = Vec::new();
    let (mut i, mut j) = (0, 0);
    let mut open: Option<(usize, usize)> = None;
    while i < a.len() || j < b.len() {
        let same = i < a.len() && j < b.len() && old.line(a.start + i) == new.line(b.start + j);
        if same {
            if let Some((from_i, from_j)) = open.take() {
                changes.push((a.start + from_i..a.start + i, b.start + from_j..b.start + j));
            }
            (i, j) = (i + 1, j + 1);
            continue;
        }
        open.get_or_insert((i, j));
        let take_old =
            j == b.len() || (i < a.len() && table[(i + 1) * width + j] >= table[i * width + j + 1]);
        if take_old {
            i += 1;
        } else {
            j += 1;
        }
    }
    if let Some((from_i, from_j)) = open {
        changes.push((a.start + from_i..a.end, b.start + from_j..b.end));
    }
    changes
}

struct Page<'a> {
    old: &'a Lines<'a>,
    new: &'a Lines<'a>,
    text: &'a mut String,
}

impl Page<'_> {
    /// Returns false if the diff is full.
    fn show(&mut self, changes: &[Hunk]) -> bool {
        let (Some((a, b)), Some((last_a, last_b))) = (changes.first(), changes.last()) else {
            return true;
        };
        let lead = a.start.min(CONTEXT);
        let trail = (self.old.count() - last_a.end).min(CONTEXT);
        let head = format!(
            "@@ -{} +{} @@\n",
            span(a.start - lead..last_a.end + trail),
            span(b.start - lead..last_b.end + trail)
        );
        self.text.push_str(&head);
        let mut at = a.start - lead;
        for (a, b) in changes {
            let shown = (at..a.start)
                .map(|line| (' ', self.old.line(line)))
                .chain(a.clone().map(|line| ('-', self.old.line(line))))
                .chain(b.clone().map(|line| ('+', self.new.line(line))));
            for (sign, line) in shown {
                if !put(self.text, sign, line) {
                    return false;
                }
            }
            at = a.end;
        }
        for line in at..at + trail {
            if !put(self.text, ' ', self.old.line(line)) {
                return false;
            }
        }
        true
    }
}

/// Like `diff`: an empty range has the number of the line before it.
fn span(lines: Range<usize>) -> String {
    match lines.len() {
        0 => format!("{},0", lines.start),
        1 => format!("{}", lines.start + 1),
        count => format!("{},{count}", lines.start + 1),
    }
}

fn put(text: &mut String, sign: char, line: &[u8]) -> bool {
    if text.len() > MAX_BYTES {
        return false;
    }
    text.push(sign);
    let (body, ended) = match line.strip_suffix(b"\n") {
        Some(body) => (body, true),
        None => (line, false),
    };
    if body.len() > MAX_LINE_BYTES {
        text.push_str(&String::from_utf8_lossy(&body[..MAX_LINE_BYTES]));
        text.push_str(" ... the rest of the line is left out");
    } else {
        text.push_str(&String::from_utf8_lossy(body));
    }
    text.push('\n');
    if !ended {
        text.push_str("\\ No newline at end of file\n");
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The diff of a replacement of every `old` by `new`, without its two head lines.
    fn diff(before: &str, old: &str, new: &str) -> String {
        let places: Vec<usize> = before.match_indices(old).map(|(at, _)| at).collect();
        let after = before.replace(old, new);
        let change = Change {
            before: before.as_bytes(),
            after: after.as_bytes(),
            places,
            old_len: old.len(),
            new_len: new.len(),
            all_shown: true,
        };
        let text = change.unified("/f");
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
        let change = Change {
            before: before.as_bytes(),
            after: after.as_bytes(),
            places: (0..100_000).map(|n| n * 5).collect(),
            old_len: 4,
            new_len: 4,
            all_shown: true,
        };
        let text = change.unified("/f");
        assert!(text.len() < MAX_BYTES + 4096);
        assert!(text.ends_with("left out\n"));
    }
}
