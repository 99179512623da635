//! From where on output is wanted, in the words of a query.

use boxwood_session::Since;

use super::error::{ApiError, ApiResult};

/// `what` is the word of the query that has the text.
pub(super) fn read(what: &str, text: &str) -> ApiResult<Since> {
    if text == "now" {
        return Ok(Since::Now);
    }
    // A sign would be read as part of a number.
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(wrong(what));
    }
    text.parse().map(Since::Offset).map_err(|_| wrong(what))
}

fn wrong(what: &str) -> ApiError {
    ApiError::validation(format!("{what} must be `now` or a number of bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_or_now() {
        let check = |text: &str, expected: Option<Since>| {
            assert_eq!(read("since", text).ok(), expected, "{text}");
        };
        check("now", Some(Since::Now));
        check("0", Some(Since::Offset(0)));
        check("18446744073709551615", Some(Since::Offset(u64::MAX)));
        for wrong in ["", "-1", "+1", "1.0", "NOW", "18446744073709551616", " 1"] {
            check(wrong, None);
        }
    }
}
