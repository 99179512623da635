//! Live commands: the frames of `/exec/ws` and the events of `/exec/stream`.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use serde_json::Value;
use utoipa::ToSchema;

use crate::{ErrorDetail, ExecStatus, Reason, SessionId, SpecRequest};

/// First byte of a binary frame from the daemon: stdout, or all terminal output.
pub const STDOUT_CHANNEL: u8 = 1;
/// First byte of a binary frame from the daemon: stderr.
pub const STDERR_CHANNEL: u8 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TtySize {
    pub rows: u16,
    pub cols: u16,
}

/// A text frame from the client. `start` is the first frame and is sent once. Binary frames are
/// stdin.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum ExecInput {
    Start {
        /// As for `/exec`. `cmd` is run with `/bin/sh -c` unless `argv` is given.
        #[serde(default)]
        spec: Box<SpecRequest>,
        /// Program and arguments, without a shell.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        argv: Option<Vec<String>>,
        /// Run in a terminal of this size; stdout then carries all output.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tty: Option<TtySize>,
        /// Whether stdin will be sent; otherwise it is `/dev/null`. Always true for a terminal.
        #[serde(default)]
        stdin: bool,
        /// Keep the command running for a while after the client disconnects. Input is then
        /// acknowledged, and `/execs/{exec_id}/ws` resumes the command.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        resumable: bool,
    },
    /// Output up to these offsets has arrived and will not be requested again.
    Ack {
        #[serde(default)]
        stdout: u64,
        #[serde(default)]
        stderr: u64,
    },
    Stdin {
        data: String,
    },
    CloseStdin,
    Signal {
        signal: Signal,
    },
    Resize {
        rows: u16,
        cols: u16,
    },
}

/// A text frame from the daemon. Output is sent in binary frames, whose first byte is the channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ExecOutput {
    Started {
        session_id: SessionId,
        exec_id: u64,
        /// Changes that the profile made to the request.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        notices: Vec<String>,
        /// Bytes of input that the command has accepted. Only with `resumable`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stdin: Option<u64>,
        /// The command is killed after this many seconds, after limits of the profile.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout_sec: Option<u64>,
    },
    /// The first frame of a resumed command: the offsets at which the output starts, and the bytes
    /// of input that the command has accepted.
    Resumed {
        session_id: SessionId,
        exec_id: u64,
        stdout: u64,
        stderr: u64,
        /// Absent if stdin is closed or not counted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        stdin: Option<u64>,
    },
    /// Total bytes of input that are accepted and need not be resent. Only with `resumable`.
    Accepted { stdin: u64 },
    /// The command accepts no more input; further input is discarded.
    StdinClosed,
    /// The last frame of a command.
    Exit(ExecExit),
    /// The command could not be started, or a frame was invalid.
    Error { error: ErrorDetail },
}

/// How a live command exited. Also the data of the `exit` event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ExecExit {
    pub exit_code: Option<i32>,
    pub status: ExecStatus,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    pub duration_ms: u64,
    /// Notices, such as a workspace that exceeds its quota.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
}

/// Data of the events `stdout` and `stderr`; invalid UTF-8 is replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OutputChunk {
    pub data: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SignalRequest {
    pub signal: Signal,
}

/// A signal by number (`15`) or by name (`"TERM"`, `"SIGTERM"`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, ToSchema)]
#[schema(value_type = String, example = "TERM")]
pub struct Signal(i32);

/// Names of the signals 1 to 31 on Linux.
const SIGNALS: [&str; 31] = [
    "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2",
    "PIPE", "ALRM", "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG",
    "XCPU", "XFSZ", "VTALRM", "PROF", "WINCH", "IO", "PWR", "SYS",
];

impl Signal {
    /// `None` for an invalid number.
    pub fn from_number(number: i32) -> Option<Self> {
        (1..=64).contains(&number).then_some(Self(number))
    }

    /// A number, or a name in any case, with or without `SIG`.
    pub fn parse(text: &str) -> Option<Self> {
        if let Ok(number) = text.parse() {
            return Self::from_number(number);
        }
        let name = text.to_ascii_uppercase();
        let name = name.strip_prefix("SIG").unwrap_or(&name);
        let numbered = (1..).zip(SIGNALS);
        let mut matching = numbered.filter(|(_, known)| *known == name);
        matching.next().map(|(number, _)| Self(number))
    }

    pub fn number(self) -> i32 {
        self.0
    }
}

impl Serialize for Signal {
    fn serialize<S: Serializer>(&self, output: S) -> Result<S::Ok, S::Error> {
        output.serialize_i32(self.0)
    }
}

impl<'de> Deserialize<'de> for Signal {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let (signal, shown) = match Value::deserialize(input)? {
            Value::Number(number) => (Self::parse(&number.to_string()), number.to_string()),
            Value::String(text) => (Self::parse(&text), format!("`{text}`")),
            _ => return Err(de::Error::custom("a signal's number or name was expected")),
        };
        signal.ok_or_else(|| de::Error::custom(format!("signal {shown} does not exist")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_read_by_number_or_name() {
        let check = |json: &str, expected: Option<i32>| {
            let got: Result<SignalRequest, _> = serde_json::from_str(json);
            assert_eq!(got.ok().map(|request| request.signal.number()), expected);
        };
        check(r#"{"signal": 15}"#, Some(15));
        check(r#"{"signal": "15"}"#, Some(15));
        check(r#"{"signal": "TERM"}"#, Some(15));
        check(r#"{"signal": "sigkill"}"#, Some(9));
        check(r#"{"signal": 0}"#, None);
        check(r#"{"signal": -9}"#, None);
        check(r#"{"signal": 65}"#, None);
        check(r#"{"signal": "NOPE"}"#, None);
        check(r#"{"signal": 15, "x": 1}"#, None);
    }

    #[test]
    fn frames_keep_their_shape() {
        let start: ExecInput = serde_json::from_str(
            r#"{"type":"start","spec":{"cmd":"sh","timeout_sec":9},"tty":{"rows":24,"cols":80}}"#,
        )
        .expect("valid");
        let ExecInput::Start {
            spec,
            tty,
            stdin,
            argv,
            resumable,
        } = start
        else {
            panic!("not a start frame");
        };
        assert_eq!((spec.cmd.as_str(), spec.timeout_sec), ("sh", Some(9)));
        assert_eq!(tty, Some(TtySize { rows: 24, cols: 80 }));
        assert!(!stdin && argv.is_none() && !resumable);
        let exit = ExecOutput::Exit(ExecExit {
            exit_code: Some(0),
            status: ExecStatus::Completed,
            reason: None,
            duration_ms: 3,
            notices: Vec::new(),
        });
        assert_eq!(
            serde_json::to_string(&exit).expect("JSON"),
            r#"{"type":"exit","exit_code":0,"status":"completed","duration_ms":3}"#
        );
        let nonsense: Result<ExecInput, _> = serde_json::from_str(r#"{"type":"nope"}"#);
        assert!(nonsense.is_err());
    }
}
