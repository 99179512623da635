//! `edit` in a skill's package, which is changed in the store.

use std::time::Duration;

use boxwood_api::EditedText;
use bytes::Bytes;
use serde_json::{Map, Value};
use similar::TextDiff;

use super::arguments::EditArgs;
use super::context::CallContext;
use super::not_done;
use crate::error::ToolError;

/// Limit of an edited file, as in a box.
const MAX_BYTES: usize = 16 * 1024 * 1024;

/// Longer diffs are cut.
const MAX_DIFF_BYTES: usize = 64 * 1024;

/// After this time the rest of the diff is less exact.
const DIFF_TIMEOUT: Duration = Duration::from_millis(200);

pub(super) async fn run(
    context: &CallContext<'_>,
    skill: &str,
    tail: &str,
    path: &str,
    args: &EditArgs,
) -> Result<Map<String, Value>, ToolError> {
    // Models request several edits at once, so the file must not change between read and write.
    let _alone = context.agent.inner.skill_edits.lock().await;
    let before = match context.boxes.read_skill_file(skill, tail).await {
        Ok(before) => before,
        Err(error) => return context.failure(error).await,
    };
    let Ok(before) = std::str::from_utf8(&before) else {
        return Ok(not_done(format!("{path} is not a text file.")));
    };
    let after = match replaced(before, &args.old_string, &args.new_string, args.replace_all) {
        Ok(after) => after,
        Err(why) => return Ok(not_done(why)),
    };
    let size = after.len();
    let count = before.matches(&args.old_string).count();
    let diff = diff(path, before, &after);
    let written = context
        .boxes
        .write_skill_file(skill, tail, Bytes::from(after))
        .await;
    let edited = written.map(|()| EditedText {
        path: path.to_owned(),
        replaced: count as u64,
        diff,
        size: size as u64,
    });
    context.result(edited).await
}

fn replaced(text: &str, old: &str, new: &str, all: bool) -> Result<String, String> {
    if old.is_empty() {
        return Err("old_string must not be empty.".to_owned());
    }
    if old == new {
        return Err("old_string and new_string are the same.".to_owned());
    }
    let count = text.matches(old).count();
    match count {
        0 => return Err("old_string not found in file.".to_owned()),
        2.. if !all => {
            return Err(format!(
                "old_string matches {count} locations; provide a more unique string."
            ));
        }
        _ => {}
    }
    // Checked first: many long replacements could exceed the memory of the machine.
    let grown = new.len().saturating_sub(old.len()).saturating_mul(count);
    if text.len().saturating_add(grown) > MAX_BYTES {
        return Err(format!(
            "the file would have more than {} MiB.",
            MAX_BYTES / (1024 * 1024)
        ));
    }
    Ok(text.replace(old, new))
}

/// A unified diff.
fn diff(path: &str, before: &str, after: &str) -> String {
    let mut text = format!("--- {path}\n+++ {path}\n");
    let diff = TextDiff::configure()
        .timeout(DIFF_TIMEOUT)
        .diff_lines(before, after);
    for hunk in diff.unified_diff().iter_hunks() {
        text.push_str(&hunk.to_string());
        if text.len() > MAX_DIFF_BYTES {
            text.truncate(text.floor_char_boundary(MAX_DIFF_BYTES));
            text.push_str("\n... the rest of the diff is left out\n");
            break;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_would_be_huge_is_refused() {
        let text = "a".repeat(1 << 20);
        let why = replaced(&text, "a", &text, true).expect_err("refused");
        assert_eq!(why, "the file would have more than 16 MiB.");
    }

    #[test]
    fn a_text_is_replaced_once_or_everywhere() {
        let check = |text: &str, old: &str, all: bool, expected: Result<&str, &str>| {
            let got = replaced(text, old, "N", all);
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
        let after = before.replace("5\n", "five\nand a half\n");
        assert_eq!(
            diff("f", before, &after),
            "--- f\n+++ f\n@@ -2,7 +2,8 @@\n 2\n 3\n 4\n-5\n+five\n+and a half\n 6\n 7\n 8\n"
        );
        assert!(
            diff("f", "a", "b")
                .ends_with("-a\n\\ No newline at end of file\n+b\n\\ No newline at end of file\n")
        );
    }

    #[test]
    fn a_long_diff_is_cut() {
        let diff = diff("f", &"é\n".repeat(100_000), &"ü\n".repeat(100_000));
        assert!(diff.len() < MAX_DIFF_BYTES + 100);
        assert!(diff.ends_with("... the rest of the diff is left out\n"));
    }
}
