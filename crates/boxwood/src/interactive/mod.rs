//! Connects stdin, stdout and stderr to a running command until it ends, and returns its exit code.
//!
//! Input and output run concurrently, so that a command that writes without reading does not block.

pub(crate) mod interrupts;
pub(crate) mod live;
pub(crate) mod stdin;
pub(crate) mod terminal;

use std::io::IsTerminal as _;
use std::time::Duration;

use boxwood_api::{ExecExit, ExecStatus, Reason, TtySize};
use boxwood_client::LiveEvent;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};

use crate::failure::{EXIT_BOXWOOD, EXIT_TIMEOUT, Failure, Outcome};
use crate::output::printable::printable;
use crate::output::{print_notices, reason};
use interrupts::{Interrupts, SIGKILL};
use live::{Control, Events};
use stdin::StdinReader;
use terminal::{RawMode, Resizes};

/// How long to wait for the exit status of a killed command.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// For telling the daemon to stop the command.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// HUP and TERM: the window was closed or the session ends. In raw mode Ctrl-C is only a byte.
const TERMINAL_CLOSED: [i32; 2] = [1, 15];

/// The streams that are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Connect {
    /// Output only; the command's stdin is empty.
    Output,
    /// Stdin as well, byte for byte.
    Input,
    /// The terminal, in raw mode.
    Terminal,
}

impl Connect {
    /// From `-i` and `-t`. `-t` without a terminal on stdin is refused: there would be no input, and scripts
    /// that meant `-i` would get output with carriage returns.
    pub(crate) fn from_flags(interactive: bool, tty: bool) -> Outcome<Self> {
        match (interactive, tty) {
            (_, true) if !std::io::stdin().is_terminal() => {
                Err(Failure::usage("stdin is not a terminal")
                    .hint("omit `-t`; `-i` alone passes stdin to the command"))
            }
            (_, true) => Ok(Self::Terminal),
            (true, false) => Ok(Self::Input),
            (false, false) => Ok(Self::Output),
        }
    }
}

pub(crate) async fn attach(mut control: Control, events: Events, connect: Connect) -> Outcome<u8> {
    let interrupts = Interrupts::watch()?;
    let raw = (connect == Connect::Terminal)
        .then(RawMode::enter)
        .transpose();
    let raw = raw.map_err(|error| Failure::local("cannot configure the terminal", error))?;
    let exit = tokio::select! {
        exit = forward_output(events) => exit,
        failure = forward_input(&mut control, interrupts, connect) => Err(failure),
    };
    if exit.is_err() {
        // A command that can be resumed would wait for a client. If the daemon is not reachable, the command ends after a
        // while.
        let _ = tokio::time::timeout(STOP_TIMEOUT, control.stop()).await;
    }
    // Before anything is printed: in raw mode a newline does not return to the first column.
    drop(raw);
    Ok(report_exit(&exit?))
}

async fn forward_output(mut events: Events) -> Outcome<ExecExit> {
    let mut stdout = tokio::io::stdout();
    let mut stderr = tokio::io::stderr();
    loop {
        match events.next().await? {
            LiveEvent::Stdout(bytes) => write(&mut stdout, &bytes).await?,
            LiveEvent::Stderr(bytes) => write(&mut stderr, &bytes).await?,
            LiveEvent::Exit(exit) => return Ok(exit),
        }
    }
}

async fn write(stream: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> Outcome<()> {
    stream.write_all(bytes).await?;
    Ok(stream.flush().await?)
}

/// Forwards input, signals and resizes. Returns only on failure: the exit status arrives with the output.
async fn forward_input(
    control: &mut Control,
    mut interrupts: Interrupts,
    connect: Connect,
) -> Failure {
    let mut stdin = (connect != Connect::Output).then(StdinReader::start);
    let mut resizes = (connect == Connect::Terminal)
        .then(|| Resizes::watch().ok())
        .flatten();
    loop {
        let interrupt = tokio::select! {
            number = interrupts.next() => Some(number),
            size = next_size(&mut resizes) => {
                let _ = control.resize(size).await;
                None
            }
            chunk = next_chunk(&mut stdin) => {
                let Some(bytes) = chunk else {
                    let _ = control.close_stdin().await;
                    continue;
                };
                // While the command does not read, it can still be interrupted. Unread input before
                // Ctrl-C is then lost, as on any terminal.
                tokio::select! {
                    sent = control.stdin(bytes) => {
                        if sent.is_err() {
                            // The command has closed its stdin.
                            stdin = None;
                        }
                        None
                    }
                    number = interrupts.next() => Some(number),
                }
            }
        };
        let Some(number) = interrupt else {
            continue;
        };
        // Fails if the command has just ended; its exit status follows.
        let _ = control.signal(number).await;
        if number == SIGKILL {
            tokio::time::sleep(KILL_TIMEOUT).await;
            return Failure::internal("the command was killed, but no exit status was received");
        }
        if connect == Connect::Terminal && TERMINAL_CLOSED.contains(&number) {
            return Failure::internal("the terminal was closed");
        }
    }
}

async fn next_chunk(stdin: &mut Option<StdinReader>) -> Option<bytes::Bytes> {
    let Some(open) = stdin else {
        return std::future::pending().await;
    };
    let chunk = open.next().await;
    if chunk.is_none() {
        *stdin = None;
    }
    chunk
}

async fn next_size(resizes: &mut Option<Resizes>) -> TtySize {
    match resizes {
        Some(resizes) => resizes.next().await,
        None => std::future::pending().await,
    }
}

/// Reports why the command was ended from outside, and returns the exit code.
pub(crate) fn report_exit(exit: &ExecExit) -> u8 {
    if let Some(reason) = exit.reason.as_ref().filter(|reason| is_reported(reason)) {
        let (why, hint) = reason::explain(reason);
        eprintln!("boxwood: {}", printable(&why));
        if let Some(hint) = hint {
            eprintln!("hint: {hint}");
        }
    }
    print_notices(&exit.notices);
    exit_code(exit.status, exit.exit_code)
}

pub(crate) fn exit_code(status: ExecStatus, code: Option<i32>) -> u8 {
    match (status, code) {
        (ExecStatus::TimedOut, _) => EXIT_TIMEOUT,
        // The low byte is what a parent sees of any exit code.
        (ExecStatus::Completed, Some(code)) => code.to_le_bytes()[0],
        (ExecStatus::Completed, None) => EXIT_BOXWOOD,
    }
}

/// Signals that the user sent, or that a shell does not report either, are not reported.
fn is_reported(reason: &Reason) -> bool {
    match reason {
        Reason::Cancelled => false,
        // INT, PIPE, TERM.
        Reason::Signal { signal } => ![2, 13, 15].contains(signal),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(status: ExecStatus, code: Option<i32>, expected: u8) {
        assert_eq!(exit_code(status, code), expected);
    }

    #[test]
    fn the_exit_code_of_the_command_is_returned() {
        check(ExecStatus::Completed, Some(0), 0);
        check(ExecStatus::Completed, Some(3), 3);
        check(ExecStatus::Completed, Some(128 + 9), 137);
    }

    #[test]
    fn a_timeout_and_a_lost_box_have_codes_of_their_own() {
        check(ExecStatus::TimedOut, None, 124);
        check(ExecStatus::TimedOut, Some(137), 124);
        check(ExecStatus::Completed, None, 125);
    }
}
