//! `boxwood exec` and `boxwood sh`: a command or a terminal in a session.

use std::path::Path;

use boxwood_api::{SessionId, SpecRequest};
use boxwood_client::{Client, LiveRequest};

use crate::failure::{Failure, Outcome};
use crate::flags::{BoxFlags, CommandFlags, command_line};
use crate::input;
use crate::interactive::live::{Control, Events};
use crate::interactive::{self, Connect, terminal};
use crate::output::{Output, print_notices};

const EXEC_EXAMPLES: &str = "\
Examples:
  boxwood exec build -- make -j2
  boxwood exec build --timeout 2m -e CI=1 -- sh -c 'make && ./test'
  tar c src | boxwood exec -i build -- tar x
  boxwood exec -t build -- top
  boxwood exec build -o json -- ls            Print the result as one JSON object

The words after -- are the program and its arguments; they are not interpreted by a shell. Ctrl-C is
sent to the command; the third Ctrl-C kills it. The command and its output continue when the daemon
is restarted. The command is stopped if the connection cannot be restored.

Exit codes: the command's own, 128+n if signal n ended it; 124 timeout; 125 Boxwood failed.";

/// Run a command in a session
///
/// Creates the session if it does not exist, as described by the flags under Box. Output is shown as it
/// is written. The session and its files are kept until `boxwood rm`, or until it has been idle for the
/// daemon's session TTL.
#[derive(Debug, clap::Args)]
#[command(after_help = EXEC_EXAMPLES)]
pub(crate) struct Exec {
    /// Name of the session
    session: SessionId,

    /// Pass stdin to the command
    #[arg(short, long)]
    interactive: bool,

    /// Give the command a terminal
    #[arg(short, long)]
    tty: bool,

    /// Program and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    argv: Vec<String>,

    #[command(flatten)]
    command: CommandFlags,

    #[command(flatten)]
    box_flags: BoxFlags,
}

pub(crate) async fn exec(args: &Exec, client: &Client, output: Output) -> Outcome<u8> {
    let mut spec = SpecRequest::default();
    args.box_flags.fill(&mut spec);
    args.command.fill(&mut spec);
    if output.is_json() {
        fill_captured(&mut spec, &args.argv, args.interactive, args.tty)?;
        let result = client.exec(&args.session, &spec).await?;
        Output::json(&result)?;
        return Ok(interactive::exit_code(result.status, result.exit_code));
    }
    let connect = Connect::from_flags(args.interactive, args.tty)?;
    stream(client, &args.session, spec, args.argv.clone(), connect).await
}

async fn stream(
    client: &Client,
    session: &SessionId,
    mut spec: SpecRequest,
    argv: Vec<String>,
    connect: Connect,
) -> Outcome<u8> {
    pass_term(&mut spec, connect);
    let request = LiveRequest {
        spec,
        argv: Some(argv),
        tty: (connect == Connect::Terminal).then(terminal::size),
        stdin: connect != Connect::Output,
    };
    let live = client.live_exec(session, request).await?;
    print_notices(&live.notices);
    let (control, events) = (Control::Remote(live.sender), Events::Remote(live.receiver));
    interactive::attach(control, events, connect).await
}

/// The command of a result that is printed as one JSON object, with the output in it.
pub(super) fn fill_captured(
    spec: &mut SpecRequest,
    argv: &[String],
    interactive: bool,
    tty: bool,
) -> Outcome<()> {
    if tty {
        return Err(Failure::usage("`-t` and `-o json` cannot be combined"));
    }
    if interactive {
        // The daemon has a lower limit.
        const MAX_BYTES: u64 = 1 << 30;
        spec.stdin = Some(input::read_text(Path::new("-"), MAX_BYTES)?);
    }
    spec.cmd = command_line(argv);
    Ok(())
}

/// Passes the type of the user's terminal, unless `-e TERM=…` was given.
pub(super) fn pass_term(spec: &mut SpecRequest, connect: Connect) {
    if let (Connect::Terminal, Ok(term)) = (connect, std::env::var("TERM")) {
        spec.env.entry("TERM".to_owned()).or_insert(term);
    }
}

const SH_EXAMPLES: &str = "\
Examples:
  boxwood sh build
  boxwood sh scratch --network --memory 2g
  boxwood sh build -- python3                 Run another program than a shell

Leave with `exit` or Ctrl-D.";

/// Open a shell in a session
///
/// Creates the session if it does not exist. Runs bash in a terminal of the box, or sh if the box has no
/// bash. The terminal follows the size of your window.
#[derive(Debug, clap::Args)]
#[command(after_help = SH_EXAMPLES)]
pub(crate) struct Sh {
    /// Name of the session
    session: SessionId,

    /// Program to run instead of a shell
    #[arg(last = true, value_name = "CMD")]
    argv: Vec<String>,

    #[command(flatten)]
    command: CommandFlags,

    #[command(flatten)]
    box_flags: BoxFlags,
}

/// Default timeout of an interactive shell. The profile's maximum still applies.
const SHELL_TIMEOUT_SEC: u64 = 24 * 3600;
const SHELL: [&str; 3] = [
    "/bin/sh",
    "-c",
    "command -v bash >/dev/null 2>&1 && exec bash; exec sh",
];

pub(crate) async fn sh(args: &Sh, client: &Client) -> Outcome<u8> {
    let connect = Connect::from_flags(true, true).map_err(|failure| {
        failure.hint("`boxwood exec -i SESSION -- sh` passes stdin to a shell")
    })?;
    let mut spec = SpecRequest::default();
    args.box_flags.fill(&mut spec);
    args.command.fill(&mut spec);
    spec.timeout_sec.get_or_insert(SHELL_TIMEOUT_SEC);
    let argv = if args.argv.is_empty() {
        SHELL.map(str::to_owned).to_vec()
    } else {
        args.argv.clone()
    };
    stream(client, &args.session, spec, argv, connect).await
}
