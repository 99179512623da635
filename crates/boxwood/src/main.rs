//! The `boxwood` command: arguments, output and exit codes.
#![forbid(unsafe_code)]

#[cfg(target_os = "linux")]
mod backend;
mod cli;
mod copy;
mod daemon;
mod failure;
mod flags;
mod interactive;
mod interrupts;
mod live;
#[cfg(target_os = "linux")]
mod local_errors;
mod output;
mod printable;
mod reason;
mod runtime;
mod status_line;
mod stdin;
mod table;
mod terminal;
mod verbs;

use std::io::Write as _;
use std::process::ExitCode;

use boxwood_client::Client;
use clap::Parser as _;

use crate::cli::{Cli, Global, Verb};
use crate::failure::{Failure, Outcome};
use crate::output::Output;

/// No thread is started here and no runtime is built before a verb that runs boxes has launched its
/// backend: namespaces and threads do not mix.
fn main() -> ExitCode {
    let Cli { global, verb } = Cli::parse();
    let output = Output::new(global.output);
    match dispatch(verb, &global, output) {
        Ok(code) => ExitCode::from(code),
        Err(failure) if failure.is_broken_pipe() => ExitCode::SUCCESS,
        Err(failure) => {
            let report = failure.report(output.format());
            // With stderr gone as well there is only the exit code.
            let _ = std::io::stderr().lock().write_all(report.as_bytes());
            ExitCode::from(failure.exit_code())
        }
    }
}

fn dispatch(verb: Verb, global: &Global, output: Output) -> Outcome<u8> {
    match verb {
        #[cfg(target_os = "linux")]
        Verb::Run(args) => verbs::run::main(&args, output).map_err(Failure::into_boxwood_failure),
        #[cfg(target_os = "linux")]
        Verb::Serve(args) => done(verbs::serve::main(&args, output)),
        #[cfg(target_os = "linux")]
        Verb::Token(args) => done(verbs::token::main(&args, output)),
        #[cfg(target_os = "linux")]
        Verb::Doctor(args) if global.url.is_none() => verbs::doctor::here(&args, output),
        Verb::Completion(args) => done(verbs::completion::main(&args)),
        Verb::McpServer(args) => done(verbs::mcp_server::main(&args, global.url.as_deref())),
        Verb::Skill(args) if args.is_local() => verbs::skill::here(&args, output),
        verb => {
            let runtime = runtime::for_client()?;
            let ended = runtime.block_on(async {
                let client = daemon::client(global.url.as_deref())?;
                ask(verb, &client, output, global.url.as_deref()).await
            });
            // A read of the keyboard or a stuck write must not keep us here.
            runtime.shutdown_background();
            ended
        }
    }
}

/// The verbs that are a daemon's client.
async fn ask(verb: Verb, client: &Client, output: Output, url: Option<&str>) -> Outcome<u8> {
    match verb {
        Verb::Exec(args) => verbs::exec::main(&args, client, output)
            .await
            .map_err(Failure::into_boxwood_failure),
        Verb::Sh(args) => verbs::sh::main(&args, client)
            .await
            .map_err(Failure::into_boxwood_failure),
        Verb::Create(args) => done(verbs::create::main(&args, client, output).await),
        Verb::Ls(args) => done(verbs::ls::main(&args, client, output).await),
        Verb::Ps(args) => done(verbs::ps::main(&args, client, output).await),
        Verb::Inspect(args) => done(verbs::inspect::main(&args, client, output).await),
        Verb::Cp(args) => done(verbs::cp::main(&args, client, output).await),
        Verb::Start(args) => done(verbs::start::main(&args, client, output).await),
        Verb::Attach(args) => done(verbs::attach::main(&args, client).await),
        Verb::Logs(args) => done(verbs::logs::main(&args, client, output).await),
        Verb::Kill(args) => done(verbs::kill::main(&args, client, output).await),
        Verb::Stop(args) => done(verbs::stop::main(&args, client, output).await),
        Verb::Rm(args) => done(verbs::rm::main(&args, client, output).await),
        Verb::Events(args) => done(verbs::events::main(&args, client, output).await),
        Verb::Profiles(args) => done(verbs::profiles::main(&args, client, output).await),
        Verb::Image(args) => done(verbs::image::main(&args, client, output).await),
        Verb::Skill(args) => verbs::skill::main(&args, client, output).await,
        Verb::Mcp(args) => verbs::mcp::main(&args, client, output, url).await,
        Verb::Tool(args) => verbs::tool::main(&args, client, output).await,
        Verb::Doctor(args) => verbs::doctor::there(&args, client, output).await,
        Verb::Completion(args) => done(verbs::completion::main(&args)),
        Verb::McpServer(_) => Err(Failure::usage("this verb finds its daemon itself")),
        #[cfg(target_os = "linux")]
        Verb::Run(_) | Verb::Serve(_) | Verb::Token(_) => {
            Err(Failure::usage("this verb needs no daemon"))
        }
    }
}

fn done(outcome: Outcome<()>) -> Outcome<u8> {
    outcome.map(|()| 0)
}
