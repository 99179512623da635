//! `edit` in a skill's package, which is changed in the store.

use bytes::Bytes;
use serde_json::{Map, Value};

use super::context::CallContext;
use super::{not_done, object};
use crate::arguments::EditArgs;
use crate::error::ToolError;

/// Lines of the file shown around a change.
const CONTEXT: usize = 3;

/// As large as a file may get by an edit, here and in a box.
const MOST_BYTES: usize = 16 * 1024 * 1024;

/// A longer diff only fills the model's window.
const MOST_DIFF_BYTES: usize = 64 * 1024;

pub(super) async fn run(
    context: &CallContext<'_>,
    skill: &str,
    tail: &str,
    path: &str,
    args: &EditArgs,
) -> Result<Map<String, Value>, ToolError> {
    // What is read has to be what is replaced: a model asks for several edits at once.
    let _alone = context.agent.inner.skill_edits.lock().await;
    let read = context.boxes.read_skill_file(skill, tail).await;
    let before = match context.done(read).await? {
        Ok(before) => before,
        Err(result) => return Ok(result),
    };
    let Ok(before) = std::str::from_utf8(&before) else {
        return Ok(not_done(format!("{path} is not a text file.")));
    };
    let after = match replaced(before, &args.old_string, &args.new_string, args.replace_all) {
        Ok(after) => after,
        Err(why) => return Ok(not_done(why)),
    };
    let size = after.text.len();
    let diff = diff(path, before, &after.places, args);
    let written = context
        .boxes
        .write_skill_file(skill, tail, Bytes::from(after.text))
        .await;
    Ok(match context.done(written).await? {
        Ok(()) => object([
            ("ok", true.into()),
            ("path", path.into()),
            ("replaced", after.places.len().into()),
            ("diff", diff.into()),
            ("size", size.into()),
        ]),
        Err(result) => result,
    })
}

struct Replaced {
    text: String,
    /// Where the old text began, in bytes of the old file.
    places: Vec<usize>,
}

fn replaced(text: &str, old: &str, new: &str, all: bool) -> Result<Replaced, String> {
    if old.is_empty() {
        return Err("old_string must not be empty.".to_owned());
    }
    if old == new {
        return Err("old_string and new_string are the same.".to_owned());
    }
    let count = text.match_indices(old).count();
    match count {
        0 => return Err("old_string not found in file.".to_owned()),
        2.. if !all => {
            return Err(format!(
                "old_string matches {count} locations; provide a more unique string."
            ));
        }
        _ => {}
    }
    // A short text replaced by a long one in many places is more than any machine has.
    let grown = new.len().saturating_sub(old.len()).saturating_mul(count);
    if text.len().saturating_add(grown) > MOST_BYTES {
        return Err(format!(
            "the file would have more than {} MiB.",
            MOST_BYTES / (1024 * 1024)
        ));
    }
    Ok(Replaced {
        text: text.replace(old, new),
        places: text.match_indices(old).map(|(at, _)| at).collect(),
    })
}

/// Whole lines of the old file, and what stands there now.
struct Change {
    first_line: usize,
    /// Behind the last.
    end_line: usize,
    new: String,
}

/// A unified diff. What is replaced is known, so nothing has to be compared.
fn diff(path: &str, before: &str, places: &[usize], args: &EditArgs) -> String {
    let lines: Vec<&str> = before.split_inclusive('\n').collect();
    let changes = changes(before, &lines, places, args);
    let mut text = format!("--- {path}\n+++ {path}\n");
    let mut shift = 0_isize;
    let mut rest = changes.as_slice();
    while let Some((hunk, others)) = next_hunk(rest) {
        write_hunk(&mut text, &lines, hunk, &mut shift);
        rest = others;
        if text.len() > MOST_DIFF_BYTES {
            cut(&mut text);
            break;
        }
    }
    text
}

fn cut(text: &mut String) {
    let end = (0..=MOST_DIFF_BYTES)
        .rev()
        .find(|at| text.is_char_boundary(*at))
        .unwrap_or(0);
    text.truncate(end);
    text.push_str("\n... the rest of the diff is left out\n");
}

fn changes(before: &str, lines: &[&str], places: &[usize], args: &EditArgs) -> Vec<Change> {
    let begins = line_begins(lines);
    let mut groups: Vec<(usize, usize, Vec<usize>)> = Vec::new();
    for place in places {
        let first_line = begins.partition_point(|begin| begin <= place) - 1;
        let end = place + args.old_string.len();
        let mut end_line = begins.partition_point(|begin| *begin < end);
        // Whether the line that the change leaves behind runs on into the next one.
        let whole_lines = args.new_string.is_empty() && *place == begins[first_line];
        let left_open = !whole_lines && !args.new_string.ends_with('\n');
        if begins[end_line] == end && left_open {
            end_line = (end_line + 1).min(lines.len());
        }
        match groups.last_mut() {
            Some((_, last_end, members)) if first_line < *last_end => {
                *last_end = end_line.max(*last_end);
                members.push(*place);
            }
            _ => groups.push((first_line, end_line, vec![*place])),
        }
    }
    groups
        .into_iter()
        .map(|(first_line, end_line, members)| {
            let mut new = String::new();
            let mut at = begins[first_line];
            for place in members {
                new.push_str(&before[at..place]);
                new.push_str(&args.new_string);
                at = place + args.old_string.len();
            }
            new.push_str(&before[at..begins[end_line]]);
            Change {
                first_line,
                end_line,
                new,
            }
        })
        .collect()
}

/// Where each line begins, in bytes, and where the text ends.
fn line_begins(lines: &[&str]) -> Vec<usize> {
    let mut begins = Vec::with_capacity(lines.len() + 1);
    let mut at = 0;
    for line in lines {
        begins.push(at);
        at += line.len();
    }
    begins.push(at);
    begins
}

