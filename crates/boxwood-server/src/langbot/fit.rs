//! Shortens an answer that is too long for its client.
//!
//! Only text that is still of use when it is cut: output, previews, instructions. What would be
//! written back some day, such as a file's content, is never cut.

use serde_json::Value;

use super::reply::ascii_len;

/// In the order in which they are given up.
const MAY_BE_CUT: [&str; 6] = [
    "stdout",
    "stderr",
    "stderr_preview",
    "instructions",
    // One package that says too much must not hide the others.
    "description",
    "display_name",
];

/// Cuts at least `excess` bytes of JSON from the data. `None` when there is not that much to cut.
pub(super) fn fit(mut data: Value, mut excess: usize) -> Option<Value> {
    for key in MAY_BE_CUT {
        while excess > 0 {
            let Some(text) = longest(&mut data, key) else {
                break;
            };
            let Some((shorter, saved)) = cut(text, excess) else {
                break;
            };
            *text = shorter;
            excess = excess.saturating_sub(saved);
        }
    }
    (excess == 0).then_some(data)
}

/// The longest text under that key, however deep.
fn longest<'a>(value: &'a mut Value, key: &str) -> Option<&'a mut String> {
    let mut candidates: Vec<&'a mut String> = Vec::new();
    match value {
        Value::Object(map) => {
            for (name, value) in map.iter_mut() {
                match value {
                    Value::String(text) => candidates.extend((name == key).then_some(text)),
                    nested => candidates.extend(longest(nested, key)),
                }
            }
        }
        Value::Array(items) => {
            candidates.extend(items.iter_mut().filter_map(|item| longest(item, key)));
        }
        _ => {}
    }
    candidates.into_iter().max_by_key(|text| text.len())
}

/// The line that says how much of the output was never kept; it stays when the rest is cut.
fn split_clip_notice(text: &str) -> (&str, &str) {
    match text.rfind("\n... [raw output clipped at ") {
        Some(at) if !text[at + 1..].contains('\n') => text.split_at(at),
        _ => (text, ""),
    }
}

/// The text without its end, and how much shorter it is. `None` when it is too short to bother.
fn cut(text: &str, excess: usize) -> Option<(String, usize)> {
    let (text, clip_notice) = split_clip_notice(text);
    let full: usize = text.chars().map(ascii_len).sum();
    let notice = |dropped: usize| {
        format!("\n... [{dropped} bytes left out: the answer would be too long for this client]")
    };
    let longest_notice: usize = notice(usize::MAX).chars().map(ascii_len).sum();
    let room = full.saturating_sub(excess).saturating_sub(longest_notice);
    if full <= 2 * longest_notice {
        return None;
    }
    let mut used = 0;
    let mut end = 0;
    for (at, c) in text.char_indices() {
        used += ascii_len(c);
        if used > room {
            break;
        }
        end = at + c.len_utf8();
    }
    let shorter = format!("{}{}", &text[..end], notice(text.len() - end));
    let now: usize = shorter.chars().map(ascii_len).sum();
    (now < full).then(|| (shorter + clip_notice, full - now))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn stdout_goes_first_and_says_so() {
        let data = json!({"stdout": "a".repeat(10_000), "stderr": "b".repeat(10_000)});
        let fitted = fit(data, 3000).expect("enough to cut");
        let stdout = fitted["stdout"].as_str().expect("text");
        assert!(stdout.len() <= 7000 && stdout.contains("bytes left out"));
        assert_eq!(fitted["stderr"].as_str().map(str::len), Some(10_000));
    }

    #[test]
    fn what_was_never_kept_stays_said() {
        let notice = "\n... [raw output clipped at 10 bytes, 7 bytes discarded]";
        let data = json!({"stdout": format!("{}{notice}", "a".repeat(10_000))});
        let fitted = fit(data, 3000).expect("enough to cut");
        let stdout = fitted["stdout"].as_str().expect("text");
        assert!(stdout.ends_with(notice) && stdout.contains("bytes left out"));
        assert!(stdout.len() <= 7000 + notice.len());
    }

    #[test]
    fn stderr_follows_when_stdout_is_not_enough() {
        let data = json!({"stdout": "a".repeat(1000), "stderr": "\u{1}".repeat(10_000)});
        let fitted = fit(data, 20_000).expect("enough to cut");
        assert!(
            fitted["stderr"]
                .as_str()
                .is_some_and(|text| text.contains("left out"))
        );
    }

    #[test]
    fn the_longest_of_many_is_cut() {
        let skill = |length: usize| json!({"name": "s", "instructions": "i".repeat(length)});
        let data = json!({"skills": [skill(10), skill(5000), skill(4000)]});
        let fitted = fit(data, 2000).expect("enough to cut");
        assert_eq!(fitted["skills"][0]["instructions"], "i".repeat(10));
        assert_eq!(fitted["skills"][2]["instructions"], "i".repeat(4000));
    }

    #[test]
    fn a_package_that_says_too_much_does_not_hide_the_others() {
        let loud = json!({"name": "loud", "description": "d".repeat(60_000)});
        let mut skills = vec![loud; 20];
        skills.push(json!({"name": "quiet", "description": "short"}));
        let fitted = fit(json!({"skills": skills}), 200_000).expect("enough to cut");
        assert!(fitted.to_string().len() < 1_010_000);
        assert_eq!(fitted["skills"][20]["description"], "short");
    }

    #[test]
    fn content_is_never_cut() {
        assert_eq!(fit(json!({"content": "x".repeat(5000)}), 100), None);
    }
}
