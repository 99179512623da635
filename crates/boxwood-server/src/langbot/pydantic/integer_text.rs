//! Integers written as text, as lenient as pydantic is with them.

use super::errors::Wrong;

/// Python stops here too when it reads digits.
const MOST_DIGITS: usize = 4300;

/// Surrounding white space, one sign, leading zeros, single underscores between digits and a fraction
/// of zeros are all fine. What exceeds 128 bits comes back as the nearest end of them: no field
/// allows anything near.
pub(super) fn parse(text: &str) -> Result<i128, Wrong> {
    let unreadable = || {
        Wrong::new(
            "int_parsing",
            "Input should be a valid integer, unable to parse string as an integer",
        )
    };
    if leading_digits(text) > MOST_DIGITS {
        return Err(Wrong::new(
            "int_parsing_size",
            "Unable to parse input string as an integer, exceeded maximum size",
        ));
    }
    plain(text)
        .or_else(|| tidied(text.trim()).and_then(|tidy| plain(&tidy)))
        .ok_or_else(unreadable)
}

/// Of a number that begins like one in JSON.
fn leading_digits(text: &str) -> usize {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.starts_with('0') {
        return 0;
    }
    digits.bytes().take_while(u8::is_ascii_digit).count()
}

/// JSON's integers: no plus, no leading zero.
fn plain(text: &str) -> Option<i128> {
    let (digits, negative) = match text.strip_prefix('-') {
        Some(digits) => (digits, true),
        None => (text, false),
    };
    let zero_first = digits.len() > 1 && digits.starts_with('0');
    if digits.is_empty()
        || zero_first
        || digits.len() > MOST_DIGITS
        || !digits.bytes().all(|byte| byte.is_ascii_digit())
    {
        return None;
    }
    let end = if negative { i128::MIN } else { i128::MAX };
    Some(text.parse().unwrap_or(end))
}

/// The plain spelling of a trimmed text, where there is one.
fn tidied(text: &str) -> Option<String> {
    let (text, plus) = match text.strip_prefix('+') {
        Some(rest) => (rest, true),
        None => (text, false),
    };
    let (text, minus) = match text.strip_prefix('-') {
        Some(rest) => (rest, true),
        None => (text, false),
    };
    if minus && (plus || text.starts_with(['+', '-'])) {
        return None;
    }
    let mut text = without_leading_zeros(text)?;
    if let Some((whole, fraction)) = text.split_once('.')
        && !fraction.is_empty()
        && fraction.bytes().all(|byte| byte == b'0')
    {
        text = whole;
    }
    let sign = if minus { "-" } else { "" };
    Some(format!("{sign}{}", without_underscores(text)))
}

/// Keeps one zero if there is nothing else, or only a fraction. Underscores among the zeros go with
/// them, and a minus may follow them: pydantic reads `0-5` as -5.
fn without_leading_zeros(text: &str) -> Option<&str> {
    if text.starts_with(|first: char| matches!(first, '1'..='9' | '-')) {
        return Some(text);
    }
    if !text.starts_with('0') {
        return None;
    }
    match text.find(|character| !matches!(character, '0' | '_')) {
        // The zero, or an underscore that nobody will take for a number.
        None => text.get(text.len() - 1..),
        Some(first) => match text.as_bytes().get(first) {
            Some(b'1'..=b'9' | b'-') => text.get(first..),
            Some(b'.') => text.get(first - 1..),
            _ => None,
        },
    }
}

/// Underscores in a wrong place stay, so that the text is not taken for a number.
pub(super) fn without_underscores(text: &str) -> String {
    if text.starts_with('_') || text.ends_with('_') || text.contains("__") {
        return text.to_owned();
    }
    text.replace('_', "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_leniently() {
        let check = |text: &str, expected: Option<i128>| {
            assert_eq!(parse(text).ok(), expected, "{text:?}");
        };
        for text in [
            "7", " 7\n", "+7", "007", "7.0", "7.000", "0_7", "0__7", "0_0_7",
        ] {
            check(text, Some(7));
        }
        check("-7", Some(-7));
        check(" -007.0 ", Some(-7));
        check("0-5", Some(-5));
        check("1_000", Some(1000));
        check("000", Some(0));
        check("-0", Some(0));
        check(&"9".repeat(4300), Some(i128::MAX));
        check(&format!("-{}", "9".repeat(4300)), Some(i128::MIN));
        for text in [
            "", " ", "+", "-", "_7", "7_", "7__0", "0_", "+-7", "-+7", "--7", "7.", "7.5", ".0",
            "7e3", "0x7", "seven", "٧", "1 0",
        ] {
            check(text, None);
        }
    }

    #[test]
    fn too_many_digits_are_a_matter_of_size() {
        let wrong = parse(&"9".repeat(4301)).expect_err("more digits than Python reads");
        assert_eq!(
            wrong,
            Wrong::new(
                "int_parsing_size",
                "Unable to parse input string as an integer, exceeded maximum size",
            )
        );
    }
}
