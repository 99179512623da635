//! Versions of the protocol, and the translation between legacy and modern messages.

pub(crate) mod translate;

/// The newest version with `initialize`.
pub(crate) const NEWEST_LEGACY: &str = "2025-11-25";
/// The first version without sessions, and the only modern one that the gateway speaks.
pub(crate) const MODERN: &str = "2026-07-28";

/// Versions are dates, so they are ordered as text.
const LEGACY: [&str; 4] = [NEWEST_LEGACY, "2025-06-18", "2025-03-26", OLDEST];
const OLDEST: &str = "2024-11-05";

/// Keys of `_meta` in the modern version.
pub(crate) const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
pub(crate) const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
pub(crate) const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
pub(crate) const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
pub(crate) const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
pub(crate) const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// Capabilities with which a client accepts requests of servers.
pub(crate) const ACCEPTS_REQUESTS: [&str; 3] = ["sampling", "elicitation", "roots"];

pub(crate) fn is_modern(version: &str) -> bool {
    version >= MODERN
}

pub(crate) fn is_known(version: &str) -> bool {
    LEGACY.contains(&version)
}

/// The version for a client of a shared process. Newer versions only add to older ones, so the client gets
/// its own version unless the server is older.
pub(crate) fn negotiated(requested: &str, server: &str) -> String {
    if is_known(requested) && requested <= server {
        requested.to_owned()
    } else if server > NEWEST_LEGACY {
        NEWEST_LEGACY.to_owned()
    } else {
        server.to_owned()
    }
}

/// Returns true if clients of this version accept an empty event at the start of a stream.
pub(crate) fn is_primed(version: &str) -> bool {
    version >= NEWEST_LEGACY
}

pub(crate) fn known() -> String {
    LEGACY.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_gets_the_requested_version_unless_the_server_is_older() {
        let cases = [
            ("2025-06-18", "2025-11-25", "2025-06-18"),
            ("2025-11-25", "2025-06-18", "2025-06-18"),
            ("2025-11-25", "2025-11-25", "2025-11-25"),
            ("1999-01-01", "2025-06-18", "2025-06-18"),
            ("2030-01-01", "2025-11-25", "2025-11-25"),
            ("2024-11-05", "2026-07-28", "2024-11-05"),
            ("2030-01-01", "2026-07-28", "2025-11-25"),
            ("2025-11-25", "2024-10-07", "2024-10-07"),
        ];
        for (requested, server, expected) in cases {
            assert_eq!(
                negotiated(requested, server),
                expected,
                "{requested} {server}"
            );
        }
    }
}
