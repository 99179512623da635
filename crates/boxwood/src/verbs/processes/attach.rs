//! `boxwood attach`: stdin and stdout of a managed process.

use boxwood_api::{ProcessId, SessionId};
use boxwood_client::{AttachedEvent, AttachedReceiver, AttachedSender, Client, Since};
use bytes::Bytes;

use crate::failure::{Failure, Outcome};
use crate::interactive::interrupts::Interrupts;
use crate::interactive::stdin::StdinReader;
use crate::output::Output;

const EXAMPLES: &str = "\
Examples:
  boxwood attach tools fs
  echo '{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}' | boxwood attach tools fs
  boxwood attach --no-stdin tools fs        Show output only
  boxwood attach --since 0 tools fs         Show all output that is still available

Ctrl-C detaches; the process continues. The end of stdin does not detach. A process has one
attachment at a time: a second one waits until the first ends. The attachment is resumed when the
daemon is restarted; no output is lost or repeated.";

/// Connect to stdin and stdout of a managed process
///
/// Starts with the output that has not been read yet. Its stderr is shown by `boxwood logs`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Name of the session
    session: SessionId,

    /// Name of the process
    #[arg(default_value = "default")]
    process: ProcessId,

    /// Do not pass stdin to the process
    #[arg(long)]
    no_stdin: bool,

    /// Position in the output to start at, in bytes, or `now` for unread output
    #[arg(long, value_name = "OFFSET", default_value = "now", value_parser = since)]
    since: Since,
}

fn since(text: &str) -> Result<Since, String> {
    match text {
        "now" => Ok(Since::Now),
        _ => text
            .parse()
            .map(Since::Offset)
            .map_err(|_| "write `now` or an offset in bytes".to_owned()),
    }
}

pub(crate) async fn main(args: &Args, client: &Client) -> Outcome<()> {
    let mut attached = client
        .attach_from(&args.session, &args.process, args.since)
        .await?;
    let interrupts = Interrupts::watch()?;
    let outcome = tokio::select! {
        outcome = print_output(&mut attached.receiver) => return outcome,
        outcome = forward_input(&mut attached.sender, interrupts, !args.no_stdin) => outcome,
    };
    attached.sender.detach().await;
    outcome
}

/// Prints output until the process ends.
async fn print_output(receiver: &mut AttachedReceiver) -> Outcome<()> {
    while let AttachedEvent::Stdout(bytes) = receiver.next().await? {
        Output::bytes(&bytes)?;
    }
    Ok(())
}

/// Forwards input until a signal arrives.
async fn forward_input(
    sender: &mut AttachedSender,
    mut interrupts: Interrupts,
    stdin: bool,
) -> Outcome<()> {
    let typing = async {
        if !stdin {
            return Ok(());
        }
        let mut keyboard = StdinReader::start();
        let mut ended = true;
        while let Some(bytes) = keyboard.next().await {
            ended = bytes.ends_with(b"\n");
            sender.stdin(bytes).await?;
        }
        // Completes the last line.
        if !ended {
            sender.stdin(Bytes::from_static(b"\n")).await?;
        }
        Ok::<_, Failure>(())
    };
    let listening = async {
        typing.await?;
        std::future::pending().await
    };
    tokio::select! {
        outcome = listening => outcome,
        _ = interrupts.next() => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_is_an_offset_or_now() {
        assert_eq!(since("now"), Ok(Since::Now));
        assert_eq!(since("0"), Ok(Since::Offset(0)));
        assert_eq!(since("18446744073709551615"), Ok(Since::Offset(u64::MAX)));
        for wrong in ["", "-1", "later", "1.5", "18446744073709551616"] {
            assert!(since(wrong).is_err(), "{wrong}");
        }
    }
}
