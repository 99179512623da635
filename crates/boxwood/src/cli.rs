//! The command line: global flags and the list of verbs. Each verb's own flags stand in its file.

use clap::{Args, Parser, Subcommand};

use crate::output::OutputFormat;
use crate::verbs;

const EXAMPLES: &str = "\
Examples:
  boxwood run -- python3 -c 'print(6 * 7)'      One command in a fresh box, no daemon needed
  boxwood serve                                 The daemon, for agents and for the verbs below
  boxwood exec build -- make                    A command in the session `build`, made when missing
  boxwood sh build                              A shell in it
  boxwood cp build:/workspace/out.txt .         A file out of it
  boxwood rm build                              The end of it

Finding the daemon:
  Client verbs use --url or BOXWOOD_URL; else the socket in the run directory when a daemon listens
  there; else http://127.0.0.1:5410. The daemon's own user and root need no token on the same
  machine; other users set BOXWOOD_TOKEN.

Exit codes:
  0    success
  1    an error, told on stderr
  2    the command line was not understood
  124  run, exec: the command was stopped by its timeout
  125  run, exec, sh: Boxwood failed, not the command
  Otherwise run, exec and sh end with the command's own code, 128+n when signal n ended it.";

#[derive(Debug, Parser)]
#[command(
    name = "boxwood",
    bin_name = "boxwood",
    version,
    about = "A sandbox runtime for AI agents",
    long_about = "A sandbox runtime for AI agents: boxes in which untrusted commands run, under limits that hold, on one ordinary Linux machine.",
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
    /// How to print the answer
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
    #[cfg(target_os = "linux")]
    Run(verbs::run::Args),
    Exec(verbs::exec::Args),
    Sh(verbs::sh::Args),
    Create(verbs::create::Args),
    Ls(verbs::ls::Args),
    Ps(verbs::ps::Args),
    Inspect(verbs::inspect::Args),
    Cp(verbs::cp::Args),
    Start(verbs::start::Args),
    Attach(verbs::attach::Args),
    Logs(verbs::logs::Args),
    Kill(verbs::kill::Args),
    Stop(verbs::stop::Args),
    Rm(verbs::rm::Args),
    Events(verbs::events::Args),
    Profiles(verbs::profiles::Args),
    Skill(verbs::skill::Args),
    Tool(verbs::tool::Args),
    Image(verbs::image::Args),
    Mcp(verbs::mcp::Args),
    McpServer(verbs::mcp_server::Args),
    #[cfg(target_os = "linux")]
    Serve(verbs::serve::Args),
    Doctor(verbs::doctor::Args),
    #[cfg(target_os = "linux")]
    Token(verbs::token::Args),
    Completion(verbs::completion::Args),
}
