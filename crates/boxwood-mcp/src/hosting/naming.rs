//! The names of boxes and processes.

use boxwood_api::{McpServerName, ProcessId, SessionId};

/// Names of servers are short and plain, so this cannot fail in earnest.
pub(crate) fn session_of(name: &McpServerName) -> SessionId {
    session(&format!("mcp-{name}"))
}

/// The server whose box it would be.
pub(crate) fn server_of(session: &SessionId) -> Option<McpServerName> {
    McpServerName::new(session.as_str().strip_prefix("mcp-")?).ok()
}

/// Whether it is the box of a test or an install.
pub(crate) fn is_temporary(session: &SessionId) -> bool {
    let name = session.as_str().strip_prefix("mcp-");
    name.is_some_and(is_of_no_server)
}

/// The box of such a server would have the name of a box that is none: the one LangBot shares, or that of
/// a test or an install.
pub(crate) fn is_reserved(name: &McpServerName) -> bool {
    name.as_str() == "shared" || is_of_no_server(name.as_str())
}

fn is_of_no_server(name: &str) -> bool {
    let ours = ["test-", "install-"];
    let rest = ours.iter().find_map(|prefix| name.strip_prefix(prefix));
    rest.is_some_and(is_shaped_like_a_uuid)
}

fn is_shaped_like_a_uuid(text: &str) -> bool {
    let parts: Vec<_> = text.split('-').collect();
    let lengths = parts.iter().map(|part| part.len());
    let is_hex = |part: &&str| part.bytes().all(|byte| byte.is_ascii_hexdigit());
    lengths.eq([8, 4, 4, 4, 12]) && parts.iter().all(is_hex)
}

pub(crate) fn test_session() -> SessionId {
    session(&format!("mcp-test-{}", random_uuid()))
}

pub(crate) fn install_session() -> SessionId {
    session(&format!("mcp-install-{}", random_uuid()))
}

pub(crate) fn main_process() -> ProcessId {
    process("main")
}

pub(crate) fn modern_process() -> ProcessId {
    process("modern")
}

pub(crate) fn own_process(number: u64) -> ProcessId {
    process(&format!("own-{number}"))
}

/// Whether it is a process that hosting starts beside the main one.
pub(crate) fn is_child(process: &ProcessId) -> bool {
    process.as_str() == "modern" || process.as_str().starts_with("own-")
}

fn session(text: &str) -> SessionId {
    SessionId::new(text).unwrap_or_else(|_| unreachable!("every part is plain and short"))
}

fn process(text: &str) -> ProcessId {
    ProcessId::new(text).unwrap_or_default()
}

/// Version 4: random but for the bits that say so.
fn random_uuid() -> String {
    let mut bytes = [0_u8; 16];
    if getrandom::fill(&mut bytes).is_err() {
        // Without the kernel's numbers, time and counting still keep names apart.
        bytes = fallback_bytes();
    }
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex = format!("{:032x}", u128::from_be_bytes(bytes));
    let parts = [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ];
    parts.join("-")
}

fn fallback_bytes() -> [u8; 16] {
    use std::sync::atomic::{AtomicU64, Ordering};
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let nanos = jiff::Timestamp::now().as_nanosecond().to_be_bytes();
    let count = COUNT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    let mut bytes = nanos;
    bytes[..8].copy_from_slice(&count);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_tests_are_new_each_time_and_shaped_like_a_uuid() {
        let one = test_session();
        assert_ne!(one, test_session());
        let uuid = one.as_str().strip_prefix("mcp-test-").expect("the prefix");
        let lengths: Vec<_> = uuid.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12]);
        assert_eq!(&uuid[14..15], "4");
    }

    #[test]
    fn no_server_has_the_box_of_somebody_else() {
        let is_reserved = |name: &str| is_reserved(&McpServerName::new(name).expect("a name"));
        let test = test_session().to_string();
        let install = install_session().to_string();
        assert!(is_temporary(&test_session()) && is_temporary(&install_session()));
        for session in [&test, &install, "mcp-shared"] {
            let name = session.strip_prefix("mcp-").expect("the prefix");
            assert!(is_reserved(name), "{name}");
        }
        for name in [
            "time",
            "test-db",
            "test-1-2-3-4-5",
            "install-me",
            "shared-docs",
        ] {
            assert!(!is_reserved(name), "{name}");
            let server = McpServerName::new(name).expect("a name");
            let session = session_of(&server);
            assert!(!is_temporary(&session), "{name}");
            assert_eq!(server_of(&session), Some(server));
        }
    }

    #[test]
    fn the_longest_name_makes_a_session() {
        let name = McpServerName::new("x".repeat(McpServerName::MAX_BYTES)).expect("a name");
        assert_eq!(session_of(&name).as_str().len(), 52);
    }

    #[test]
    fn children_are_told_from_other_processes() {
        assert!(is_child(&own_process(7)) && is_child(&modern_process()));
        assert!(!is_child(&main_process()));
    }
}
