//! `boxwood mcp import`.

mod document;
mod prompt;
mod values;

use std::path::{Path, PathBuf};

use boxwood_api::{ImportMcpRequest, ImportedMcp, McpServerInfo, McpStatus};
use boxwood_client::Client;
use boxwood_mcp::{McpInput, mentions};
use serde::Serialize;

use super::progress::{Wait, print};
use super::refused;
use crate::failure::{EXIT_ERROR, Failure, Outcome};
use crate::flags::Assignment;
use crate::input;
use crate::output::printable::printable;
use crate::output::{Output, print_notices};
use values::{LocalEnvironment, Prompt, gather, input_flag, prompt_user};

const EXAMPLES: &str = "\
Examples:
  boxwood mcp import .mcp.json                       Claude Code
  boxwood mcp import ~/.cursor/mcp.json              Cursor
  boxwood mcp import .vscode/mcp.json                Visual Studio Code
  boxwood mcp import servers.json --replace          Replace existing servers
  boxwood mcp import mcp.json --input api-key=@key.txt
  pbpaste | boxwood mcp import -                     From stdin

Values of ${env:TOKEN}, ${TOKEN} and ${TOKEN:-none} are taken from your environment; other variables
are not sent. For inputs such as ${input:key} you are prompted. `boxwood mcp config --client cursor`
prints the configuration that replaces the file.";

/// Limit of the document.
const MAX_BYTES: u64 = 8 << 20;

/// Import the servers of a client's configuration
///
/// Accepts the configuration files of Claude, Cursor, Windsurf, VS Code and similar clients, also with comments.
/// Remote servers are skipped. Shows the progress until all servers are connected.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// Configuration file; `-` for stdin
    file: PathBuf,

    /// Replace existing servers of the same name
    #[arg(long)]
    replace: bool,

    /// Value of an input or a variable; repeatable. `ID=@FILE` reads it from a file
    #[arg(long = "input", value_name = "ID=VALUE", value_parser = input_flag)]
    inputs: Vec<Assignment>,

    /// Value of `${workspaceFolder}` [default: the directory that contains `.vscode` or `.cursor`, or the
    /// current one]
    #[arg(long, value_name = "DIR")]
    workspace_folder: Option<PathBuf>,

    #[command(flatten)]
    wait: Wait,
}

pub(super) async fn main(args: &Args, client: &Client, output: Output) -> Outcome<u8> {
    let (request, missing) = request(args)?;
    let report = client.import_mcp_servers(&request).await.map_err(refused)?;
    if !output.is_json() {
        print_report(&report)?;
    }
    let mut servers = Vec::new();
    for name in report.added.iter().chain(&report.replaced) {
        servers.push(client.mcp_server(name).await.map_err(refused)?);
    }
    let is_whole = missing.is_empty() && (!servers.is_empty() || report.skipped.is_empty());
    servers.retain(|server| server.runtime.status != McpStatus::Disabled);
    let code = args.wait.for_status(client, &mut servers, output).await?;
    if output.is_json() {
        Output::json(&Imported { report, servers })?;
    } else {
        for server in &servers {
            print(server.name.as_str(), &server.runtime)?;
        }
    }
    Ok(if is_whole { code } else { EXIT_ERROR })
}

#[derive(Serialize)]
struct Imported {
    #[serde(flatten)]
    report: ImportedMcp,
    /// The added and replaced servers with their status.
    servers: Vec<McpServerInfo>,
}

/// The document with the values it refers to, and the names of missing values.
fn request(args: &Args) -> Outcome<(ImportMcpRequest, Vec<String>)> {
    let file_name = input::name(&args.file);
    let text = input::read_text(&args.file, MAX_BYTES)?;
    let document = document::parse(&text)
        .map_err(|error| Failure::usage(format!("{file_name} is not valid JSON: {error}")))?;
    let mentioned =
        mentions(&document).map_err(|error| Failure::usage(format!("{file_name}: {error}")))?;
    let environment = LocalEnvironment {
        workspace: workspace(args)?,
        home: std::env::var("HOME").ok(),
        variable: &|name| std::env::var(name).ok(),
    };
    let mut prompt = |input: &McpInput| prompt_user(input);
    // Otherwise stdin contains the document.
    let is_file = args.file != Path::new("-");
    let prompt: Option<Prompt<'_>> = if is_file && prompt::is_possible() {
        Some(&mut prompt)
    } else {
        None
    };
    let found = gather(&mentioned, &args.inputs, &environment, prompt)?;
    for missing in &found.missing {
        eprintln!("boxwood: no value for {}", printable(missing));
    }
    if !found.missing.is_empty() {
        eprintln!("hint: set it, or pass `--input NAME=VALUE`, and import again");
    }
    let request = ImportMcpRequest {
        document,
        inputs: found.values,
        replace: args.replace,
    };
    Ok((request, found.missing))
}

fn workspace(args: &Args) -> Outcome<PathBuf> {
    let of_editor = || {
        let directory = std::path::absolute(&args.file).ok()?.parent()?.to_owned();
        let name = directory.file_name()?.to_str()?;
        // The configuration in the home directory is for all projects.
        let is_home = directory.parent() == std::env::var_os("HOME").map(PathBuf::from).as_deref();
        let is_editors = matches!(name, ".vscode" | ".cursor") && !is_home;
        is_editors.then(|| directory.parent().map(Path::to_owned))?
    };
    let folder = match &args.workspace_folder {
        Some(folder) => std::path::absolute(folder),
        None => of_editor().map_or_else(std::env::current_dir, Ok),
    };
    folder.map_err(|error| Failure::local("cannot find the workspace folder", error))
}

fn print_report(report: &ImportedMcp) -> Outcome<()> {
    print_notices(&report.notices);
    for skipped in &report.skipped {
        let (name, why) = (printable(&skipped.name), printable(&skipped.why));
        eprintln!("boxwood: skipped `{name}`: {why}");
    }
    let counts: Vec<String> = [
        (report.added.len(), "added"),
        (report.replaced.len(), "replaced"),
        (report.skipped.len(), "skipped"),
    ]
    .into_iter()
    .filter(|(count, _)| *count > 0)
    .map(|(count, action)| format!("{count} {action}"))
    .collect();
    if counts.is_empty() {
        return Output::line("no servers");
    }
    Output::line(&counts.join(", "))
}
