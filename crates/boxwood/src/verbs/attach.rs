//! `boxwood attach`: speak to a managed process, line by line.

use std::io::Write as _;

use boxwood_api::{ProcessId, SessionId};
use boxwood_client::Client;

use super::{process_id, session_id};
use crate::failure::{Failure, Outcome};
use crate::interrupts::Interrupts;
use crate::keyboard::Keyboard;

const EXAMPLES: &str = "\
Examples:
  boxwood attach tools fs
  echo '{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}' | boxwood attach tools fs
  boxwood attach --no-stdin tools fs        Watch only

Ctrl-C lets go; the process lives on. The end of your input does not let go: output goes on. One
process has one attachment at a time: a second one waits until the first ends.";

/// Connect to the stdin and stdout of a managed process
///
/// Lines you type go to the process; lines it writes come back, beginning with those nobody has read
/// yet. Its stderr is in `boxwood logs`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Name of the session
    #[arg(value_parser = session_id)]
    session: SessionId,

    /// Name of the process
    #[arg(default_value = "default", value_parser = process_id)]
    process: ProcessId,

    /// Do not read our stdin
    #[arg(long)]
    no_stdin: bool,
}

pub(crate) async fn main(args: &Args, client: &Client) -> Outcome<()> {
    let mut relay = client.attach(&args.session, &args.process).await?;
    let mut interrupts =
        Interrupts::watch().map_err(|error| Failure::local("signals cannot be watched", error))?;
    let mut keyboard = (!args.no_stdin).then(Keyboard::start);
    let mut pending = Vec::new();
    loop {
        tokio::select! {
            line = relay.next_line() => match line? {
                Some(line) => {
                    let mut stdout = std::io::stdout().lock();
                    writeln!(stdout, "{line}")?;
                    stdout.flush()?;
                }
                None => return Ok(()),
            },
            chunk = next_chunk(&mut keyboard) => {
                match chunk {
                    Some(bytes) => pending.extend_from_slice(&bytes),
                    // A last line without its end counts too.
                    None if !pending.is_empty() => pending.push(b'\n'),
                    None => {}
                }
                for line in take_lines(&mut pending) {
                    relay.send_line(&line).await?;
                }
            }
            _ = interrupts.next() => {
                relay.detach().await?;
                return Ok(());
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

/// Takes the whole lines out, without their ends. The relay's frames are text, so bytes that are not
/// UTF-8 are replaced.
fn take_lines(pending: &mut Vec<u8>) -> Vec<String> {
    let Some(last) = pending.iter().rposition(|byte| *byte == b'\n') else {
        return Vec::new();
    };
    let whole: Vec<u8> = pending.drain(..=last).collect();
    whole[..last]
        .split(|byte| *byte == b'\n')
        .map(|line| String::from_utf8_lossy(line).into_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, lines: &[&str], rest: &str) {
        let mut pending = text.as_bytes().to_vec();
        assert_eq!(take_lines(&mut pending), lines);
        assert_eq!(pending, rest.as_bytes());
    }

    #[test]
    fn only_whole_lines_are_sent() {
        check("a", &[], "a");
        check("a\n", &["a"], "");
        check("a\n\nb\nc", &["a", "", "b"], "c");
        check("\n", &[""], "");
    }
}
