//! `boxwood sh`: a terminal in a session.

use boxwood_api::{SessionId, SpecRequest};
use boxwood_client::Client;

use super::session_id;
use crate::failure::Outcome;
use crate::flags::{BoxFlags, CommandFlags};
use crate::interactive::Connect;

const EXAMPLES: &str = "\
Examples:
  boxwood sh build
  boxwood sh scratch --network --memory 2g
  boxwood sh build -- python3                 Another program than a shell

Leave with `exit` or Ctrl-D. Your terminal is put back as it was, however it ends.";

/// Open a shell in a session
///
/// Creates the session when it does not exist. Gives you a terminal in the box that follows your
/// window's size, with bash where the box has it and sh otherwise.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Name of the session
    #[arg(value_parser = session_id)]
    session: SessionId,

    /// Program to run in place of a shell
    #[arg(last = true, value_name = "CMD")]
    words: Vec<String>,

    #[command(flatten)]
    command: CommandFlags,

    #[command(flatten)]
    the_box: BoxFlags,
}

/// A person thinks for longer than a command runs. The profile's maximum still holds.
const SITTING_SEC: u64 = 24 * 3600;

pub(crate) fn shell() -> Vec<String> {
    [
        "/bin/sh",
        "-c",
        "command -v bash >/dev/null 2>&1 && exec bash; exec sh",
    ]
    .map(str::to_owned)
    .to_vec()
}

pub(crate) async fn main(args: &Args, client: &Client) -> Outcome<u8> {
    let how = Connect::from_flags(true, true)?;
    let mut spec = SpecRequest::default();
    args.the_box.fill(&mut spec);
    args.command.fill(&mut spec);
    spec.timeout_sec.get_or_insert(SITTING_SEC);
    super::pass_term(&mut spec);
    let words = if args.words.is_empty() {
        shell()
    } else {
        args.words.clone()
    };
    super::exec::talk(client, &args.session, spec, words, how).await
}
