//! Which generation of LangBot is speaking.

/// Told apart once per connection: today's clients name their instance in a header (or, over stdio,
/// in the environment), June's have nothing of the kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Era {
    /// `langbot-plugin` 0.4.
    June,
    /// `langbot-plugin` 0.7, with workspaces and placements.
    Today,
}
