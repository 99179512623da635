//! Progress of a running call.

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stream {
    Stdout,
    Stderr,
}

/// Receives events of a running call. Both methods must return at once: the command waits for them.
pub trait Progress: Send + Sync {
    /// New output of the command; bytes that are not UTF-8 are replaced.
    fn output(&self, _stream: Stream, _text: &str) {}

    /// A short description of the current step.
    fn step(&self, _text: &str) {}
}

/// Ignores all events.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProgress;

impl Progress for NoProgress {}
