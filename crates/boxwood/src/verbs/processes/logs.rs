//! `boxwood logs`: the output of a managed process.

use std::io::Write as _;
use std::time::Duration;

use boxwood_api::{ProcessId, ProcessLogs, ProcessStatus, SessionId};
use boxwood_client::{Client, ClientError};

use crate::failure::Outcome;
use crate::output::Output;

const EXAMPLES: &str = "\
Examples:
  boxwood logs tools web
  boxwood logs -f tools web             Follow until the process exits
  boxwood logs tools web 2>/dev/null    Show stdout only
  boxwood logs tools web -o json        {\"stdout\": …, \"stderr\": …}";

/// How often `-f` polls.
pub(in crate::verbs) const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Show the recent output of a managed process
///
/// Prints its stdout to stdout and its stderr to stderr. The daemon keeps the end of each.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Name of the session
    session: SessionId,

    /// Name of the process
    #[arg(default_value = "default")]
    process: ProcessId,

    /// Continue with new output until the process exits
    #[arg(short, long)]
    follow: bool,
}

pub(crate) async fn main(args: &Args, client: &Client, output: Output) -> Outcome<()> {
    let mut shown = ProcessLogs {
        stdout: String::new(),
        stderr: String::new(),
    };
    loop {
        // Requested first, so that the logs of an exited process are complete.
        let status = request(client, args, || {
            client.process(&args.session, &args.process)
        });
        let status = status.await?.status;
        let logs = request(client, args, || {
            client.process_logs(&args.session, &args.process)
        });
        let logs = logs.await?;
        if output.is_json() && !args.follow {
            return Output::json(&logs);
        }
        let appended = ProcessLogs {
            stdout: appended(&shown.stdout, &logs.stdout).to_owned(),
            stderr: appended(&shown.stderr, &logs.stderr).to_owned(),
        };
        if !output.is_json() {
            print(&appended)?;
        } else if !(appended.stdout.is_empty() && appended.stderr.is_empty()) {
            Output::json_line(&appended)?;
        }
        if !args.follow || status == ProcessStatus::Exited {
            return Ok(());
        }
        shown = logs;
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

/// With `--follow`, waits for a daemon that is restarting.
async fn request<T, F: Future<Output = Result<T, ClientError>>>(
    client: &Client,
    args: &Args,
    call: impl Fn() -> F,
) -> Result<T, ClientError> {
    if args.follow {
        client.with_retries(call).await
    } else {
        call().await
    }
}

fn print(logs: &ProcessLogs) -> Outcome<()> {
    Output::bytes(logs.stdout.as_bytes())?;
    let mut stderr = std::io::stderr().lock();
    stderr.write_all(logs.stderr.as_bytes())?;
    Ok(stderr.flush()?)
}

/// The part of `current` that is not in `previous`. The daemon keeps a window of the last bytes, so `current` is
/// the end of `previous` and then new output.
pub(in crate::verbs) fn appended<'a>(previous: &str, current: &'a str) -> &'a str {
    let mut starts = previous.char_indices().map(|(start, _)| start);
    starts
        .find_map(|start| current.strip_prefix(&previous[start..]))
        .unwrap_or(current)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(previous: &str, current: &str, expected: &str) {
        assert_eq!(appended(previous, current), expected);
    }

    #[test]
    fn no_log_line_is_shown_twice_when_the_window_moves() {
        check("", "abc", "abc");
        check("abc", "abc", "");
        check("abc", "abcd", "d");
        check("abcd", "cdef", "ef");
        check("ab", "xy", "xy");
        check("aab", "aba", "a");
        check("xabab", "ababab", "ab");
        check("abab", "ab", "");
        check("abc", "", "");
        check("aé", "éb", "b");
    }
}
