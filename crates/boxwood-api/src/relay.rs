//! Text frames of a resumable relay. Binary frames carry stdin and stdout of the process.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::{ErrorDetail, Reason};

/// Sent by the daemon.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum RelayNews {
    /// The first frame: the offset at which the output starts, and the total bytes of input that
    /// the process has accepted. A client that reconnects continues sending from there, unless
    /// `started_at` shows that it is another process.
    Joined {
        stdout: u64,
        stdin: u64,
        #[schema(value_type = String, format = DateTime)]
        started_at: Timestamp,
    },
    /// Total bytes of input that are accepted. They survive a daemon restart and need not be
    /// resent.
    Accepted { stdin: u64 },
    /// The process accepts no more input; further input is discarded. Always true.
    StdinClosed { stdin_closed: bool },
    /// The last frame: all output has been sent and the process has exited.
    Exited { exited: ProcessExit },
    /// A frame was invalid, or the process can no longer be attached to.
    Error { error: ErrorDetail },
}

/// Sent by the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum RelayControl {
    /// Closes stdin of the process.
    CloseStdin,
    /// Output up to this offset has arrived and will not be requested again.
    Ack { stdout: u64 },
}

/// How a managed process exited.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ProcessExit {
    /// 128+n if killed by signal n.
    pub exit_code: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    #[schema(value_type = String, format = DateTime)]
    pub exited_at: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(news: &RelayNews, json: &str) {
        assert_eq!(serde_json::to_string(news).expect("JSON"), json);
        let back: RelayNews = serde_json::from_str(json).expect("the same frame");
        assert_eq!(&back, news);
    }

    #[test]
    fn frames_are_told_apart_by_their_keys() {
        check(
            &RelayNews::Joined {
                stdout: 7,
                stdin: 3,
                started_at: "2026-06-09T11:30:17Z".parse().expect("a time"),
            },
            r#"{"stdout":7,"stdin":3,"started_at":"2026-06-09T11:30:17Z"}"#,
        );
        check(&RelayNews::Accepted { stdin: 9 }, r#"{"stdin":9}"#);
        check(
            &RelayNews::Exited {
                exited: ProcessExit {
                    exit_code: Some(137),
                    reason: Some(Reason::Signal { signal: 9 }),
                    exited_at: "2026-06-09T11:30:18Z".parse().expect("a time"),
                },
            },
            r#"{"exited":{"exit_code":137,"reason":{"kind":"signal","signal":9},"exited_at":"2026-06-09T11:30:18Z"}}"#,
        );
        let control: RelayControl =
            serde_json::from_str(r#"{"type":"close_stdin"}"#).expect("a control frame");
        assert_eq!(control, RelayControl::CloseStdin);
        for wrong in [r#"{"type":"start"}"#, "{}", "[]"] {
            assert!(serde_json::from_str::<RelayControl>(wrong).is_err());
        }
    }
}
