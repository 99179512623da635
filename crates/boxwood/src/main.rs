//! The `boxwood` command: arguments, output and exit codes.
#![forbid(unsafe_code)]

mod cli;
mod copy;
mod daemon;
mod failure;
mod flags;
mod input;
mod interactive;
mod output;
mod runtime;
mod verbs;

use std::process::ExitCode;

use boxwood_client::Client;
use clap::Parser as _;

use crate::cli::{Cli, Global, Verb};
use crate::failure::{Failure, Outcome};
use crate::output::Output;

/// No thread and no runtime is started before a verb that runs boxes has created its backend, because a process with
/// threads cannot enter namespaces.
fn main() -> ExitCode {
    let Cli { global, verb } = Cli::parse();
    let output = Output::new(global.output);
    match dispatch(verb, &global, output) {
        Ok(code) => ExitCode::from(code),
        Err(failure) if failure.is_broken_pipe() => ExitCode::SUCCESS,
        Err(failure) => {
            failure.print(output.format());
            ExitCode::from(failure.exit_code())
        }
    }
}

fn dispatch(verb: Verb, global: &Global, output: Output) -> Outcome<u8> {
    match verb {
        Verb::Run(args) => {
            verbs::sessions::run::main(&args, output).map_err(Failure::into_boxwood_failure)
        }
        Verb::Serve(args) => done(verbs::system::serve::main(&args, output)),
        Verb::Token(args) => done(verbs::system::token::main(&args, output)),
        Verb::Doctor(args) if global.url.is_none() => verbs::system::doctor::local(&args, output),
        Verb::Completion(args) => done(verbs::system::completion(&args)),
        Verb::McpServer(args) => done(verbs::mcp_server::main(&args, global.url.as_deref())),
        Verb::Skill(args) if args.is_local() => verbs::skill::local(&args, output),
        verb => {
            let runtime = runtime::for_client()?;
            let ended = runtime.block_on(async {
                let client = daemon::client(global.url.as_deref())?;
                run(verb, &client, output, global.url.as_deref()).await
            });
            // Does not wait for a blocked read of stdin or write to stdout.
            runtime.shutdown_background();
            ended
        }
    }
}

/// Runs a verb that is a client of a daemon.
async fn run(verb: Verb, client: &Client, output: Output, url: Option<&str>) -> Outcome<u8> {
    match verb {
        Verb::Exec(args) => verbs::sessions::exec::exec(&args, client, output)
            .await
            .map_err(Failure::into_boxwood_failure),
        Verb::Sh(args) => verbs::sessions::exec::sh(&args, client)
            .await
            .map_err(Failure::into_boxwood_failure),
        Verb::Create(args) => done(verbs::sessions::create(&args, client, output).await),
        Verb::Ls(args) => done(verbs::sessions::ls(&args, client, output).await),
        Verb::Ps(args) => done(verbs::processes::ps::main(&args, client, output).await),
        Verb::Inspect(args) => done(verbs::sessions::inspect::main(&args, client, output).await),
        Verb::Cp(args) => done(verbs::sessions::cp::main(&args, client, output).await),
        Verb::Start(args) => done(verbs::processes::start(&args, client, output).await),
        Verb::Attach(args) => done(verbs::processes::attach::main(&args, client).await),
        Verb::Logs(args) => done(verbs::processes::logs::main(&args, client, output).await),
        Verb::Kill(args) => done(verbs::processes::kill(&args, client, output).await),
        Verb::Stop(args) => done(verbs::processes::stop(&args, client, output).await),
        Verb::Rm(args) => done(verbs::sessions::rm(&args, client, output).await),
        Verb::Events(args) => done(verbs::system::events(&args, client, output).await),
        Verb::Profiles(_) => done(verbs::system::profiles(client, output).await),
        Verb::Image(args) => done(verbs::image::main(&args, client, output).await),
        Verb::Skill(args) => verbs::skill::main(&args, client, output).await,
        Verb::Mcp(args) => verbs::mcp::main(&args, client, output, url).await,
        Verb::Tool(args) => verbs::tool::main(&args, client, output).await,
        Verb::Doctor(args) => verbs::system::doctor::remote(&args, client, output).await,
        Verb::Run(_)
        | Verb::Serve(_)
        | Verb::Token(_)
        | Verb::Completion(_)
        | Verb::McpServer(_) => Err(Failure::internal(
            "this command is not a client of the daemon",
        )),
    }
}

fn done(outcome: Outcome<()>) -> Outcome<u8> {
    outcome.map(|()| 0)
}
