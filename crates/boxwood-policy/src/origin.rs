//! Who is asking.

/// Where a request came from. Trust is an input to judgement, never a way around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// The person who runs this machine, at its own command line. May mount any directory that is
    /// not blocked: the rights of the command line are the operator's own.
    Operator,
    /// Anybody who speaks `/v1` or the agent's tools. Mounts only below the allowed roots.
    Client,
    /// A platform that has applied its own profile and keeps its own list of mount roots. Only
    /// the operator's hard maxima, the blocked list and, where configured, the platform's own cap
    /// on roots apply.
    LangBotPlatform,
    /// The daemon, for an MCP server that somebody described over `/v1`. What they wrote is judged as
    /// a client's; beside it the box sees directories that Boxwood made for the server, and its install
    /// has the time that the server has to start.
    Hosting,
}
