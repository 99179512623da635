//! Session ids and process ids that hosting uses.

use boxwood_api::{McpServerName, ProcessId, SessionId};

pub(crate) fn session_of(name: &McpServerName) -> SessionId {
    session(&format!("mcp-{name}"))
}

pub(crate) fn server_of(session: &SessionId) -> Option<McpServerName> {
    McpServerName::new(session.as_str().strip_prefix("mcp-")?).ok()
}

/// Returns true for the box of a test or an install.
pub(crate) fn is_temporary(session: &SessionId) -> bool {
    let name = session.as_str().strip_prefix("mcp-");
    name.is_some_and(is_of_no_server)
}

/// Returns true if the server's session id would clash with LangBot's shared box or with a test or an install.
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

pub(crate) fn modern_process(number: u64) -> ProcessId {
    process(&format!("modern-{number}"))
}

pub(crate) fn own_process(number: u64) -> ProcessId {
    process(&format!("own-{number}"))
}

/// Returns true for processes that hosting starts besides the main one.
pub(crate) fn is_child(process: &ProcessId) -> bool {
    process.as_str().starts_with("modern") || is_own(process)
}

/// Returns true for processes of single clients.
pub(crate) fn is_own(process: &ProcessId) -> bool {
    process.as_str().starts_with("own-")
}

fn session(text: &str) -> SessionId {
    SessionId::new(text).unwrap_or_else(|_| unreachable!("all parts are valid and short"))
}

fn process(text: &str) -> ProcessId {
    ProcessId::new(text).unwrap_or_default()
}

/// UUID version 4.
fn random_uuid() -> String {
    let mut bytes = [0_u8; 16];
    if getrandom::fill(&mut bytes).is_err() {
        // Time and a counter keep the names unique if the kernel has no random numbers.
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
    fn test_sessions_have_unique_uuids() {
        let one = test_session();
        assert_ne!(one, test_session());
        let uuid = one.as_str().strip_prefix("mcp-test-").expect("the prefix");
        let lengths: Vec<_> = uuid.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12]);
        assert_eq!(&uuid[14..15], "4");
    }

    #[test]
    fn reserved_names_are_recognized() {
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
    fn the_longest_server_name_is_a_valid_session() {
        let name = McpServerName::new("x".repeat(McpServerName::MAX_BYTES)).expect("a name");
        assert_eq!(session_of(&name).as_str().len(), 52);
    }

    #[test]
    fn child_processes_are_recognized() {
        assert!(is_child(&own_process(7)) && is_child(&modern_process(8)));
        assert!(!is_child(&main_process()));
    }
}
