//! The origin of a request.

/// Where a request came from. An input to policy, never a bypass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// The operator at the local command line. May mount any directory that is not blocked, because
    /// the command runs with the operator's own rights.
    Operator,
    /// Clients of `/v1` and of the agent tools. May mount only below the allowed roots.
    Client,
    /// A platform that applies its own profile and its own list of mount roots. Only the operator's
    /// maxima, the blocked list and, if configured, the allowed roots for the platform apply.
    LangBotPlatform,
    /// The daemon, on behalf of a hosted MCP server. The definition is checked like a client's
    /// request. In addition, the box gets directories that Boxwood created for the server, and the
    /// install may take as long as the server's start timeout.
    Hosting,
}
