//! Decides which tools of a server clients may see and call.
//!
//! In patterns, `*` matches any text. `deny` wins over `allow`.

use boxwood_api::McpToolFilter;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolFilter {
    allow: Vec<String>,
    deny: Vec<String>,
}

impl From<&McpToolFilter> for ToolFilter {
    fn from(filter: &McpToolFilter) -> Self {
        Self {
            allow: filter.allow.clone(),
            deny: filter.deny.clone(),
        }
    }
}

impl ToolFilter {
    pub fn admits(&self, tool: &str) -> bool {
        let any = |patterns: &[String]| patterns.iter().any(|pattern| matches(pattern, tool));
        (self.allow.is_empty() || any(&self.allow)) && !any(&self.deny)
    }

    /// Returns true if nothing is filtered, so that lists can be passed on unchanged.
    pub fn is_open(&self) -> bool {
        self.allow.is_empty() && self.deny.is_empty()
    }
}

/// Matches each part between two stars at its first occurrence.
fn matches(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else {
        return pattern == text;
    };
    let (middle, last) = rest.rsplit_once('*').unwrap_or(("", rest));
    let inner = text.strip_prefix(first);
    let Some(mut remaining) = inner.and_then(|text| text.strip_suffix(last)) else {
        return false;
    };
    for part in middle.split('*') {
        let Some(at) = remaining.find(part) else {
            return false;
        };
        remaining = &remaining[at + part.len()..];
    }
    true
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn filter(allow: &[&str], deny: &[&str]) -> ToolFilter {
        let owned = |patterns: &[&str]| patterns.iter().map(|&text| text.to_owned()).collect();
        ToolFilter {
            allow: owned(allow),
            deny: owned(deny),
        }
    }

    #[track_caller]
    fn check(filter: &ToolFilter, admitted: &[&str], refused: &[&str]) {
        for tool in admitted {
            assert!(filter.admits(tool), "`{tool}` should pass {filter:?}");
        }
        for tool in refused {
            assert!(!filter.admits(tool), "`{tool}` should not pass {filter:?}");
        }
    }

    #[test]
    fn an_empty_filter_allows_everything() {
        check(&filter(&[], &[]), &["", "read", "*"], &[]);
        assert!(filter(&[], &[]).is_open());
        assert!(!filter(&[], &["x"]).is_open());
    }

    #[test]
    fn allow_limits_and_deny_wins() {
        check(
            &filter(&["read*", "ls"], &["*secret*"]),
            &["read", "read_file", "ls"],
            &["write", "lsx", "read_secret", "", "Read"],
        );
        check(&filter(&["*"], &["*"]), &[], &["anything", ""]);
    }

    #[test]
    fn stars_match_any_text() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("**", "a", true),
            ("a*c", "abc", true),
            ("a*c", "ac", true),
            ("a*c", "acb", false),
            ("*ab", "aab", true),
            ("*a*b*c", "xxaxxbxxbc", true),
            ("a", "*", false),
            ("", "", true),
            ("", "a", false),
            ("é*", "éa", true),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} on {text}");
        }
    }

    /// Reference implementation.
    fn matches_reference(pattern: &[u8], text: &[u8]) -> bool {
        match pattern.split_first() {
            None => text.is_empty(),
            Some((b'*', rest)) => {
                (0..=text.len()).any(|taken| matches_reference(rest, &text[taken..]))
            }
            Some((byte, rest)) => text
                .split_first()
                .is_some_and(|(first, after)| first == byte && matches_reference(rest, after)),
        }
    }

    proptest! {
        #[test]
        fn matching_agrees_with_the_reference(pattern in "[ab*]{0,8}", text in "[ab]{0,8}") {
            prop_assert_eq!(
                matches(&pattern, &text),
                matches_reference(pattern.as_bytes(), text.as_bytes())
            );
        }

        #[test]
        fn denied_tools_never_pass(
            allow in proptest::collection::vec("[a-c*]{0,4}", 0..4),
            deny in proptest::collection::vec("[a-c*]{0,4}", 0..4),
            tool in "[a-c]{0,6}",
        ) {
            let filter = ToolFilter { allow, deny: deny.clone() };
            if filter.admits(&tool) {
                prop_assert!(!deny.iter().any(|pattern| matches_reference(pattern.as_bytes(), tool.as_bytes())));
            }
        }
    }
}
