//! Connects a person to a running command until it ends.
//!
//! Comes in: both halves of a live command and how the person wants to be connected. Goes out: its
//! end, as an exit code. Input and output go side by side: a command that writes without reading, or
//! the other way round, never stalls the rest.

use std::io::IsTerminal as _;
use std::time::Duration;

use boxwood_api::{ErrorCode, ExecExit, ExecStatus, Reason};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};

use crate::failure::{EXIT_BOXWOOD, EXIT_TIMEOUT, Failure, Outcome};
use crate::interrupts::{Interrupts, SIGKILL};
use crate::keyboard::Keyboard;
use crate::live::{Control, Event, Events};
use crate::printable::printable;
use crate::reason;
use crate::terminal::{self, RawMode, Resizes};

/// For the end of a killed command to be heard of. Beyond it the person is not kept waiting.
const AFTER_KILL: Duration = Duration::from_secs(5);

/// For a daemon to hear that the person has gone.
const TO_STOP: Duration = Duration::from_secs(2);

/// HUP and TERM: the window was closed or the session ends. In raw mode Ctrl-C is only a byte.
const ENDS_A_TERMINAL: [i32; 2] = [1, 15];

/// Which of the person's streams the command gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Connect {
    /// Output only; the command's stdin is empty.
    Output,
    /// Our stdin as well, byte for byte.
    Input,
    /// The person's terminal, in raw mode.
    Terminal,
}

impl Connect {
    /// From `-i` and `-t`. A terminal without one on our side is refused: nobody could type, and
    /// scripts that meant `-i` would get output with carriage returns in it.
    pub(crate) fn from_flags(interactive: bool, tty: bool) -> Outcome<Self> {
        match (interactive, tty) {
            (_, true) if !std::io::stdin().is_terminal() => {
                Err(Failure::usage("`-t` needs a terminal, and stdin is none")
                    .hint("leave `-t` out; `-i` alone passes stdin on"))
            }
            (_, true) => Ok(Self::Terminal),
            (true, false) => Ok(Self::Input),
            (false, false) => Ok(Self::Output),
        }
    }
}

pub(crate) async fn hold(mut control: Control, events: Events, how: Connect) -> Outcome<u8> {
    let interrupts =
        Interrupts::watch().map_err(|error| Failure::local("signals cannot be watched", error))?;
    let raw = match how {
        Connect::Terminal => Some(
            RawMode::enter()
                .map_err(|error| Failure::local("the terminal cannot be used", error))?,
        ),
        Connect::Output | Connect::Input => None,
    };
    let exit = tokio::select! {
        exit = show(events) => exit,
        failure = talk(&mut control, interrupts, how) => Err(failure),
    };
    if exit.is_err() {
        // A command that can be resumed would wait for us. One that the daemon does not hear of any
        // more ends by itself after a while.
        let _ = tokio::time::timeout(TO_STOP, control.stop()).await;
    }
    // Before anything is printed: in raw mode a newline alone does not go back to the left.
    drop(raw);
    Ok(conclude(&exit?))
}

/// Output, until the end.
async fn show(mut events: Events) -> Outcome<ExecExit> {
    let mut stdout = tokio::io::stdout();
    let mut stderr = tokio::io::stderr();
    loop {
        match events.next().await? {
            Event::Stdout(bytes) => write(&mut stdout, &bytes).await?,
            Event::Stderr(bytes) => write(&mut stderr, &bytes).await?,
            Event::Exit(exit) => return Ok(exit),
        }
    }
}

async fn write(stream: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> Outcome<()> {
    stream.write_all(bytes).await?;
    Ok(stream.flush().await?)
}

/// Everything towards the command. Ends only with a failure: the command's end is told by its
/// output's side.
async fn talk(control: &mut Control, mut interrupts: Interrupts, how: Connect) -> Failure {
    let mut keyboard = (how != Connect::Output).then(Keyboard::start);
    let mut resizes = match how {
        Connect::Terminal => Resizes::watch().ok(),
        Connect::Output | Connect::Input => None,
    };
    loop {
        tokio::select! {
            number = interrupts.next() => {
                // A command that has just ended cannot be signalled, and its end is on its way.
                let _ = control.signal(number).await;
                if number == SIGKILL {
                    tokio::time::sleep(AFTER_KILL).await;
                    return Failure::new(ErrorCode::InternalError, anyhow::anyhow!("the command was killed, and its end was not heard of"));
                }
                if how == Connect::Terminal && ENDS_A_TERMINAL.contains(&number) {
                    return Failure::new(ErrorCode::InternalError, anyhow::anyhow!("the terminal was closed"));
                }
            }
            size = next_size(&mut resizes) => {
                let _ = control.resize(size).await;
            }
            chunk = next_chunk(&mut keyboard) => {
                let Some(bytes) = chunk else {
                    let _ = control.close_stdin().await;
                    continue;
                };
                // While the command does not read, the person can still interrupt it. What was typed
                // before Ctrl-C and not read is then lost, as on any terminal.
                let interrupt = tokio::select! {
                    sent = control.stdin(bytes) => {
                        if sent.is_err() {
                            // It takes no more input; that is its own affair.
                            keyboard = None;
                        }
                        None
                    }
                    number = interrupts.next() => Some(number),
                };
                if let Some(number) = interrupt {
                    let _ = control.signal(number).await;
                }
            }
        }
    }
}

async fn next_chunk(keyboard: &mut Option<Keyboard>) -> Option<bytes::Bytes> {
    let Some(open) = keyboard else {
        return std::future::pending().await;
    };
    let chunk = open.next().await;
    if chunk.is_none() {
        *keyboard = None;
    }
    chunk
}

async fn next_size(resizes: &mut Option<Resizes>) -> terminal::Size {
    match resizes {
        Some(resizes) => resizes.next().await,
        None => std::future::pending().await,
    }
}

/// Says why it ended when something other than itself ended it, and picks our exit code.
pub(crate) fn conclude(exit: &ExecExit) -> u8 {
    if let Some(reason) = exit.reason.as_ref().filter(|reason| is_news(reason)) {
        let (why, hint) = reason::explain(reason);
        eprintln!("boxwood: {}", printable(&why));
        if let Some(hint) = hint {
            eprintln!("hint: {hint}");
        }
    }
    for notice in &exit.notices {
        eprintln!("boxwood: {}", printable(notice));
    }
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

/// What the person did themselves, or a shell would not mention either, is not news.
fn is_news(reason: &Reason) -> bool {
    match reason {
        Reason::Cancelled => false,
        // INT, PIPE, TERM.
        Reason::Signal { signal } => ![2, 13, 15].contains(signal),
        Reason::Timeout
        | Reason::Oom
        | Reason::PidsLimit
        | Reason::DiskQuota
        | Reason::OutputLimit
        | Reason::Seccomp { .. }
        | Reason::NetworkDenied { .. }
        | Reason::BoxGone => true,
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
    fn the_commands_own_code_is_ours() {
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
