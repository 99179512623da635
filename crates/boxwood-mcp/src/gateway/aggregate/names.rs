//! Maps names of tools, prompts and resources of one server to names that are unique over all servers, and
//! back.
//!
//! Names consist of letters, digits, `_` and `-` and have at most 64 characters, which every client
//! accepts. A name is split at its first `__`. The server part contains no `__` and does not end in `_`, so
//! a tool cannot look like one of another server. Names that do not fit end in a digest; names that look as
//! if they ended in a digest get one too, so plain and shortened names never collide.

use boxwood_api::McpServerName;
use sha2::{Digest, Sha256};

const SEPARATOR: &str = "__";
const MAX_NAME_BYTES: usize = 64;
const MAX_SERVER_BYTES: usize = 32;
const DIGITS: usize = 12;
const SCHEME: &str = "mcp://";

/// The server part of an aggregate name, and the rest.
pub(crate) fn split_name(name: &str) -> Option<(&str, &str)> {
    name.split_once(SEPARATOR)
}

/// The server's own name. `None` if the rest of the aggregate name ends in a digest and has to be looked up.
pub(crate) fn original(rest: &str) -> Option<&str> {
    (!ends_in_digest(rest, "_x")).then_some(rest)
}

/// The aggregate name of `original` on `server`.
pub(crate) fn aggregate_name(server: &McpServerName, original: &str) -> String {
    let server = server_part(server);
    let room = MAX_NAME_BYTES - SEPARATOR.len() - server.len();
    let is_plain = !original.is_empty()
        && original.len() <= room
        && original.bytes().all(is_legal)
        && !ends_in_digest(original, "_x");
    if is_plain {
        return format!("{server}{SEPARATOR}{original}");
    }
    let prefix = slug(original, room - 2 - DIGITS);
    format!("{server}{SEPARATOR}{prefix}_x{}", digest(original))
}

/// The part of aggregate names for this server.
pub(crate) fn server_part(server: &McpServerName) -> String {
    let name = server.as_str();
    let is_plain = name.len() <= MAX_SERVER_BYTES
        && name.bytes().all(is_legal)
        && !name.contains(SEPARATOR)
        && !name.ends_with('_')
        && !ends_in_digest(name, "-x");
    if is_plain {
        return name.to_owned();
    }
    let prefix = slug(name, MAX_SERVER_BYTES - 2 - DIGITS).replace('_', "-");
    format!("{prefix}-x{}", digest(name))
}

fn is_legal(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

/// Keeps the readable part of the name.
fn slug(text: &str, max_chars: usize) -> String {
    let legal = |c: char| {
        if c.is_ascii() && is_legal(c as u8) {
            c
        } else {
            '-'
        }
    };
    text.chars().take(max_chars).map(legal).collect()
}

fn digest(text: &str) -> String {
    let sum = Sha256::digest(text.as_bytes());
    sum.iter()
        .take(DIGITS / 2)
        .fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
}

fn ends_in_digest(text: &str, prefix: &str) -> bool {
    let at = text.len().checked_sub(DIGITS + prefix.len());
    let tail = at.and_then(|at| text.get(at..));
    let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    tail.and_then(|tail| tail.strip_prefix(prefix))
        .is_some_and(|sum| sum.bytes().all(hex))
}

/// The original URI is not escaped, so that URI templates still expand correctly.
pub(crate) fn aggregate_uri(server: &McpServerName, original: &str) -> String {
    format!("{SCHEME}{server}/{original}")
}

/// The server and its own URI.
pub(crate) fn split_uri(uri: &str) -> Option<(McpServerName, &str)> {
    let (server, original) = uri.strip_prefix(SCHEME)?.split_once('/')?;
    let server = McpServerName::new(server).ok()?;
    (!original.is_empty()).then_some((server, original))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn named(name: &str) -> McpServerName {
        McpServerName::new(name).expect("a legal name")
    }

    fn server() -> impl Strategy<Value = McpServerName> {
        let free = "[A-Za-z0-9][A-Za-z0-9._-]{0,47}";
        let near = "[ab]_{0,3}[ab]?_{0,2}";
        let digested = "[ab]-x[0-9a-f]{12}";
        prop_oneof![free, near, digested].prop_map(|name| named(&name))
    }

    fn tool() -> impl Strategy<Value = String> {
        prop_oneof![
            ".{0,90}",
            "_{0,3}[ab]{0,2}_{0,3}[ab]?",
            "[ab]_x[0-9a-f]{12}",
            "[a-z_-]{20,80}"
        ]
    }

    proptest! {
        #[test]
        fn every_shown_name_is_one_that_clients_take(server in server(), tool in tool()) {
            let shown = aggregate_name(&server, &tool);
            prop_assert!((1..=64).contains(&shown.len()), "{shown}");
            prop_assert!(shown.bytes().all(is_legal), "{shown}");
        }

        #[test]
        fn a_shown_name_leads_back(server in server(), tool in tool()) {
            let name = aggregate_name(&server, &tool);
            let (part, rest) = split_name(&name).expect("it has two parts");
            prop_assert_eq!(part, server_part(&server));
            if let Some(original) = original(rest) {
                prop_assert_eq!(original, tool);
            }
        }

        #[test]
        fn different_things_never_share_a_name(
            one in (server(), tool()),
            other in (server(), tool()),
        ) {
            prop_assume!(one != other);
            let left = aggregate_name(&one.0, &one.1);
            let right = aggregate_name(&other.0, &other.1);
            prop_assert_ne!(&left, &right);
            let (part, _) = split_name(&left).expect("it has two parts");
            prop_assert!(one.0 == other.0 || part != server_part(&other.0));
        }

        #[test]
        fn an_address_leads_back(server in server(), uri in ".{1,200}") {
            let shown = aggregate_uri(&server, &uri);
            prop_assert_eq!(split_uri(&shown), Some((server, uri.as_str())));
        }
    }

    #[test]
    fn ordinary_names_stay_readable() {
        assert_eq!(
            aggregate_name(&named("time"), "get_current_time"),
            "time__get_current_time"
        );
        assert_eq!(aggregate_name(&named("git"), "_hidden"), "git___hidden");
        assert_eq!(
            aggregate_uri(&named("memo"), "memo://x/{id}"),
            "mcp://memo/memo://x/{id}"
        );
    }

    #[test]
    fn a_tool_cannot_look_like_one_of_another_server() {
        let other = aggregate_name(&named("a__b"), "c");
        assert_ne!(other, aggregate_name(&named("a"), "b__c"));
        assert_eq!(split_name("a__b__c"), Some(("a", "b__c")));
        assert_eq!(server_part(&named("a")), "a");
        assert_ne!(server_part(&named("a__b")), "a");
    }
}
