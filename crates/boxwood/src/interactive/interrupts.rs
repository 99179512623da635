//! Signals to forward to the command. The third one is always sent as KILL, because the command has ignored the others.

use std::io;
use std::task::Poll;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::{Failure, Outcome};

pub(crate) const SIGKILL: i32 = 9;

/// This many signals are forwarded unchanged.
const UNCHANGED: u32 = 2;

pub(crate) struct Interrupts {
    signals: [(i32, Signal); 4],
    count: u32,
}

impl Interrupts {
    pub(crate) fn watch() -> Outcome<Self> {
        let watch = |kind: SignalKind| io::Result::Ok((kind.as_raw_value(), signal(kind)?));
        let signals = || {
            io::Result::Ok([
                watch(SignalKind::interrupt())?,
                watch(SignalKind::terminate())?,
                watch(SignalKind::hangup())?,
                watch(SignalKind::quit())?,
            ])
        };
        let signals = signals().map_err(|error| Failure::local("cannot receive signals", error))?;
        Ok(Self { signals, count: 0 })
    }

    pub(crate) async fn next(&mut self) -> i32 {
        let signal = std::future::poll_fn(|cx| {
            let mut signals = self.signals.iter_mut();
            signals
                .find_map(|(number, signal)| signal.poll_recv(cx).is_ready().then_some(*number))
                .map_or(Poll::Pending, Poll::Ready)
        })
        .await;
        self.count += 1;
        if self.count > UNCHANGED {
            SIGKILL
        } else {
            signal
        }
    }
}
