//! Encodes ids and paths in request targets.

use hyper::Method;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

/// All but the unreserved characters of RFC 3986.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// A request target under construction.
#[derive(Clone)]
pub(crate) struct Target {
    text: String,
    has_query: bool,
}

impl Target {
    pub(crate) fn new(fixed: &str) -> Self {
        Self {
            text: fixed.to_owned(),
            has_query: false,
        }
    }

    /// Adds one path segment, encoded. Segments of only dots are encoded too, so that `..` is not
    /// taken for the parent directory.
    pub(crate) fn segment(mut self, segment: &str) -> Self {
        self.text.push('/');
        if !segment.is_empty() && segment.bytes().all(|byte| byte == b'.') {
            self.text.push_str(&"%2E".repeat(segment.len()));
        } else {
            self.text.extend(utf8_percent_encode(segment, RESERVED));
        }
        self
    }

    /// Adds a relative path. Slashes are kept, everything else is encoded.
    pub(crate) fn path(self, path: &str) -> Self {
        path.split('/').fold(self, Self::segment)
    }

    /// Adds text that needs no encoding, without leading slash.
    pub(crate) fn fixed(mut self, text: &str) -> Self {
        self.text.push('/');
        self.text.push_str(text);
        self
    }

    pub(crate) fn query(mut self, key: &str, value: &str) -> Self {
        self.text.push(if self.has_query { '&' } else { '?' });
        self.has_query = true;
        self.text.push_str(key);
        self.text.push('=');
        self.text.extend(utf8_percent_encode(value, RESERVED));
        self
    }

    /// Adds a query parameter if it has a value.
    pub(crate) fn maybe_query(self, key: &str, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.query(key, value),
            None => self,
        }
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// The request as named in errors, such as `GET /v1/sessions`. Without the query, which may be
    /// long.
    pub(crate) fn operation(&self, method: &Method) -> String {
        let path = self.text.split('?').next().unwrap_or_default();
        format!("{method} {path}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(id: &str, expected: &str) {
        let target = Target::new("/v1/sessions").segment(id).fixed("exec");
        assert_eq!(target.as_str(), expected);
    }

    #[test]
    fn an_id_is_encoded_as_one_segment() {
        check("build-1", "/v1/sessions/build-1/exec");
        check("../x", "/v1/sessions/..%2Fx/exec");
        check("..", "/v1/sessions/%2E%2E/exec");
        check("a b?c#d%", "/v1/sessions/a%20b%3Fc%23d%25/exec");
        check("字", "/v1/sessions/%E5%AD%97/exec");
    }

    #[test]
    fn a_path_keeps_its_slashes_and_encodes_dot_segments() {
        let target = Target::new("/files").path("a b/../c?.txt");
        assert_eq!(target.as_str(), "/files/a%20b/%2E%2E/c%3F.txt");
    }

    #[test]
    fn query_values_are_encoded() {
        let target = Target::new("/files")
            .query("path", "/a&b=c +")
            .query("x", "1");
        assert_eq!(target.as_str(), "/files?path=%2Fa%26b%3Dc%20%2B&x=1");
    }
}
