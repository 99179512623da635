//! Derives valid, distinct server names from the names of a document. Names that are already valid stay unchanged.

use std::collections::BTreeSet;

use boxwood_api::McpServerName;

pub(super) fn legal_names<'a>(names: &[&'a str]) -> Vec<(&'a str, McpServerName)> {
    let mut used: BTreeSet<String> = names
        .iter()
        .filter(|name| McpServerName::new(**name).is_ok())
        .map(|&name| name.to_owned())
        .collect();
    names
        .iter()
        .filter_map(|&name| {
            let legal = match McpServerName::new(name) {
                Ok(legal) => legal,
                Err(_) => unused(&sanitized(name), &mut used)?,
            };
            Some((name, legal))
        })
        .collect()
}

/// Replaces invalid characters.
fn sanitized(name: &str) -> String {
    let name: String = name.chars().take(4 * McpServerName::MAX_BYTES).collect();
    let is_invalid = |char: char| !(char.is_ascii_alphanumeric() || "._-".contains(char));
    let parts: Vec<_> = name
        .split(is_invalid)
        .filter(|part| !part.is_empty())
        .collect();
    let joined = parts.join("-");
    let joined = joined
        .trim_start_matches(|char: char| !char.is_ascii_alphanumeric())
        .trim_end_matches('-');
    // The text is ASCII, so any cut is at a character boundary.
    match &joined[..joined.len().min(McpServerName::MAX_BYTES)] {
        "" => "server".to_owned(),
        joined => joined.to_owned(),
    }
}

/// The first unused name of `x`, `x-2`, `x-3` and so on.
fn unused(base: &str, used: &mut BTreeSet<String>) -> Option<McpServerName> {
    let numbered = (2..=used.len() + 2).map(|number| {
        let suffix = format!("-{number}");
        let max_bytes = McpServerName::MAX_BYTES - suffix.len();
        format!("{}{suffix}", &base[..base.len().min(max_bytes)])
    });
    let name = std::iter::once(base.to_owned())
        .chain(numbered)
        .find(|name| !used.contains(name))?;
    used.insert(name.clone());
    McpServerName::new(name).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(names: &[&str], expected: &[&str]) {
        let legal = legal_names(names);
        let legal: Vec<_> = legal.iter().map(|(_, name)| name.as_str()).collect();
        assert_eq!(legal, expected);
    }

    #[test]
    fn invalid_characters_are_replaced() {
        check(&["time", "Git.Hub_2"], &["time", "Git.Hub_2"]);
        check(&["My Server!", "@scope/name"], &["My-Server", "scope-name"]);
        check(&["", "字", "-._"], &["server", "server-2", "server-3"]);
        check(&["Ünï"], &["n"]);
        let long = "a".repeat(60);
        check(&[&long], &[&long[..48]]);
    }

    #[test]
    fn valid_names_are_never_changed() {
        check(&["a b", "a/b", "a-b"], &["a-b-2", "a-b-3", "a-b"]);
        let long = "a".repeat(48);
        let longer = "a".repeat(49);
        let cut = format!("{}-2", &long[..46]);
        check(&[&longer, &long], &[&cut, &long]);
    }

    proptest! {
        #[test]
        fn every_name_gets_a_distinct_valid_name(
            names in proptest::collection::btree_set("[ab \u{e9}/._-]{0,3}|\\PC{0,60}", 0..40)
        ) {
            let originals: Vec<&str> = names.iter().map(String::as_str).collect();
            let legal = legal_names(&originals);
            prop_assert_eq!(legal.len(), originals.len());
            let distinct: BTreeSet<_> = legal.iter().map(|(_, name)| name.clone()).collect();
            prop_assert_eq!(distinct.len(), originals.len());
            for (original, name) in legal {
                if McpServerName::new(original).is_ok() {
                    prop_assert_eq!(original, name.as_str());
                }
            }
        }
    }
}
