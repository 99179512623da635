//! A running command, in a daemon or in this process.
//!
//! Input and output are separate halves, because a command may write while it does not read.

use std::sync::Arc;

use boxwood_api::{Signal, TtySize};
use boxwood_client::{LiveEvent, LiveReceiver, LiveSender};
use boxwood_session::{ExecEvent, StreamedExec, TerminalSize};
use bytes::Bytes;

use crate::failure::{Failure, Outcome};

pub(crate) enum Control {
    Remote(LiveSender),
    Local(Arc<StreamedExec>),
}

pub(crate) enum Events {
    Remote(LiveReceiver),
    Local(Arc<StreamedExec>),
}

impl Control {
    pub(crate) async fn stdin(&mut self, bytes: Bytes) -> Outcome<()> {
        match self {
            Self::Remote(sender) => Ok(sender.stdin(bytes).await?),
            Self::Local(exec) => Ok(exec.write_stdin(&bytes).await?),
        }
    }

    pub(crate) async fn close_stdin(&mut self) -> Outcome<()> {
        match self {
            Self::Remote(sender) => sender.close_stdin().await?,
            Self::Local(exec) => exec.close_stdin(),
        }
        Ok(())
    }

    pub(crate) async fn signal(&mut self, number: i32) -> Outcome<()> {
        match self {
            Self::Remote(sender) => {
                if let Some(signal) = Signal::from_number(number) {
                    sender.signal(signal).await?;
                }
            }
            Self::Local(exec) => exec.signal(number).await?,
        }
        Ok(())
    }

    pub(crate) async fn resize(&mut self, size: TtySize) -> Outcome<()> {
        match self {
            Self::Remote(sender) => sender.resize(size).await?,
            Self::Local(exec) => exec.resize(local_size(size))?,
        }
        Ok(())
    }

    /// Kills a command whose output is not read any more. A local command ends when its events are dropped.
    pub(crate) async fn stop(&mut self) {
        match self {
            Self::Remote(sender) => sender.stop().await,
            Self::Local(_) => {}
        }
    }
}

impl Events {
    pub(crate) async fn next(&mut self) -> Outcome<LiveEvent> {
        match self {
            Self::Remote(receiver) => Ok(receiver.next().await?),
            Self::Local(exec) => match exec.next().await {
                Some(ExecEvent::Stdout(bytes)) => Ok(LiveEvent::Stdout(bytes)),
                Some(ExecEvent::Stderr(bytes)) => Ok(LiveEvent::Stderr(bytes)),
                Some(ExecEvent::Exited(exit)) => Ok(LiveEvent::Exit(exit)),
                None => Err(Failure::internal(
                    "the command ended without an exit status",
                )),
            },
        }
    }
}

pub(crate) fn local_size(TtySize { rows, cols }: TtySize) -> TerminalSize {
    TerminalSize { rows, cols }
}
