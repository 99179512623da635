//! What is seen of a long call while it goes on.

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stream {
    Stdout,
    Stderr,
}

/// Told while a call goes on. Both must return at once: the command waits for them.
pub trait Progress: Send + Sync {
    /// What the command has just written; bytes that are not UTF-8 are replaced.
    fn output(&self, _stream: Stream, _text: &str) {}

    /// What is being done, in a few words.
    fn step(&self, _text: &str) {}
}

/// For those who only want the result.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoProgress;

impl Progress for NoProgress {}
