//! A running command, in a daemon or in this process.
//!
//! Input and output are separate halves, because a command may write while it does not read.

use boxwood_api::{ExecExit, Signal, TtySize};
use boxwood_client as client;
use bytes::Bytes;

use crate::failure::Outcome;
use crate::terminal::Size;

pub(crate) enum Control {
    Remote(client::LiveSender),
    #[cfg(target_os = "linux")]
    Local(std::sync::Arc<boxwood_session::StreamedExec>),
}

pub(crate) enum Events {
    Remote(client::LiveReceiver),
    #[cfg(target_os = "linux")]
    Local(std::sync::Arc<boxwood_session::StreamedExec>),
}

pub(crate) enum Event {
    Stdout(Bytes),
    Stderr(Bytes),
    /// The last one.
    Exit(ExecExit),
}

impl Control {
    pub(crate) async fn stdin(&mut self, bytes: Bytes) -> Outcome<()> {
        match self {
            Self::Remote(sender) => Ok(sender.stdin(bytes).await?),
            #[cfg(target_os = "linux")]
            Self::Local(control) => Ok(control.write_stdin(&bytes).await?),
        }
    }

    pub(crate) async fn close_stdin(&mut self) -> Outcome<()> {
        match self {
            Self::Remote(sender) => sender.close_stdin().await?,
            #[cfg(target_os = "linux")]
            Self::Local(control) => control.close_stdin(),
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
            #[cfg(target_os = "linux")]
            Self::Local(control) => control.signal(number).await?,
        }
        Ok(())
    }

    pub(crate) async fn resize(&mut self, size: Size) -> Outcome<()> {
        match self {
            Self::Remote(sender) => sender.resize(size.into()).await?,
            #[cfg(target_os = "linux")]
            Self::Local(control) => control.resize(size.into())?,
        }
        Ok(())
    }
}

impl Control {
    /// Kills a command whose output is not read any more. A local command ends when its events are dropped.
    pub(crate) async fn stop(&mut self) {
        match self {
            Self::Remote(sender) => sender.stop().await,
            #[cfg(target_os = "linux")]
            Self::Local(_) => {}
        }
    }
}

impl Events {
    pub(crate) async fn next(&mut self) -> Outcome<Event> {
        match self {
            Self::Remote(receiver) => Ok(match receiver.next().await? {
                client::LiveEvent::Stdout(bytes) => Event::Stdout(bytes),
                client::LiveEvent::Stderr(bytes) => Event::Stderr(bytes),
                client::LiveEvent::Exit(exit) => Event::Exit(exit),
            }),
            #[cfg(target_os = "linux")]
            Self::Local(events) => local_event(events.next().await),
        }
    }
}

#[cfg(target_os = "linux")]
fn local_event(event: Option<boxwood_session::ExecEvent>) -> Outcome<Event> {
    use boxwood_session::ExecEvent;

    match event {
        Some(ExecEvent::Stdout(bytes)) => Ok(Event::Stdout(bytes)),
        Some(ExecEvent::Stderr(bytes)) => Ok(Event::Stderr(bytes)),
        Some(ExecEvent::Exited(exit)) => Ok(Event::Exit(exit)),
        None => Err(crate::failure::Failure::new(
            boxwood_api::ErrorCode::InternalError,
            anyhow::anyhow!("the command ended without an exit status"),
        )),
    }
}

impl From<Size> for TtySize {
    fn from(size: Size) -> Self {
        Self {
            rows: size.rows,
            cols: size.cols,
        }
    }
}

#[cfg(target_os = "linux")]
impl From<Size> for boxwood_session::TerminalSize {
    fn from(size: Size) -> Self {
        Self {
            rows: size.rows,
            cols: size.cols,
        }
    }
}
