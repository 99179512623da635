use boxwood_agent::truncate;
use proptest::prelude::*;

/// Different characters, so that a head and a tail can only come from where they should.
fn text(length: usize) -> String {
    ('a'..='z').cycle().take(length).collect()
}

fn notice(omitted: usize) -> String {
    format!("\n\n... [{omitted} characters truncated] ...\n\n")
}

#[test]
fn long_texts_are_cut_as_the_golden_vectors_say() {
    for (length, limit, head, omitted, tail) in [
        (520, 100, 37, 458, 25),
        (5_000, 4_000, 2_376, 1_039, 1_585),
        (10_000, 4_000, 2_376, 6_039, 1_585),
        (1_000_000, 4_000, 2_375, 996_041, 1_584),
        (4_001, 4_000, 2_377, 38, 1_586),
        (1_000, 45, 4, 993, 3),
    ] {
        let text = text(length);
        let cut = truncate(&text, limit);
        let expected = format!(
            "{}{}{}",
            &text[..head],
            notice(omitted),
            &text[length - tail..]
        );
        assert_eq!(cut.text, expected, "{length} to {limit}");
        assert!(cut.truncated);
        assert_eq!(cut.omitted, omitted);
    }
}

#[test]
fn a_limit_below_the_notice_leaves_the_beginning_of_the_notice() {
    let cut = truncate(&text(50), 30);
    assert_eq!(cut.text, notice(50)[..30]);
    assert!(cut.truncated);
    assert_eq!(cut.omitted, 50);
}

#[test]
fn a_limit_of_zero_leaves_nothing() {
    let cut = truncate("a", 0);
    assert_eq!((cut.text.as_str(), cut.truncated), ("", true));
    let empty = truncate("", 0);
    assert_eq!((empty.text.as_str(), empty.truncated), ("", false));
}

#[test]
fn a_short_text_is_unchanged() {
    let cut = truncate("hello", 4_000);
    assert_eq!(
        (cut.text.as_str(), cut.truncated, cut.omitted),
        ("hello", false, 0)
    );
}

#[test]
fn a_text_of_exactly_the_limit_is_not_cut() {
    let whole = text(4_000);
    let cut = truncate(&whole, 4_000);
    assert!(!cut.truncated);
    assert_eq!(cut.text, whole);
}

#[test]
fn head_and_tail_are_kept_and_the_notice_stands_between_them() {
    let long = format!("BEGIN{}END", text(500));
    let cut = truncate(&long, 100);
    assert!(cut.text.chars().count() <= 100);
    assert!(cut.text.starts_with("BEGIN"));
    assert!(cut.text.ends_with("END"));
    assert!(cut.text.contains("characters truncated"));
}

#[test]
fn characters_are_counted_not_bytes() {
    let four_bytes_each: String = "🌲".repeat(4_000);
    assert!(!truncate(&four_bytes_each, 4_000).truncated);
    let cut = truncate(&"🌲".repeat(4_001), 4_000);
    assert_eq!(cut.text.chars().count(), 4_000);
    assert_eq!(cut.omitted, 38);
}

/// The same in the words of the original, step by step and with its floating point.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "the original computes so"
)]
fn original(text: &str, limit: usize) -> String {
    let text: Vec<char> = text.chars().collect();
    if text.len() <= limit {
        return text.into_iter().collect();
    }
    if limit == 0 {
        return String::new();
    }
    let (mut head, mut tail, mut shown) = (0, 0, String::new());
    for _ in 0..4 {
        shown = notice(text.len() - head - tail);
        if limit <= shown.len() {
            return shown[..limit].to_owned();
        }
        let available = limit - shown.len();
        let new_head = (available as f64 * 0.6) as usize;
        if (new_head, available - new_head) == (head, tail) {
            break;
        }
        (head, tail) = (new_head, available - new_head);
    }
    let mut whole: Vec<char> = text[..head].to_vec();
    whole.extend(shown.chars());
    whole.extend(&text[text.len() - tail..]);
    whole.into_iter().take(limit).collect()
}

proptest! {
    #[test]
    fn what_is_kept_fits_and_comes_from_both_ends(text in "\\PC{0,400}|[a-zé🌲\n]{0,1200}", limit in 0_usize..600) {
        let cut = truncate(&text, limit);
        let length = text.chars().count();
        prop_assert!(cut.text.chars().count() <= limit);
        prop_assert_eq!(cut.truncated, length > limit);
        prop_assert_eq!(&cut.text, &original(&text, limit));
        if cut.truncated {
            let mark = notice(cut.omitted);
            if let Some((head, tail)) = cut.text.split_once(&mark) {
                prop_assert!(text.starts_with(head));
                prop_assert!(text.ends_with(tail));
                prop_assert_eq!(length, head.chars().count() + tail.chars().count() + cut.omitted);
            } else {
                prop_assert_eq!(cut.omitted, length);
                prop_assert!(mark.starts_with(&cut.text));
            }
        } else {
            prop_assert_eq!(&cut.text, &text);
            prop_assert_eq!(cut.omitted, 0);
        }
    }

    #[test]
    fn a_cut_text_is_not_cut_again(text in ".{0,800}", limit in 0_usize..600) {
        let once = truncate(&text, limit);
        let twice = truncate(&once.text, limit);
        prop_assert!(!twice.truncated);
        prop_assert_eq!(twice.text, once.text);
    }

    #[test]
    fn three_fifths_are_what_floating_point_makes_of_them(limit in 40_usize..100_000, more in 1_usize..100_000) {
        let text = text(limit + more);
        prop_assert_eq!(truncate(&text, limit).text, original(&text, limit));
    }
}
