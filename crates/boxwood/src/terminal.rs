//! The terminal of the user: its size, its resizes, and a guard for raw mode that restores the settings when dropped.

#[cfg(unix)]
pub(crate) use unix::{RawMode, Resizes, size};

#[cfg(not(unix))]
pub(crate) use elsewhere::{RawMode, Resizes, size};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size {
    pub(crate) rows: u16,
    pub(crate) cols: u16,
}

impl Default for Size {
    fn default() -> Self {
        Self { rows: 24, cols: 80 }
    }
}

#[cfg(unix)]
mod unix {
    use std::io;

    use rustix::termios::{self, OptionalActions, Termios};
    use tokio::signal::unix::{Signal, SignalKind, signal};

    use super::Size;

    /// The size of the terminal on stdout or stdin; a usual one when there is none.
    pub(crate) fn size() -> Size {
        [rustix::stdio::stdout(), rustix::stdio::stdin()]
            .into_iter()
            .find_map(|fd| termios::tcgetwinsize(fd).ok())
            .filter(|size| size.ws_row > 0 && size.ws_col > 0)
            .map_or_else(Size::default, |size| Size {
                rows: size.ws_row,
                cols: size.ws_col,
            })
    }

    /// Every key goes to the box, none is interpreted here.
    pub(crate) struct RawMode {
        before: Termios,
    }

    impl RawMode {
        pub(crate) fn enter() -> io::Result<Self> {
            let stdin = rustix::stdio::stdin();
            let before = termios::tcgetattr(stdin)?;
            let mut raw = before.clone();
            raw.make_raw();
            termios::tcsetattr(stdin, OptionalActions::Drain, &raw)?;
            Ok(Self { before })
        }
    }

    impl Drop for RawMode {
        fn drop(&mut self) {
            // Nothing can be done about a terminal that has gone; and `Flush` throws away what was
            // typed for the box and not read, which must not reach the person's own shell.
            let _ =
                termios::tcsetattr(rustix::stdio::stdin(), OptionalActions::Flush, &self.before);
        }
    }

    /// Tells when the window has changed.
    pub(crate) struct Resizes(Signal);

    impl Resizes {
        pub(crate) fn watch() -> io::Result<Self> {
            Ok(Self(signal(SignalKind::window_change())?))
        }

        pub(crate) async fn next(&mut self) -> Size {
            self.0.recv().await;
            size()
        }
    }
}

#[cfg(not(unix))]
mod elsewhere {
    use std::io;

    use super::Size;

    pub(crate) fn size() -> Size {
        Size::default()
    }

    pub(crate) struct RawMode;

    impl RawMode {
        pub(crate) fn enter() -> io::Result<Self> {
            Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "terminals are supported on Unix only",
            ))
        }
    }

    pub(crate) struct Resizes;

    impl Resizes {
        pub(crate) fn watch() -> io::Result<Self> {
            Ok(Self)
        }

        pub(crate) async fn next(&mut self) -> Size {
            std::future::pending().await
        }
    }
}
