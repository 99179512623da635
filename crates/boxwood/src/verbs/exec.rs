//! `boxwood exec`: a command in a session.

use std::io::Read as _;

use boxwood_api::{SessionId, SpecRequest};
use boxwood_client::{Client, LiveRequest};

use super::{print_notices, session_id};
use crate::failure::{Failure, Outcome};
use crate::flags::{BoxFlags, CommandFlags, command_line};
use crate::interactive::{self, Connect};
use crate::live::{Control, Events};
use crate::output::Output;
use crate::terminal;

const EXAMPLES: &str = "\
Examples:
  boxwood exec build -- make -j2
  boxwood exec build --timeout 2m -e CI=1 -- sh -c 'make && ./test'
  tar c src | boxwood exec -i build -- tar x
  boxwood exec -t build -- top
  boxwood exec build -o json -- ls            The result as one JSON object

The words after -- are the program and its arguments; no shell looks at them. Ctrl-C goes to the
command; a third one kills it. When the daemon is restarted the command goes on, and so does its
output. When the connection is lost for good the command is stopped.

Exit codes: the command's own, 128+n when signal n ended it; 124 timeout; 125 Boxwood failed.";

/// Run a command in a session
///
/// Creates the session when it does not exist; the flags under Box then say how. Output is shown as
/// it is written. The session stays, with its files, until `boxwood rm` or until it has been idle for
/// the daemon's session TTL.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Name of the session
    #[arg(value_parser = session_id)]
    session: SessionId,

    /// Pass our stdin to the command
    #[arg(short, long)]
    interactive: bool,

    /// Give the command a terminal
    #[arg(short, long)]
    tty: bool,

    /// Program and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    words: Vec<String>,

    #[command(flatten)]
    command: CommandFlags,

    #[command(flatten)]
    the_box: BoxFlags,
}

pub(crate) async fn main(args: &Args, client: &Client, output: Output) -> Outcome<u8> {
    let mut spec = SpecRequest::default();
    args.the_box.fill(&mut spec);
    args.command.fill(&mut spec);
    if output.is_json() {
        return captured(args, client, spec).await;
    }
    let how = Connect::from_flags(args.interactive, args.tty)?;
    if how == Connect::Terminal {
        super::pass_term(&mut spec);
    }
    talk(client, &args.session, spec, args.words.clone(), how).await
}

/// Also what `sh` does, with other words.
pub(crate) async fn talk(
    client: &Client,
    session: &SessionId,
    spec: SpecRequest,
    argv: Vec<String>,
    how: Connect,
) -> Outcome<u8> {
    let request = LiveRequest {
        spec,
        argv: Some(argv),
        tty: (how == Connect::Terminal).then(|| terminal::size().into()),
        stdin: how != Connect::Output,
        resumable: true,
    };
    let live = client.live_exec(session, request).await?;
    print_notices(&live.notices);
    interactive::attach(
        Control::Remote(live.sender),
        Events::Remote(live.receiver),
        how,
    )
    .await
}

/// The result as one object, with the output in it.
async fn captured(args: &Args, client: &Client, mut spec: SpecRequest) -> Outcome<u8> {
    if args.tty {
        return Err(Failure::usage("`-t` and `-o json` do not go together"));
    }
    if args.interactive {
        spec.stdin = Some(read_stdin()?);
    }
    spec.cmd = command_line(&args.words);
    let result = client.exec(&args.session, &spec).await?;
    Output::json(&result)?;
    Ok(interactive::exit_code(result.status, result.exit_code))
}

pub(crate) fn read_stdin() -> Outcome<String> {
    let mut text = String::new();
    std::io::stdin()
        .lock()
        .read_to_string(&mut text)
        .map_err(|error| {
            Failure::local("stdin could not be read", error)
                .hint("with `-o json` the input must be text")
        })?;
    Ok(text)
}
