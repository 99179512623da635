//! A command that runs, here or with a daemon, as a conversation needs it.
//!
//! Two halves, because the command may write while it does not read: [`Control`] towards it,
//! [`Events`] from it.

use boxwood_api::{ExecExit, Signal, TtySize};
use boxwood_client as client;
use bytes::Bytes;

use crate::failure::Outcome;
use crate::terminal::Size;

pub(crate) enum Control {
    There(client::LiveSender),
    #[cfg(target_os = "linux")]
    Here(boxwood_session::LiveControl),
}

pub(crate) enum Events {
    There(client::LiveReceiver),
    #[cfg(target_os = "linux")]
    Here(tokio::sync::mpsc::Receiver<boxwood_session::LiveEvent>),
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
            Self::There(sender) => Ok(sender.stdin(bytes).await?),
            #[cfg(target_os = "linux")]
            Self::Here(control) => Ok(control.write_stdin(&bytes).await?),
        }
    }

    pub(crate) async fn close_stdin(&mut self) -> Outcome<()> {
        match self {
            Self::There(sender) => sender.close_stdin().await?,
            #[cfg(target_os = "linux")]
            Self::Here(control) => control.close_stdin(),
        }
        Ok(())
    }

    pub(crate) async fn signal(&mut self, number: i32) -> Outcome<()> {
        match self {
            Self::There(sender) => {
                if let Some(signal) = Signal::from_number(number) {
                    sender.signal(signal).await?;
                }
            }
            #[cfg(target_os = "linux")]
            Self::Here(control) => control.signal(number).await?,
        }
        Ok(())
    }

    pub(crate) async fn resize(&mut self, size: Size) -> Outcome<()> {
        match self {
            Self::There(sender) => sender.resize(size.into()).await?,
            #[cfg(target_os = "linux")]
            Self::Here(control) => control.resize(size.into())?,
        }
        Ok(())
    }
}

impl Control {
    /// Ends a command that nobody will hear of again. A command of ours ends with its events.
    pub(crate) async fn stop(&mut self) {
        match self {
            Self::There(sender) => sender.stop().await,
            #[cfg(target_os = "linux")]
            Self::Here(_) => {}
        }
    }
}

impl Events {
    pub(crate) async fn next(&mut self) -> Outcome<Event> {
        match self {
            Self::There(receiver) => Ok(match receiver.next().await? {
                client::LiveEvent::Stdout(bytes) => Event::Stdout(bytes),
                client::LiveEvent::Stderr(bytes) => Event::Stderr(bytes),
                client::LiveEvent::Exit(exit) => Event::Exit(exit),
            }),
            #[cfg(target_os = "linux")]
            Self::Here(events) => here(events.recv().await),
        }
    }
}

#[cfg(target_os = "linux")]
fn here(event: Option<boxwood_session::LiveEvent>) -> Outcome<Event> {
    use boxwood_session::LiveEvent;

    match event {
        Some(LiveEvent::Stdout(bytes)) => Ok(Event::Stdout(bytes)),
        Some(LiveEvent::Stderr(bytes)) => Ok(Event::Stderr(bytes)),
        Some(LiveEvent::Exited {
            exit_code,
            status,
            reason,
            duration_ms,
            notices,
        }) => Ok(Event::Exit(ExecExit {
            exit_code,
            status,
            reason,
            duration_ms,
            notices,
        })),
        None => Err(crate::failure::Failure::new(
            boxwood_api::ErrorCode::InternalError,
            anyhow::anyhow!("the command ended without a word"),
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
