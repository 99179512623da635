//! Parses the `Range` header.

use axum::http::{HeaderMap, header};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RangeRequest {
    All,
    /// From `start`, `length` bytes; never empty.
    Part {
        start: u64,
        length: u64,
    },
    /// The range is outside of the file.
    Unsatisfiable,
}

/// Evaluates the header for a file of `size` bytes with the entity tag `tag`.
///
/// As in RFC 9110, the header is ignored if it has another unit, several ranges or invalid syntax, or if
/// `If-Range` names another version of the file.
pub(crate) fn requested_range(headers: &HeaderMap, size: u64, tag: &str) -> RangeRequest {
    let mut ranges = headers.get_all(header::RANGE).iter();
    let (Some(range), None) = (ranges.next(), ranges.next()) else {
        return RangeRequest::All;
    };
    if let Some(condition) = headers.get(header::IF_RANGE)
        && condition.as_bytes() != tag.as_bytes()
    {
        return RangeRequest::All;
    }
    let Some((first, last)) = range.to_str().ok().and_then(bounds) else {
        return RangeRequest::All;
    };
    let (start, end) = match (first, last) {
        // Suffix range: the last bytes.
        (None, Some(0)) => return RangeRequest::Unsatisfiable,
        (None, Some(count)) => (size.saturating_sub(count), size),
        (Some(first), None) => (first, size),
        (Some(first), Some(last)) if first <= last => (first, size.min(last.saturating_add(1))),
        (Some(_), Some(_)) | (None, None) => return RangeRequest::All,
    };
    if start >= size {
        return RangeRequest::Unsatisfiable;
    }
    RangeRequest::Part {
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

/// `None` for an empty string.
fn number(digits: &str) -> Option<u64> {
    // A number that overflows is past the end of any file.
    (!digits.is_empty()).then(|| digits.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(start: u64, length: u64) -> RangeRequest {
        RangeRequest::Part { start, length }
    }

    fn check(range: &str, size: u64, expected: RangeRequest) {
        let headers = HeaderMap::from_iter([(header::RANGE, range.parse().expect("header"))]);
        assert_eq!(
            requested_range(&headers, size, "\"v1\""),
            expected,
            "{range} of {size}"
        );
    }

    #[test]
    fn ranges_follow_rfc_9110() {
        check("bytes=0-0", 10, part(0, 1));
        check("bytes=2-5", 10, part(2, 4));
        check("bytes=2-", 10, part(2, 8));
        check("bytes=2-99999999999999999999999", 10, part(2, 8));
        check("bytes=-3", 10, part(7, 3));
        check("bytes=-30", 10, part(0, 10));
        check("Bytes = 1 - 2", 10, part(1, 2));
        check("bytes=10-", 10, RangeRequest::Unsatisfiable);
        check("bytes=-0", 10, RangeRequest::Unsatisfiable);
        check("bytes=0-", 0, RangeRequest::Unsatisfiable);
        check("bytes=-5", 0, RangeRequest::Unsatisfiable);
        for ignored in [
            "bytes=5-2",
            "bytes=-",
            "bytes=a-b",
            "bytes=0-1,3-4",
            "lines=1-2",
            "bytes",
            "bytes=+1-2",
        ] {
            check(ignored, 10, RangeRequest::All);
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
        assert_eq!(
            requested_range(&headers("\"v1\""), 10, "\"v1\""),
            part(1, 2)
        );
        assert_eq!(
            requested_range(&headers("\"v0\""), 10, "\"v1\""),
            RangeRequest::All
        );
    }
}
