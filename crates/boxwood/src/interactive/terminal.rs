//! The terminal of the user: its size, its resizes, and a guard for raw mode that restores the settings when dropped.

use std::io;

use boxwood_api::TtySize;
use rustix::stdio::{stdin, stdout};
use rustix::termios::{self, OptionalActions, Termios};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// The size of the terminal on stdout or stdin, or a usual one.
pub(crate) fn size() -> TtySize {
    [stdout(), stdin()]
        .into_iter()
        .find_map(|fd| termios::tcgetwinsize(fd).ok())
        .filter(|size| size.ws_row > 0 && size.ws_col > 0)
        .map_or(TtySize { rows: 24, cols: 80 }, |size| TtySize {
            rows: size.ws_row,
            cols: size.ws_col,
        })
}

/// All keys are passed to the box; none is interpreted here.
pub(crate) struct RawMode {
    before: Termios,
}

impl RawMode {
    pub(crate) fn enter() -> io::Result<Self> {
        let before = termios::tcgetattr(stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        termios::tcsetattr(stdin(), OptionalActions::Drain, &raw)?;
        Ok(Self { before })
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // `Flush` discards unread input for the box, which must not reach the user's own shell. Fails if the terminal
        // is gone.
        let _ = termios::tcsetattr(stdin(), OptionalActions::Flush, &self.before);
    }
}

pub(crate) struct Resizes(Signal);

impl Resizes {
    pub(crate) fn watch() -> io::Result<Self> {
        Ok(Self(signal(SignalKind::window_change())?))
    }

    /// The size after the next resize.
    pub(crate) async fn next(&mut self) -> TtySize {
        self.0.recv().await;
        size()
    }
}
