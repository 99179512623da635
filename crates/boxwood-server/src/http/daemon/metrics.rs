//! Prometheus metrics. Label values are bounded: routes are templates, and callers cannot create
//! new ones.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::http::Method;
use boxwood_api::Status;
use boxwood_session::Load;

/// Upper bounds of the exec duration buckets, in milliseconds.
const BUCKETS_MS: [u64; 12] = [1, 2, 5, 10, 25, 50, 100, 250, 1_000, 5_000, 30_000, 120_000];

#[derive(Default)]
pub(crate) struct Metrics {
    requests: Mutex<BTreeMap<(&'static str, String, u16), u64>>,
    connections: AtomicU64,
    connections_refused: AtomicU64,
    exec_buckets: [AtomicU64; BUCKETS_MS.len()],
    exec_count: AtomicU64,
    exec_sum_us: AtomicU64,
}

impl Metrics {
    pub(crate) fn request(&self, method: &Method, route: &str, status: u16) {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (method_label(method), route.to_owned(), status);
        *requests.entry(key).or_default() += 1;
    }

    pub(crate) fn connection_opened(&self) {
        self.connections.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn connection_closed(&self) {
        self.connections.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn connection_refused(&self) {
        self.connections_refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn exec(&self, elapsed: Duration) {
        let micros = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        self.exec_count.fetch_add(1, Ordering::Relaxed);
        self.exec_sum_us.fetch_add(micros, Ordering::Relaxed);
        for (bound, bucket) in BUCKETS_MS.iter().zip(&self.exec_buckets) {
            if micros <= bound * 1000 {
                bucket.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// `mcp_servers`: number of hosted servers per status.
    pub(crate) fn render(
        &self,
        status: &Status,
        load: &Load,
        mcp_servers: &[(&'static str, u64)],
    ) -> String {
        let mut text = String::new();
        // Writing to a `String` cannot fail.
        let _ = self
            .write_numbers(&mut text, status, load)
            .and_then(|()| self.write_requests(&mut text))
            .and_then(|()| self.write_exec(&mut text))
            .and_then(|()| write_mcp_servers(&mut text, mcp_servers));
        text
    }

    fn write_numbers(&self, text: &mut String, status: &Status, load: &Load) -> std::fmt::Result {
        let backend_available = u64::from(status.backend.available);
        let in_progress = load.under_way as u64;
        let bytes_in_flight = load.bytes_in_flight as u64;
        let connections = self.connections.load(Ordering::Relaxed);
        let connections_refused = self.connections_refused.load(Ordering::Relaxed);
        let numbers = [
            (
                "backend_available",
                "Whether boxes can be started.",
                backend_available,
            ),
            ("sessions", "Existing sessions.", status.active_sessions),
            (
                "managed_processes",
                "Running managed processes.",
                status.managed_processes,
            ),
            ("warm_boxes", "Prewarmed boxes.", status.warm_boxes),
            (
                "frozen_sessions",
                "Frozen sessions.",
                status.frozen_sessions,
            ),
            ("connections", "Open connections.", connections),
            (
                "connections_refused_total",
                "Connections refused because of a limit.",
                connections_refused,
            ),
            (
                "turns",
                "Captured commands, starts and file operations in progress.",
                in_progress,
            ),
            (
                "turns_waiting",
                "Commands and file operations waiting in the queue.",
                load.waiting as u64,
            ),
            (
                "streamed_commands",
                "Running streamed commands.",
                load.live as u64,
            ),
            (
                "bytes_in_flight",
                "Memory used by requests, output and responses.",
                bytes_in_flight,
            ),
            (
                "refused_total",
                "Requests refused because of a limit.",
                load.refused,
            ),
        ];
        for (name, help, value) in numbers {
            let kind = if name.ends_with("_total") {
                "counter"
            } else {
                "gauge"
            };
            let name = header(text, name, kind, help)?;
            writeln!(text, "{name} {value}")?;
        }
        Ok(())
    }

    fn write_requests(&self, text: &mut String) -> std::fmt::Result {
        let name = header(text, "http_requests_total", "counter", "Requests answered.")?;
        let requests = self
            .requests
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        for ((method, route, status), count) in requests {
            writeln!(
                text,
                "{name}{{method=\"{method}\",route=\"{route}\",status=\"{status}\"}} {count}"
            )?;
        }
        Ok(())
    }

    fn write_exec(&self, text: &mut String) -> std::fmt::Result {
        let help = "Time from request to result of an exec.";
        let name = header(text, "exec_duration_seconds", "histogram", help)?;
        for (bound, bucket) in BUCKETS_MS.iter().zip(&self.exec_buckets) {
            writeln!(
                text,
                "{name}_bucket{{le=\"{}\"}} {}",
                seconds(bound * 1000),
                bucket.load(Ordering::Relaxed)
            )?;
        }
        let count = self.exec_count.load(Ordering::Relaxed);
        writeln!(text, "{name}_bucket{{le=\"+Inf\"}} {count}")?;
        writeln!(
            text,
            "{name}_sum {}",
            seconds(self.exec_sum_us.load(Ordering::Relaxed))
        )?;
        writeln!(text, "{name}_count {count}")
    }
}

fn write_mcp_servers(text: &mut String, servers: &[(&'static str, u64)]) -> std::fmt::Result {
    if servers.is_empty() {
        return Ok(());
    }
    let name = header(
        text,
        "mcp_servers",
        "gauge",
        "Hosted MCP servers by status.",
    )?;
    for (status, count) in servers {
        writeln!(text, "{name}{{status=\"{status}\"}} {count}")?;
    }
    Ok(())
}

/// Exact; a float would round.
fn seconds(micros: u64) -> String {
    format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000)
}

/// Writes the lines before the values of a metric, and returns its full name.
fn header(
    text: &mut String,
    name: &str,
    kind: &str,
    help: &str,
) -> Result<String, std::fmt::Error> {
    let name = format!("boxwood_{name}");
    writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}")?;
    Ok(name)
}

/// Clients can send arbitrary methods, which must not become label values.
fn method_label(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "GET",
        "HEAD" => "HEAD",
        "POST" => "POST",
        "PUT" => "PUT",
        "PATCH" => "PATCH",
        "DELETE" => "DELETE",
        _ => "other",
    }
}

#[cfg(test)]
mod tests {
    use boxwood_api::BackendInfo;

    use super::*;

    #[test]
    fn metrics_have_the_exposition_format() {
        let metrics = Metrics::default();
        metrics.request(&Method::GET, "/v1/status", 200);
        metrics.request(&Method::GET, "/v1/status", 200);
        metrics.request(&Method::PATCH, "/v1/skills/{name}", 200);
        metrics.exec(Duration::from_micros(1_500));
        let text = metrics.render(
            &Status {
                backend: BackendInfo {
                    name: Some("fake".to_owned()),
                    available: true,
                },
                active_sessions: 3,
                managed_processes: 0,
                session_ttl_sec: 300,
                warm_boxes: 2,
                frozen_sessions: 1,
            },
            &Load {
                waiting: 7,
                ..Load::default()
            },
            &[("connected", 2), ("error", 0)],
        );
        for line in [
            "boxwood_backend_available 1",
            "boxwood_sessions 3",
            "boxwood_warm_boxes 2",
            "boxwood_frozen_sessions 1",
            "boxwood_http_requests_total{method=\"GET\",route=\"/v1/status\",status=\"200\"} 2",
            "boxwood_http_requests_total{method=\"PATCH\",route=\"/v1/skills/{name}\",status=\"200\"} 1",
            "boxwood_exec_duration_seconds_bucket{le=\"0.001000\"} 0",
            "boxwood_exec_duration_seconds_bucket{le=\"0.002000\"} 1",
            "boxwood_exec_duration_seconds_bucket{le=\"+Inf\"} 1",
            "boxwood_exec_duration_seconds_sum 0.001500",
            "boxwood_mcp_servers{status=\"connected\"} 2",
            "boxwood_mcp_servers{status=\"error\"} 0",
        ] {
            assert!(text.lines().any(|l| l == line), "{text} lacks {line}");
        }
    }
}
