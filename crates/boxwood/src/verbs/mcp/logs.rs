//! `boxwood mcp logs`.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::time::Duration;

use boxwood_api::{McpLogs, McpServerName};
use boxwood_client::Client;

use super::{refused, server_name};
use crate::failure::Outcome;
use crate::output::Output;
use crate::printable::printable;
use crate::verbs::logs::news;

const EXAMPLES: &str = "\
Examples:
  boxwood mcp logs time                 What its install and it itself wrote to stderr
  boxwood mcp logs -f time              Go on with it
  boxwood mcp logs time --protocol      Which messages came and went
  boxwood mcp logs time -o json         {\"stderr\": …, \"install\": …, \"protocol\": […]}";

/// How often `-f` looks again.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Show what a server wrote lately
///
/// Messages are told by their method, id and length; what is in them is not kept.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(super) struct Args {
    /// Name of the server
    #[arg(value_parser = server_name)]
    name: McpServerName,

    /// Go on with what comes, until interrupted
    #[arg(short, long)]
    follow: bool,

    /// Only what it wrote to stderr
    #[arg(long, conflicts_with_all = ["protocol", "install"])]
    stderr: bool,

    /// Only the messages, `>` to the server and `<` from it
    #[arg(long, conflicts_with = "install")]
    protocol: bool,

    /// Only what its install said
    #[arg(long)]
    install: bool,
}

pub(super) async fn main(args: &Args, client: &Client, output: Output) -> Outcome<u8> {
    if output.is_json() && !args.follow {
        let logs = client.mcp_logs(&args.name).await.map_err(refused)?;
        Output::json(&logs)?;
        return Ok(0);
    }
    let mut shown = [String::new(), String::new()];
    loop {
        let logs = if args.follow {
            client.with_retries(|| client.mcp_logs(&args.name)).await
        } else {
            client.mcp_logs(&args.name).await
        };
        let parts = parts(args, &logs.map_err(refused)?);
        for (before, (kind, now)) in shown.iter().zip(&parts) {
            let news = news(before, now);
            if !output.is_json() {
                print(news)?;
            } else if !news.is_empty() {
                Output::json_line(&BTreeMap::from([(kind, news)]))?;
            }
        }
        if !args.follow {
            return Ok(0);
        }
        shown = parts.map(|(_, text)| text);
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// What was asked for, oldest first.
fn parts(args: &Args, logs: &McpLogs) -> [(&'static str, String); 2] {
    let install = ("install", logs.install.clone());
    let stderr = ("stderr", logs.stderr.clone());
    let nothing = ("", String::new());
    if args.protocol {
        let mut lines = logs.protocol.join("\n");
        if !lines.is_empty() {
            lines.push('\n');
        }
        [("protocol", lines), nothing]
    } else if args.stderr {
        [stderr, nothing]
    } else if args.install {
        [install, nothing]
    } else {
        [install, stderr]
    }
}

/// Line by line, so that nothing in it can drive the terminal.
fn print(text: &str) -> Outcome<()> {
    let mut stdout = std::io::stdout().lock();
    for line in text.split_inclusive('\n') {
        let (words, end) = match line.strip_suffix('\n') {
            Some(words) => (words, "\n"),
            None => (line, ""),
        };
        let columns: Vec<_> = words
            .trim_end_matches('\r')
            .split('\t')
            .map(printable)
            .collect();
        stdout.write_all(columns.join("\t").as_bytes())?;
        stdout.write_all(end.as_bytes())?;
    }
    Ok(stdout.flush()?)
}
