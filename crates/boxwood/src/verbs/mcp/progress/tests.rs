use serde_json::json;

use super::*;

fn display() -> ProgressDisplay {
    ProgressDisplay {
        is_silent: true,
        active: BTreeMap::new(),
        line: StatusLine::new(false),
    }
}

fn phase(phase: McpPhase, detail: Option<&str>) -> McpProgress {
    McpProgress::Phase {
        phase,
        detail: detail.map(str::to_owned),
    }
}

fn done(status: &str) -> McpProgress {
    let runtime = serde_json::from_value(json!({
        "status": status, "error_message": "no such package\nreally", "error_phase": "dep_install",
        "retry_count": 0, "tool_count": 1, "tools": [], "hint": "look at its name",
    }));
    McpProgress::Done {
        runtime: Box::new(runtime.expect("runtime")),
    }
}

#[test]
fn every_phase_is_printed_once() {
    let mut display = display();
    let install = phase(McpPhase::DepInstall, Some("mcp-server-time"));
    assert_eq!(
        display.lines_for("time", &install),
        ["time: dep_install: mcp-server-time"]
    );
    // Sent again by the next daemon.
    assert_eq!(display.lines_for("time", &install), [""; 0]);
    let start = phase(McpPhase::ProcessStart, None);
    assert_eq!(display.lines_for("time", &start), ["time: process_start"]);
    assert_eq!(display.lines_for("time", &done("connected")), [""; 0]);
    assert!(display.active.is_empty());
}

#[test]
fn a_failure_includes_the_last_lines_of_the_installer() {
    let mut display = display();
    display.update("time", &phase(McpPhase::DepInstall, None));
    for number in 0..30 {
        display.update(
            "time",
            &McpProgress::Output {
                line: format!("line {number}"),
            },
        );
    }
    assert_eq!(
        status_text(&display.active),
        "… time dep_install 1s: line 29"
    );
    let lines = display.lines_for("time", &done("error"));
    assert_eq!(lines.len(), KEPT_LINES + 3);
    assert_eq!(lines[0], "  | line 10");
    assert_eq!(
        lines[KEPT_LINES..],
        [
            "time: failed in dep_install: no such package",
            "  really",
            "hint: look at its name"
        ]
    );
}

#[test]
fn notices_are_printed_at_the_end() {
    let mut update = done("connected");
    let McpProgress::Done { runtime } = &mut update else {
        panic!("it is done");
    };
    runtime.notices = vec!["network is locked to off".to_owned()];
    assert_eq!(
        display().lines_for("time", &update),
        ["time: network is locked to off"]
    );
}

#[test]
fn a_waiting_server_shows_the_reason() {
    let mut display = display();
    display.update("time", &phase(McpPhase::McpInit, None));
    let queued = McpProgress::Waiting {
        why: "queued until others have started".to_owned(),
        retry_count: 0,
        until: None,
    };
    assert_eq!(
        display.lines_for("time", &queued),
        ["time: queued until others have started"]
    );
    assert!(display.active.is_empty());
    let now = Timestamp::UNIX_EPOCH;
    let until = now + Duration::from_millis(1990);
    assert_eq!(
        waiting_line(
            "time",
            "failed in mcp_init: no key\nat all",
            Some(until),
            now
        ),
        "time: failed in mcp_init: no key; next attempt in 2s"
    );
}

#[test]
fn several_servers_share_the_progress_line() {
    let mut display = display();
    display.update("a", &phase(McpPhase::McpInit, None));
    display.update("b", &phase(McpPhase::DepInstall, None));
    assert_eq!(
        status_text(&display.active),
        "… 2 servers starting; a mcp_init 1s; b dep_install 1s"
    );
}

#[test]
fn the_last_line_shows_the_status() {
    let McpProgress::Done { runtime } = done("connected") else {
        panic!("it is done");
    };
    assert_eq!(outcome_line("time", &runtime), "time connected, 1 tool");
}
