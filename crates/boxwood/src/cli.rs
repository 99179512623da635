//! The command line: global flags and the list of verbs. Each verb's own flags are in its file.

use clap::{Args, Parser, Subcommand};

use crate::output::OutputFormat;
use crate::verbs;

const EXAMPLES: &str = "\
Examples:
  boxwood run -- python3 -c 'print(6 * 7)'      Run one command in a new box, without a daemon
  boxwood serve                                 Start the daemon, for agents and the commands below
  boxwood exec build -- make                    Run a command in the session `build`
  boxwood sh build                              Open a shell in it
  boxwood cp build:/workspace/out.txt .         Copy a file from it
  boxwood rm build                              Remove it

Finding the daemon:
  Commands connect to --url or BOXWOOD_URL; without them to the socket in the run directory if a
  daemon listens there, and otherwise to http://127.0.0.1:5410. The daemon's own user and root need
  no token on the same machine; other users set BOXWOOD_TOKEN.

Exit codes:
  0    success
  1    an error, described on stderr
  2    invalid arguments
  124  run, exec, sh: the command was stopped by its timeout
  125  run, exec, sh: Boxwood failed, not the command
  Otherwise run, exec and sh return the exit code of the command, or 128+n if signal n ended it.";

#[derive(Debug, Parser)]
#[command(
    name = "boxwood",
    bin_name = "boxwood",
    version,
    about = "A sandbox runtime for AI agents",
    long_about = "A sandbox runtime for AI agents: runs untrusted commands in isolated boxes with enforced limits, on one Linux machine.",
    after_help = EXAMPLES,
    disable_help_subcommand = true,
    subcommand_required = true,
    arg_required_else_help = true,
    max_term_width = 100
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,

    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    /// Output format
    #[arg(
        short = 'o',
        long = "output",
        global = true,
        value_enum,
        value_name = "FORMAT",
        default_value = "table",
        env = "BOXWOOD_OUTPUT",
        hide_env_values = true,
        display_order = 900
    )]
    pub(crate) output: OutputFormat,

    /// Address of the daemon: `http://HOST:PORT`, `https://HOST` or `unix:///PATH`
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "BOXWOOD_URL",
        hide_env_values = true,
        display_order = 901
    )]
    pub(crate) url: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Run(verbs::sessions::run::Args),
    Exec(verbs::sessions::exec::Exec),
    Sh(verbs::sessions::exec::Sh),
    Create(verbs::sessions::Create),
    Ls(verbs::sessions::Ls),
    Ps(verbs::processes::ps::Args),
    Inspect(verbs::sessions::inspect::Args),
    Cp(verbs::sessions::cp::Args),
    Start(verbs::processes::Start),
    Attach(verbs::processes::attach::Args),
    Logs(verbs::processes::logs::Args),
    Kill(verbs::processes::Kill),
    Stop(verbs::processes::Stop),
    Rm(verbs::sessions::Rm),
    Events(verbs::system::Events),
    Profiles(verbs::system::Profiles),
    Skill(verbs::skill::Args),
    Tool(verbs::tool::Args),
    Image(verbs::image::Args),
    Mcp(verbs::mcp::Args),
    McpServer(verbs::mcp_server::Args),
    Serve(verbs::system::serve::Args),
    Doctor(verbs::system::doctor::Args),
    Token(verbs::system::token::Args),
    Completion(verbs::system::Completion),
}
