//! Which bytes of a file a `Range` header means.

use axum::http::{HeaderMap, header};

/// What to send of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    All,
    /// From `start`, `length` bytes; never empty.
    Part {
        start: u64,
        length: u64,
    },
    /// The file has no such bytes.
    Nothing,
}

/// Reads the header against a file of `size` bytes whose version is `tag`.
///
/// What is not understood is ignored, as RFC 9110 has it: other units, several ranges, nonsense.
/// So is a range of another version of the file.
pub(super) fn wanted(headers: &HeaderMap, size: u64, tag: &str) -> Wanted {
    let mut ranges = headers.get_all(header::RANGE).iter();
    let (Some(range), None) = (ranges.next(), ranges.next()) else {
        return Wanted::All;
    };
    if let Some(condition) = headers.get(header::IF_RANGE)
        && condition.as_bytes() != tag.as_bytes()
    {
        return Wanted::All;
    }
    let Some((first, last)) = range.to_str().ok().and_then(bounds) else {
        return Wanted::All;
    };
    let (start, end) = match (first, last) {
        // The last so many bytes.
        (None, Some(0)) => return Wanted::Nothing,
        (None, Some(count)) => (size.saturating_sub(count), size),
        (Some(first), None) => (first, size),
        (Some(first), Some(last)) if first <= last => (first, size.min(last.saturating_add(1))),
        (Some(_), Some(_)) | (None, None) => return Wanted::All,
    };
    if start >= size {
        return Wanted::Nothing;
    }
    Wanted::Part {
        start,
        length: end - start,
    }
}

fn bounds(text: &str) -> Option<(Option<u64>, Option<u64>)> {
    let (unit, spec) = text.split_once('=')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") || spec.contains(',') {
        return None;
    }
    let (first, last) = spec.split_once('-')?;
    let (first, last) = (first.trim(), last.trim());
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    (digits(first) && digits(last)).then(|| (number(first), number(last)))
}

/// `None` when there is no digit.
fn number(digits: &str) -> Option<u64> {
    // A number too large to count to is past the end of any file.
    (!digits.is_empty()).then(|| digits.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(start: u64, length: u64) -> Wanted {
        Wanted::Part { start, length }
    }

    fn check(range: &str, size: u64, expected: Wanted) {
        let headers = HeaderMap::from_iter([(header::RANGE, range.parse().expect("header"))]);
        assert_eq!(
            wanted(&headers, size, "\"v1\""),
            expected,
            "{range} of {size}"
        );
    }

    #[test]
    fn ranges_are_read_as_the_standard_has_them() {
        check("bytes=0-0", 10, part(0, 1));
        check("bytes=2-5", 10, part(2, 4));
        check("bytes=2-", 10, part(2, 8));
        check("bytes=2-99999999999999999999999", 10, part(2, 8));
        check("bytes=-3", 10, part(7, 3));
        check("bytes=-30", 10, part(0, 10));
        check("Bytes = 1 - 2", 10, part(1, 2));
        check("bytes=10-", 10, Wanted::Nothing);
        check("bytes=-0", 10, Wanted::Nothing);
        check("bytes=0-", 0, Wanted::Nothing);
        check("bytes=-5", 0, Wanted::Nothing);
        for ignored in [
            "bytes=5-2",
            "bytes=-",
            "bytes=a-b",
            "bytes=0-1,3-4",
            "lines=1-2",
            "bytes",
            "bytes=+1-2",
        ] {
            check(ignored, 10, Wanted::All);
        }
    }

    #[test]
    fn a_range_of_another_version_is_ignored() {
        let headers = |tag: &str| {
            HeaderMap::from_iter([
                (header::RANGE, "bytes=1-2".parse().expect("header")),
                (header::IF_RANGE, tag.parse().expect("header")),
            ])
        };
        assert_eq!(wanted(&headers("\"v1\""), 10, "\"v1\""), part(1, 2));
        assert_eq!(wanted(&headers("\"v0\""), 10, "\"v1\""), Wanted::All);
    }
}
