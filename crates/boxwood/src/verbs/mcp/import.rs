//! `boxwood mcp import`.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use boxwood_api::{ImportMcpRequest, ImportedMcp, McpServerInfo, McpStatus};
use boxwood_client::Client;
use boxwood_mcp::{McpInput, mentions};
use serde::Serialize;
use serde_json::Value;

use super::progress::{Waiting, exit_code, settle, settled};
use super::values::{
    Answer, InputFlag, LocalEnvironment, gather, input_flag, prompt_user, take_env_files,
};
use super::{document, prompt, refused};
use crate::failure::{EXIT_ERROR, Failure, Outcome};
use crate::output::Output;
use crate::printable::printable;

const EXAMPLES: &str = "\
Examples:
  boxwood mcp import .mcp.json                       Claude Code
  boxwood mcp import ~/.cursor/mcp.json              Cursor
  boxwood mcp import .vscode/mcp.json                Visual Studio Code; comments may stay
  boxwood mcp import servers.json --replace          Also those that are there already
  boxwood mcp import mcp.json --input api-key=@key.txt
  pbpaste | boxwood mcp import -                     What was copied from a README

Variables such as ${env:TOKEN}, ${TOKEN} and ${TOKEN:-none} are taken from your environment, inputs such
as ${input:key} are asked for. Nothing else of your environment is sent. Then
`boxwood mcp config --client cursor` prints what to put in the file's place.";

/// More than any configuration has.
const MOST_BYTES: u64 = 8 << 20;

/// Add the servers of a client's configuration
///
/// Takes the files of Claude, Cursor, Windsurf, VS Code and their relatives as they are. Servers that
/// run somewhere else already are left there. Waits until all are connected and shows the way there,
/// phase by phase.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Args {
    /// The file; `-` for standard input
    file: PathBuf,

    /// Put servers in the place of those of the same name
    #[arg(long)]
    replace: bool,

    /// The value of an input or a variable; repeatable. `ID=@FILE` keeps a secret off the command line
    #[arg(long = "input", value_name = "ID=VALUE", value_parser = input_flag)]
    inputs: Vec<InputFlag>,

    /// What `${workspaceFolder}` stands for [default: the directory that holds `.vscode` or `.cursor`,
    /// else this one]
    #[arg(long, value_name = "DIR")]
    workspace_folder: Option<PathBuf>,

    /// Do not wait until they are connected
    #[arg(long)]
    no_wait: bool,
}

pub(super) async fn main(args: &Args, client: &Client, output: Output) -> Outcome<u8> {
    let (request, missing) = request(args)?;
    let report = client.import_mcp_servers(&request).await.map_err(refused)?;
    if !output.is_json() {
        tell(&report)?;
    }
    let mut servers = Vec::new();
    for name in report.added.iter().chain(&report.replaced) {
        servers.push(client.mcp_server(name).await.map_err(refused)?);
    }
    let nothing_came = servers.is_empty() && !report.skipped.is_empty();
    servers.retain(|server| server.runtime.status != McpStatus::Disabled);
    let waiting = if args.no_wait {
        Waiting::Never
    } else {
        Waiting::UntilSettled
    };
    let code = if output.is_json() {
        let servers = settled(client, servers, waiting, output).await?;
        let code = exit_code(&servers);
        Output::json(&Imported { report, servers })?;
        code
    } else {
        settle(client, servers, waiting, output).await?
    };
    let is_whole = missing.is_empty() && !nothing_came;
    Ok(if is_whole { code } else { EXIT_ERROR })
}

#[derive(Serialize)]
struct Imported {
    #[serde(flatten)]
    report: ImportedMcp,
    /// How those that were added or replaced came along.
    servers: Vec<McpServerInfo>,
}

/// The document with everything it asks for, and what it asks for in vain.
fn request(args: &Args) -> Outcome<(ImportMcpRequest, Vec<String>)> {
    let shown = args.file.display();
    let text = text(&args.file)?;
    let mut document: Value = document::parse(&text)
        .map_err(|why| Failure::usage(format!("`{shown}` is no JSON: {why}")))?;
    let mentioned =
        mentions(&document).map_err(|error| Failure::usage(format!("`{shown}`: {error}")))?;
    let environment = LocalEnvironment {
        workspace: workspace(args)?,
        home: std::env::var("HOME").ok(),
        variable: &|name| std::env::var(name).ok(),
    };
    let mut person = |input: &McpInput| prompt_user(input);
    let is_typed = args.file != Path::new("-");
    let answer: Option<Answer<'_>> = if is_typed && prompt::is_possible() {
        Some(&mut person)
    } else {
        None
    };
    let mut found = gather(&mentioned, &args.inputs, &environment, answer)?;
    take_env_files(&mut document, &mut found.values, &environment.workspace)?;
    for missing in &found.missing {
        eprintln!("boxwood: {} has no value here", printable(missing));
    }
    if !found.missing.is_empty() {
        eprintln!("hint: set it, or give it as `--input NAME=VALUE`, and import again");
    }
    let request = ImportMcpRequest {
        document,
        inputs: found.values,
        replace: args.replace,
    };
    Ok((request, found.missing))
}

fn text(file: &Path) -> Outcome<String> {
    let shown = file.display();
    let failed = |error| Failure::local(format!("`{shown}` cannot be read"), error);
    let mut text = String::new();
    if file == Path::new("-") {
        std::io::stdin()
            .take(MOST_BYTES + 1)
            .read_to_string(&mut text)
            .map_err(failed)?;
    } else {
        std::fs::File::open(file)
            .map_err(failed)?
            .take(MOST_BYTES + 1)
            .read_to_string(&mut text)
            .map_err(failed)?;
    }
    if text.len() as u64 > MOST_BYTES {
        return Err(Failure::usage(format!("`{shown}` is longer than 8 MiB")));
    }
    Ok(text)
}

fn workspace(args: &Args) -> Outcome<PathBuf> {
    let of_editor = || {
        let directory = std::path::absolute(&args.file).ok()?.parent()?.to_owned();
        let name = directory.file_name()?.to_str()?;
        // The one at home is for every project, so it says nothing about this one.
        let is_home = directory.parent() == std::env::var_os("HOME").map(PathBuf::from).as_deref();
        let is_editors = matches!(name, ".vscode" | ".cursor") && !is_home;
        is_editors.then(|| directory.parent().map(Path::to_owned))?
    };
    let folder = match &args.workspace_folder {
        Some(folder) => std::path::absolute(folder),
        None => of_editor().map_or_else(std::env::current_dir, Ok),
    };
    folder.map_err(|error| Failure::local("the workspace folder is not known", error))
}

fn tell(report: &ImportedMcp) -> Outcome<()> {
    for notice in &report.notices {
        eprintln!("boxwood: {}", printable(notice));
    }
    for skipped in &report.skipped {
        eprintln!(
            "boxwood: skipped `{}`: {}",
            printable(&skipped.name),
            printable(&skipped.why)
        );
    }
    let words: Vec<String> = [
        (report.added.len(), "added"),
        (report.replaced.len(), "replaced"),
        (report.skipped.len(), "skipped"),
    ]
    .into_iter()
    .filter(|(count, _)| *count > 0)
    .map(|(count, what)| format!("{count} {what}"))
    .collect();
    if words.is_empty() {
        return Output::line("no servers");
    }
    Output::line(&words.join(", "))
}
