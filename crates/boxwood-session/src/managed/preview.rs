//! The end of a process's stderr, shortened for display.

/// Total characters, including newlines.
const PREVIEW_CHARS: usize = 4000;

/// The last lines, without trailing spaces and empty lines.
pub(super) fn preview(stderr: &str) -> String {
    let lines = stderr.split('\n').map(str::trim_end);
    let mut remaining = PREVIEW_CHARS;
    let mut shown = Vec::new();
    for line in lines.rev().filter(|line| !line.is_empty()) {
        let chars = line.chars().count() + 1;
        if chars > remaining {
            if shown.is_empty() {
                // Only the end of a line longer than the preview is shown.
                shown.push(last_chars(line, PREVIEW_CHARS - 1));
            }
            break;
        }
        remaining -= chars;
        shown.push(line);
    }
    shown.reverse();
    shown.join("\n")
}

fn last_chars(text: &str, max: usize) -> &str {
    let start = text.char_indices().rev().take(max).last();
    start.map_or("", |(start, _)| &text[start..])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_are_trimmed_at_the_right_and_empty_ones_left_out() {
        assert_eq!(preview("  one  \n\ntwo\r\n"), "  one\ntwo");
    }

    #[test]
    fn a_line_without_its_end_is_shown_already() {
        assert_eq!(preview("one\ntwo"), "one\ntwo");
    }

    #[test]
    fn the_oldest_lines_go_first() {
        let lines: Vec<String> = (0..2000).map(|number| format!("line {number}")).collect();
        let text = preview(&lines.join("\n"));
        assert!(text.ends_with("line 1998\nline 1999"));
        assert!(!text.contains("line 1\n"));
    }

    #[test]
    fn a_line_without_end_is_shown_by_its_last_part() {
        let text = preview(&format!("{}the end", "a".repeat(100_000)));
        assert!(text.ends_with("aaathe end"));
        assert_eq!(text.len(), PREVIEW_CHARS - 1);
    }

    proptest! {
        #[test]
        fn a_preview_never_exceeds_its_limit(
            bytes in prop::collection::vec(any::<u8>(), 0..36_000),
        ) {
            let text = preview(&String::from_utf8_lossy(&bytes));
            prop_assert!(text.chars().count() <= PREVIEW_CHARS);
        }
    }
}
