//! Session ids and process ids that hosting uses.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};

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
    name.is_some_and(is_temporary_name)
}

/// Returns true if the server's session id would clash with LangBot's shared box or with a test or an install.
pub(crate) fn is_reserved(name: &McpServerName) -> bool {
    name.as_str() == "shared" || is_temporary_name(name.as_str())
}

fn is_temporary_name(name: &str) -> bool {
    let prefixes = ["test-", "install-"];
    let suffix = prefixes.iter().find_map(|prefix| name.strip_prefix(prefix));
    suffix.is_some_and(|suffix| {
        suffix.len() == 32 && suffix.bytes().all(|byte| byte.is_ascii_hexdigit())
    })
}

pub(crate) fn test_session() -> SessionId {
    session(&format!("mcp-test-{}", random()))
}

pub(crate) fn install_session() -> SessionId {
    session(&format!("mcp-install-{}", random()))
}

pub(crate) fn main_process() -> ProcessId {
    process("main")
}

pub(crate) fn modern_process(number: u64) -> ProcessId {
    process(&format!("modern-{number}"))
}

pub(crate) fn client_process(number: u64) -> ProcessId {
    process(&format!("own-{number}"))
}

/// Returns true for processes that hosting starts besides the main one.
pub(crate) fn is_child(process: &ProcessId) -> bool {
    process.as_str().starts_with("modern") || is_of_client(process)
}

/// Returns true for processes of single clients.
pub(crate) fn is_of_client(process: &ProcessId) -> bool {
    process.as_str().starts_with("own-")
}

fn session(text: &str) -> SessionId {
    SessionId::new(text).unwrap_or_else(|_| unreachable!("all parts are valid and short"))
}

fn process(text: &str) -> ProcessId {
    ProcessId::new(text).unwrap_or_default()
}

/// 128 random bits.
fn random() -> String {
    let half = || RandomState::new().build_hasher().finish();
    format!("{:016x}{:016x}", half(), half())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_sessions_have_unique_names() {
        let one = test_session();
        assert_ne!(one, test_session());
        let random = one.as_str().strip_prefix("mcp-test-").expect("the prefix");
        assert_eq!(random.len(), 32);
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
        assert!(is_child(&client_process(7)) && is_child(&modern_process(8)));
        assert!(!is_child(&main_process()));
    }
}
