//! `boxwood logs`: the output of a managed process.

use std::io::Write as _;
use std::time::Duration;

use boxwood_api::{ProcessId, ProcessLogs, ProcessStatus, SessionId};
use boxwood_client::{Client, ClientError};

use super::process_id;
use crate::failure::Outcome;
use crate::output::Output;
use crate::verbs::sessions::session_id;

const EXAMPLES: &str = "\
Examples:
  boxwood logs tools web
  boxwood logs -f tools web             Follow until the process exits
  boxwood logs tools web 2>/dev/null    Show stdout only
  boxwood logs tools web -o json        {\"stdout\": …, \"stderr\": …}";

/// How often `-f` polls.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Show the recent output of a managed process
///
/// Prints its stdout to stdout and its stderr to stderr. The daemon keeps the end of each.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// Name of the session
    #[arg(value_parser = session_id)]
    session: SessionId,

    /// Name of the process
    #[arg(default_value = "default", value_parser = process_id)]
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
        let news = ProcessLogs {
            stdout: news(&shown.stdout, &logs.stdout).to_owned(),
            stderr: news(&shown.stderr, &logs.stderr).to_owned(),
        };
        if !output.is_json() {
            print(&news)?;
        } else if !(news.stdout.is_empty() && news.stderr.is_empty()) {
            Output::json_line(&news)?;
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

/// The part of `now` that is not in `before`. The daemon keeps a window of the last bytes, so `now` is
/// the end of `before` and then new output.
pub(in crate::verbs) fn news<'a>(before: &str, now: &'a str) -> &'a str {
    &now[overlap(before.as_bytes(), now.as_bytes())..]
}

/// The length of the longest end of `before` that `now` begins with, by the algorithm of Knuth, Morris and Pratt:
/// repetitive logs must not cost the square of their length.
fn overlap(before: &[u8], now: &[u8]) -> usize {
    let mut borders = vec![0; now.len()];
    let mut length = 0;
    for at in 1..now.len() {
        while length > 0 && now[at] != now[length] {
            length = borders[length - 1];
        }
        length += usize::from(now[at] == now[length]);
        borders[at] = length;
    }
    let mut length = 0;
    for (at, byte) in before.iter().enumerate() {
        while length > 0 && (length == now.len() || *byte != now[length]) {
            length = borders[length - 1];
        }
        if now.get(length) == Some(byte) {
            length += 1;
        }
        // `now` matches completely but `before` continues; only a match at its end counts.
        if length == now.len() && length > 0 && at + 1 < before.len() {
            length = borders[length - 1];
        }
    }
    length
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(before: &str, now: &str, expected: &str) {
        assert_eq!(news(before, now), expected);
    }

    #[test]
    fn nothing_is_shown_twice_when_the_window_moves() {
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
