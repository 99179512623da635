//! Legacy protocol versions and the translation between legacy and modern messages.

pub(crate) mod input_bridge;
pub(crate) mod translate;

pub(crate) const NEWEST: &str = "2025-11-25";

/// Oldest first. Versions are dates, so they are ordered as text.
const KNOWN: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", NEWEST];
const LAST_WITH_BATCHES: &str = "2025-03-26";
const FIRST_PRIMED: &str = "2025-11-25";

pub(crate) fn is_known(version: &str) -> bool {
    KNOWN.contains(&version)
}

/// The version for a client of a shared process. Newer versions only add to older ones, so the client gets
/// its own version unless the server is older.
pub(crate) fn negotiated(requested: &str, server: &str) -> String {
    if is_known(requested) && requested <= server {
        requested.to_owned()
    } else if server > NEWEST {
        NEWEST.to_owned()
    } else {
        server.to_owned()
    }
}

/// JSON-RPC batches.
pub(crate) fn has_batches(version: &str) -> bool {
    version <= LAST_WITH_BATCHES
}

/// Clients of this version accept an empty event at the start of a stream.
pub(crate) fn is_primed(version: &str) -> bool {
    version >= FIRST_PRIMED
}

pub(crate) fn known() -> String {
    KNOWN.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_gets_what_it_asked_for_unless_the_server_is_older() {
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
