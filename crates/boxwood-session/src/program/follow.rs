//! Follows a program until it has exited and its output has been read, or kills it at its timeout.

use boxwood_backend::{Exit, ProcessControl};
use futures_util::FutureExt as _;

use super::input::Feeder;
use super::kill::{Killed, kill_tree};
use super::pipes::{Pipes, Stream};

/// Why a program is killed by its follower.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    Timeout,
    /// The client has disconnected, and did not return in time if it was allowed to return.
    ClientGone,
}

pub(crate) enum Ended {
    Exited(Exit),
    Stopped(Stop, Killed),
}

impl Ended {
    /// Returns true if the program could not be killed, so that its box has to be removed.
    pub(crate) fn is_unkillable(&self) -> bool {
        matches!(self, Self::Stopped(_, Killed::Alive))
    }
}

/// Feeds the program and moves its output into its journals until it ends or `stop` resolves. Calls
/// `on_output` after each move. Runs in the caller's future: a captured exec costs no task.
pub(crate) async fn follow(
    control: &dyn ProcessControl,
    pipes: &mut Pipes,
    feeder: Option<Feeder>,
    stop: impl Future<Output = Stop>,
    mut on_output: impl FnMut(Stream, usize),
) -> Ended {
    let ended = match exit_or_stop(control, pipes, feeder, stop, &mut on_output).await {
        Ok(exit) => Ended::Exited(exit),
        Err(stop) => Ended::Stopped(stop, kill_tree(control).await),
    };
    pipes.drain(on_output).await;
    ended
}

/// Drops the feeder at the end, which closes the input.
async fn exit_or_stop(
    control: &dyn ProcessControl,
    pipes: &mut Pipes,
    feeder: Option<Feeder>,
    stop: impl Future<Output = Stop>,
    on_output: &mut impl FnMut(Stream, usize),
) -> Result<Exit, Stop> {
    let mut fed = feeder.is_none();
    let mut feeding = std::pin::pin!(async {
        if let Some(feeder) = feeder {
            feeder.run().await;
        }
    });
    let mut stop = std::pin::pin!(stop);
    let mut wait = control.wait();
    loop {
        tokio::select! {
            exit = &mut wait => return Ok(exit),
            (stream, count) = pipes.fill(), if pipes.is_open() => on_output(stream, count),
            () = &mut feeding, if !fed => fed = true,
            // A program that has exited at the same moment was not stopped.
            stop = &mut stop => return (&mut wait).now_or_never().ok_or(stop),
        }
    }
}
