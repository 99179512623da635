//! An HTTP client that is not ours: Python's `http.client`, one connection, one request at a time.
//!
//! In: a daemon and the path of a session. Out: the time of each request, measured by the client
//! itself.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::pipe::Pipe;
use crate::bench::baseline::PYTHON;
use crate::bench::daemon::Daemon;

const SCRIPT: &str = include_str!("python.py");

pub(in super::super) struct PythonClient(Pipe);

impl PythonClient {
    pub(in super::super) fn start(daemon: &Daemon, session: &str) -> Result<Self> {
        let address = daemon.address();
        let pipe = Pipe::start(
            Command::new(PYTHON)
                .args(["-c", SCRIPT])
                .arg(address.ip().to_string())
                .arg(address.port().to_string())
                .arg(session),
        )?;
        Ok(Self(pipe))
    }

    /// `true` in the session.
    pub(in super::super) fn exec(&mut self) -> Result<Duration> {
        self.request("exec")
    }

    /// The cheapest request of the daemon.
    pub(in super::super) fn noop(&mut self) -> Result<Duration> {
        self.request("noop")
    }

    fn request(&mut self, name: &str) -> Result<Duration> {
        let answer = self.0.request(name).context("the Python client")?;
        parse(&answer)
    }
}

fn parse(answer: &str) -> Result<Duration> {
    let nanoseconds = answer
        .parse()
        .with_context(|| format!("the Python client answered `{answer}`"))?;
    Ok(Duration::from_nanos(nanoseconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_a_time_in_nanoseconds() {
        assert_eq!(parse("1500000").unwrap(), Duration::from_micros(1500));
    }

    #[test]
    fn another_answer_is_the_error() {
        let error = parse("GET /v1/health answered 503: b''").unwrap_err();
        assert_eq!(
            error.to_string(),
            "the Python client answered `GET /v1/health answered 503: b''`"
        );
    }
}