/// Changes whose context touches stand in one hunk.
fn next_hunk(changes: &[Change]) -> Option<(&[Change], &[Change])> {
    let mut last = changes.first()?;
    let mut count = 1;
    for change in &changes[1..] {
        if change.first_line > last.end_line + 2 * CONTEXT {
            break;
        }
        last = change;
        count += 1;
    }
    Some(changes.split_at(count))
}

fn write_hunk(text: &mut String, lines: &[&str], hunk: &[Change], shift: &mut isize) {
    let (Some(first), Some(last)) = (hunk.first(), hunk.last()) else {
        return;
    };
    let begin = first.first_line.saturating_sub(CONTEXT);
    let end = (last.end_line + CONTEXT).min(lines.len());
    let mut body = String::new();
    let mut new_lines = 0_usize;
    let mut at = begin;
    for change in hunk {
        for line in &lines[at..change.first_line] {
            push_line(&mut body, ' ', line);
            new_lines += 1;
        }
        for line in &lines[change.first_line..change.end_line] {
            push_line(&mut body, '-', line);
        }
        for line in change.new.split_inclusive('\n') {
            push_line(&mut body, '+', line);
            new_lines += 1;
        }
        at = change.end_line;
    }
    for line in &lines[at..end] {
        push_line(&mut body, ' ', line);
        new_lines += 1;
    }
    let old_lines = end - begin;
    let new_begin = begin.saturating_add_signed(*shift);
    *shift += new_lines.cast_signed() - old_lines.cast_signed();
    let header = format!(
        "@@ -{},{old_lines} +{},{new_lines} @@\n",
        shown_begin(begin, old_lines),
        shown_begin(new_begin, new_lines)
    );
    text.push_str(&header);
    text.push_str(&body);
}

/// Counted from 1; an empty side names the line before it.
fn shown_begin(begin: usize, lines: usize) -> usize {
    if lines == 0 { begin } else { begin + 1 }
}

fn push_line(text: &mut String, mark: char, line: &str) {
    text.push(mark);
    text.push_str(line);
    if !line.ends_with('\n') {
        text.push_str("\n\\ No newline at end of file\n");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn args(old: &str, new: &str, replace_all: bool) -> EditArgs {
        EditArgs {
            path: String::new(),
            old_string: old.to_owned(),
            new_string: new.to_owned(),
            replace_all,
        }
    }

    fn diff_of(before: &str, args: &EditArgs) -> String {
        let after = replaced(before, &args.old_string, &args.new_string, args.replace_all);
        diff("f", before, &after.expect("it fits").places, args)
    }

    #[test]
    fn a_file_that_would_be_huge_is_refused() {
        let text = "a".repeat(1 << 20);
        let why = replaced(&text, "a", &text, true).err().expect("refused");
        assert_eq!(why, "the file would have more than 16 MiB.");
    }

    /// What `patch` would make of it.
    fn patched(before: &str, diff: &str) -> String {
        let lines: Vec<&str> = before.split_inclusive('\n').collect();
        let mut after = String::new();
        let mut at = 0;
        let mut rest = diff.split_inclusive('\n').skip(2).peekable();
        while let Some(line) = rest.next() {
            if let Some(header) = line.strip_prefix("@@ -") {
                let (begin, tail) = header.split_once(',').expect("a begin");
                let begin: usize = begin.parse().expect("a number");
                let (count, _) = tail.split_once(' ').expect("a count");
                let begin = if count == "0" { begin } else { begin - 1 };
                after.extend(lines[at..begin].iter().copied());
                at = begin;
                continue;
            }
            let open = rest.next_if(|next| next.starts_with('\\')).is_some();
            let text = if open {
                line[1..].trim_end_matches('\n')
            } else {
                &line[1..]
            };
            if !line.starts_with('+') {
                assert_eq!(lines[at], text);
                at += 1;
            }
            if !line.starts_with('-') {
                after.push_str(text);
            }
        }
        after.extend(lines[at..].iter().copied());
        after
    }

    #[test]
    fn a_text_is_replaced_once_or_everywhere() {
        let check = |text: &str, old: &str, all: bool, expected: Result<&str, &str>| {
            let got = replaced(text, old, "N", all).map(|after| after.text);
            assert_eq!(got.as_deref().map_err(String::as_str), expected);
        };
        check("a b", "b", false, Ok("a N"));
        check("b b", "b", true, Ok("N N"));
        check("a b", "c", true, Err("old_string not found in file."));
        check(
            "b b b",
            "b",
            false,
            Err("old_string matches 3 locations; provide a more unique string."),
        );
        check("a", "", false, Err("old_string must not be empty."));
    }

    #[test]
    fn a_diff_has_three_lines_of_context() {
        let before = "1\n2\n3\n4\n5\n6\n7\n8\n9\n";
        assert_eq!(
            diff_of(before, &args("5\n", "five\nand a half\n", false)),
            "--- f\n+++ f\n@@ -2,7 +2,8 @@\n 2\n 3\n 4\n-5\n+five\n+and a half\n 6\n 7\n 8\n"
        );
    }

    proptest! {
        #[test]
        fn a_diff_leads_from_the_old_text_to_the_new(
            before in "[ab\n]{1,60}",
            old in "[ab\n]{1,3}",
            new in "[abc\n]{0,4}",
        ) {
            let args = args(&old, &new, true);
            let Ok(after) = replaced(&before, &old, &new, true) else {
                return Ok(());
            };
            prop_assert_eq!(patched(&before, &diff_of(&before, &args)), after.text);
        }
    }
}
