//! Signals to forward to the command. The third one is always sent as KILL, because the command has ignored the others.

use std::io;

pub(crate) const SIGKILL: i32 = 9;
#[cfg(not(unix))]
const SIGINT: i32 = 2;

/// How many are forwarded as they are.
const PATIENCE: u32 = 2;

pub(crate) struct Interrupts {
    source: Source,
    seen: u32,
}

impl Interrupts {
    pub(crate) fn watch() -> io::Result<Self> {
        Ok(Self {
            source: Source::watch()?,
            seen: 0,
        })
    }

    pub(crate) async fn next(&mut self) -> i32 {
        let signal = self.source.next().await;
        self.seen += 1;
        if self.seen > PATIENCE {
            SIGKILL
        } else {
            signal
        }
    }
}

#[cfg(unix)]
struct Source([(i32, tokio::signal::unix::Signal); 4]);

#[cfg(unix)]
impl Source {
    fn watch() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let watch = |kind: SignalKind| io::Result::Ok((kind.as_raw_value(), signal(kind)?));
        Ok(Self([
            watch(SignalKind::interrupt())?,
            watch(SignalKind::terminate())?,
            watch(SignalKind::hangup())?,
            watch(SignalKind::quit())?,
        ]))
    }

    async fn next(&mut self) -> i32 {
        std::future::poll_fn(|cx| {
            for (number, signal) in &mut self.0 {
                if signal.poll_recv(cx).is_ready() {
                    return std::task::Poll::Ready(*number);
                }
            }
            std::task::Poll::Pending
        })
        .await
    }
}

#[cfg(not(unix))]
struct Source;

#[cfg(not(unix))]
impl Source {
    fn watch() -> io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) -> i32 {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
        SIGINT
    }
}
