//! `boxwood attach`: speak to a managed process.

use std::io::Write as _;

use boxwood_api::{ProcessId, SessionId};
use boxwood_client::{AttachedEvent, AttachedReceiver, AttachedSender, Client, Since};
use bytes::Bytes;

use super::{process_id, session_id};
use crate::failure::{Failure, Outcome};
use crate::interrupts::Interrupts;
use crate::stdin::StdinReader;

const EXAMPLES: &str = "\
Examples:
  boxwood attach tools fs
  echo '{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}' | boxwood attach tools fs
  boxwood attach --no-stdin tools fs        Watch only
  boxwood attach --since 0 tools fs         From its first byte, if that is still kept

Ctrl-C lets go; the process lives on. The end of your input does not let go: output goes on. One
process has one attachment at a time: a second one waits until the first ends. When the daemon is
restarted the attachment goes on by itself; nothing is lost or comes twice.";

/// Connect to the stdin and stdout of a managed process
///
/// Your input goes to the process, and its output to you, starting with the output that is still unread.
/// Its stderr is in `boxwood logs`.
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

    /// Start after this many bytes of its output, or with the unread output
    #[arg(long, value_name = "OFFSET", default_value = "now", value_parser = since)]
    since: Since,
}

fn since(text: &str) -> Result<Since, String> {
    match text {
        "now" => Ok(Since::Now),
        _ => text
            .parse()
            .map(Since::Offset)
            .map_err(|_| "not `now` and not a number of bytes".to_owned()),
    }
}

pub(crate) async fn main(args: &Args, client: &Client) -> Outcome<()> {
    let mut attached = client
        .attach_from(&args.session, &args.process, args.since)
        .await?;
    let interrupts =
        Interrupts::watch().map_err(|error| Failure::local("signals cannot be watched", error))?;
    let outcome = tokio::select! {
        outcome = show(&mut attached.receiver) => return outcome,
        outcome = pass_on(&mut attached.sender, interrupts, !args.no_stdin) => outcome,
    };
    attached.sender.detach().await;
    outcome
}

/// Output, until the process ends.
async fn show(receiver: &mut AttachedReceiver) -> Outcome<()> {
    while let AttachedEvent::Stdout(bytes) = receiver.next().await? {
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(&bytes)?;
        stdout.flush()?;
    }
    Ok(())
}

/// Input, until the person has enough.
async fn pass_on(
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
        // A last line without its end counts too.
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
    fn a_beginning_is_an_offset_or_now() {
        assert_eq!(since("now"), Ok(Since::Now));
        assert_eq!(since("0"), Ok(Since::Offset(0)));
        assert_eq!(since("18446744073709551615"), Ok(Since::Offset(u64::MAX)));
        for wrong in ["", "-1", "later", "1.5", "18446744073709551616"] {
            assert!(since(wrong).is_err(), "{wrong}");
        }
    }
}
