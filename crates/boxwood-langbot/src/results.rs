//! Converts Boxwood's results to the fields of LangBot's clients, with their format of times and output.

use boxwood_api::{ExecResult, ExecStatus, ProcessInfo, SessionDetail, SessionInfo, StreamCapture};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::params::is_python_space;

pub(crate) fn session(info: &SessionInfo) -> Value {
    json!({
        "session_id": info.session_id,
        "backend_name": info.backend_name,
        "backend_session_id": info.backend_session_id,
        "image": info.image,
        "network": info.network,
        "host_path": info.host_path,
        "host_path_mode": info.host_path_mode,
        "mount_path": info.mount_path,
        "persistent": info.persistent,
        "cpus": info.cpus,
        "memory_mb": info.memory_mb,
        "pids_limit": info.pids_limit,
        "read_only_rootfs": info.read_only_rootfs,
        "workspace_quota_mb": info.workspace_quota_mb,
        "created_at": time(info.created_at),
        "last_used_at": time(info.last_used_at),
    })
}

pub(crate) fn detail(detail: &SessionDetail) -> Value {
    let mut response = session(&detail.session);
    if !detail.managed_processes.is_empty() {
        let processes = detail.managed_processes.iter();
        response["managed_processes"] = processes
            .map(|(id, info)| (id.as_str().to_owned(), process(info)))
            .collect();
    }
    if let Some(info) = &detail.managed_process {
        response["managed_process"] = process(info);
    }
    response
}

pub(crate) fn process(info: &ProcessInfo) -> Value {
    json!({
        "session_id": info.session_id,
        "process_id": info.process_id,
        "status": info.status,
        "command": info.command,
        "args": info.args,
        "cwd": info.cwd,
        "env_keys": info.env_keys,
        "attached": info.attached,
        "started_at": time(info.started_at),
        "exited_at": info.exited_at.map(time),
        "exit_code": info.exit_code,
        "stderr_preview": info.stderr_preview,
    })
}

pub(crate) fn exec(result: &ExecResult, timeout_sec: u64) -> Value {
    let stdout = output(&result.stdout, result.stdout_capture);
    let mut stderr = output(&result.stderr, result.stderr_capture);
    if result.status == ExecStatus::TimedOut && stderr.is_empty() {
        stderr = format!("Command timed out after {timeout_sec} seconds.");
    }
    json!({
        "session_id": result.session_id,
        "backend_name": result.backend_name,
        "status": result.status,
        "exit_code": result.exit_code,
        "stdout": stdout,
        "stderr": stderr,
        "duration_ms": result.duration_ms,
    })
}

/// Strips white space like LangBot Box, and adds a notice if output was dropped.
fn output(text: &str, capture: StreamCapture) -> String {
    let text = text.trim_matches(is_python_space);
    if capture.dropped_bytes == 0 {
        return text.to_owned();
    }
    let kept_bytes = capture.total_bytes - capture.dropped_bytes;
    let dropped_bytes = capture.dropped_bytes;
    format!(
        "{text}\n... [raw output clipped at {kept_bytes} bytes, {dropped_bytes} bytes discarded]"
    )
}

/// The format of pydantic: UTC, microseconds, `Z`.
pub(crate) fn time(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// Like `isoformat` in Python: microseconds only if they are not zero.
pub(crate) fn isoformat(at: Timestamp) -> String {
    let format = if at.subsec_microsecond() == 0 && at.subsec_millisecond() == 0 {
        "%Y-%m-%dT%H:%M:%S+00:00"
    } else {
        "%Y-%m-%dT%H:%M:%S.%6f+00:00"
    };
    at.strftime(format).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_microseconds_and_a_z() {
        let at: Timestamp = "2026-06-09T11:30:17.1234567Z".parse().expect("a time");
        assert_eq!(time(at), "2026-06-09T11:30:17.123456Z");
    }

    #[test]
    fn output_is_stripped_like_in_python() {
        let whole = StreamCapture::default();
        assert_eq!(output(" \n\u{1f}\u{a0} a b \t\r\n\u{2028}", whole), "a b");
        let clipped = StreamCapture {
            total_bytes: 10,
            dropped_bytes: 4,
        };
        assert_eq!(
            output("a\n", clipped),
            "a\n... [raw output clipped at 6 bytes, 4 bytes discarded]"
        );
    }

    #[test]
    fn times_are_formatted_like_in_python() {
        let check = |at: &str, expected: &str| {
            assert_eq!(isoformat(at.parse().expect("a time")), expected);
        };
        check("2026-06-09T11:30:17Z", "2026-06-09T11:30:17+00:00");
        check("2026-06-09T11:30:17.5Z", "2026-06-09T11:30:17.500000+00:00");
        check(
            "2026-06-09T11:30:17.000001Z",
            "2026-06-09T11:30:17.000001+00:00",
        );
        check("2026-06-09T11:30:17.0000001Z", "2026-06-09T11:30:17+00:00");
    }
}
