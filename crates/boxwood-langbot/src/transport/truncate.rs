//! Truncates a response that is too long for its client.
//!
//! Only text that is useful when truncated: output, previews, descriptions. Content that a client may
//! write back, such as a file, is never truncated.

use serde_json::Value;

use super::response::ascii_len;

/// In the order in which they are truncated.
const TRUNCATABLE: [&str; 6] = [
    "stdout",
    "stderr",
    "stderr_preview",
    "instructions",
    // So that one package with a long description does not hide the others.
    "description",
    "display_name",
];

/// Removes at least `excess` bytes of JSON. `None` if there is not enough to remove.
pub(crate) fn truncate(mut data: Value, mut excess: usize) -> Option<Value> {
    for key in TRUNCATABLE {
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

/// The longest string under that key, at any depth.
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

/// Separates the notice about dropped output, which is kept when the rest is truncated.
fn split_clip_notice(text: &str) -> (&str, &str) {
    match text.rfind("\n... [raw output clipped at ") {
        Some(index) if !text[index + 1..].contains('\n') => text.split_at(index),
        _ => (text, ""),
    }
}

/// The text without its end, and the number of bytes saved. `None` if it is too short.
fn cut(text: &str, excess: usize) -> Option<(String, usize)> {
    let (text, clip_notice) = split_clip_notice(text);
    let original_len: usize = text.chars().map(ascii_len).sum();
    let notice = |dropped: usize| {
        format!("\n... [{dropped} bytes left out: the response would be too long for this client]")
    };
    let longest_notice: usize = notice(usize::MAX).chars().map(ascii_len).sum();
    let available = original_len
        .saturating_sub(excess)
        .saturating_sub(longest_notice);
    if original_len <= 2 * longest_notice {
        return None;
    }
    let mut kept_len = 0;
    let mut end = 0;
    for (index, c) in text.char_indices() {
        kept_len += ascii_len(c);
        if kept_len > available {
            break;
        }
        end = index + c.len_utf8();
    }
    let shorter = format!("{}{}", &text[..end], notice(text.len() - end));
    let shortened_len: usize = shorter.chars().map(ascii_len).sum();
    (shortened_len < original_len).then(|| (shorter + clip_notice, original_len - shortened_len))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn stdout_is_truncated_first_with_a_notice() {
        let data = json!({"stdout": "a".repeat(10_000), "stderr": "b".repeat(10_000)});
        let fitted = truncate(data, 3000).expect("enough to cut");
        let stdout = fitted["stdout"].as_str().expect("text");
        assert!(stdout.len() <= 7000 && stdout.contains("bytes left out"));
        assert_eq!(fitted["stderr"].as_str().map(str::len), Some(10_000));
    }

    #[test]
    fn the_notice_about_dropped_output_is_kept() {
        let notice = "\n... [raw output clipped at 10 bytes, 7 bytes discarded]";
        let data = json!({"stdout": format!("{}{notice}", "a".repeat(10_000))});
        let fitted = truncate(data, 3000).expect("enough to cut");
        let stdout = fitted["stdout"].as_str().expect("text");
        assert!(stdout.ends_with(notice) && stdout.contains("bytes left out"));
        assert!(stdout.len() <= 7000 + notice.len());
    }

    #[test]
    fn stderr_follows_when_stdout_is_not_enough() {
        let data = json!({"stdout": "a".repeat(1000), "stderr": "\u{1}".repeat(10_000)});
        let fitted = truncate(data, 20_000).expect("enough to cut");
        assert!(
            fitted["stderr"]
                .as_str()
                .is_some_and(|text| text.contains("left out"))
        );
    }

    #[test]
    fn the_longest_of_many_is_truncated() {
        let skill = |length: usize| json!({"name": "s", "instructions": "i".repeat(length)});
        let data = json!({"skills": [skill(10), skill(5000), skill(4000)]});
        let fitted = truncate(data, 2000).expect("enough to cut");
        assert_eq!(fitted["skills"][0]["instructions"], "i".repeat(10));
        assert_eq!(fitted["skills"][2]["instructions"], "i".repeat(4000));
    }

    #[test]
    fn a_package_with_a_long_description_does_not_hide_the_others() {
        let loud = json!({"name": "loud", "description": "d".repeat(60_000)});
        let mut skills = vec![loud; 20];
        skills.push(json!({"name": "quiet", "description": "short"}));
        let fitted = truncate(json!({"skills": skills}), 200_000).expect("enough to cut");
        assert!(fitted.to_string().len() < 1_010_000);
        assert_eq!(fitted["skills"][20]["description"], "short");
    }

    #[test]
    fn content_is_never_truncated() {
        assert_eq!(truncate(json!({"content": "x".repeat(5000)}), 100), None);
    }
}
