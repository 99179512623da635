//! Responses of the daemon. Clients of LangBot Box read the keys that it had; Boxwood adds more.

use std::collections::BTreeMap;

use boxwood_api::{
    BackendInfo, ExecResult, ExecStatus, IsolationLabel, Mechanism, MountMode, Network,
    NetworkIsolation, ProcessId, ProcessInfo, ProcessStatus, Reason, SessionDetail, SessionId,
    SessionInfo, Status, StreamCapture,
};

fn session_id() -> SessionId {
    SessionId::new("群/person:a b").expect("an id")
}

fn session() -> SessionInfo {
    SessionInfo {
        session_id: session_id(),
        backend_name: "native".to_owned(),
        backend_session_id: "7".to_owned(),
        incarnation: 3,
        profile: "default".to_owned(),
        image: "host".to_owned(),
        network: Network::Off,
        host_path: None,
        host_path_mode: MountMode::Rw,
        mount_path: "/workspace".to_owned(),
        extra_mounts: Vec::new(),
        persistent: false,
        cpus: 1.0,
        memory_mb: 512,
        pids_limit: 128,
        read_only_rootfs: true,
        workspace_quota_mb: 0,
        created_at: "2026-06-09T11:30:17.123456Z".parse().expect("a time"),
        last_used_at: "2026-06-09T11:30:18Z".parse().expect("a time"),
        adopted_at: None,
        frozen: false,
        isolation: IsolationLabel {
            backend: "native".to_owned(),
            runtime: None,
            network: NetworkIsolation::Off,
            in_force: vec![Mechanism::PidNamespace, Mechanism::Seccomp],
            missing: Vec::new(),
        },
    }
}

fn process() -> ProcessInfo {
    ProcessInfo {
        session_id: session_id(),
        process_id: ProcessId::default(),
        status: ProcessStatus::Exited,
        command: "cat".to_owned(),
        args: Vec::new(),
        cwd: "/workspace".to_owned(),
        env_keys: vec!["A".to_owned()],
        attached: false,
        started_at: "2026-06-09T11:30:17.5Z".parse().expect("a time"),
        exited_at: None,
        exit_code: Some(137),
        reason: Some(Reason::Signal { signal: 9 }),
        stderr_preview: String::new(),
    }
}

#[test]
fn a_session_keeps_its_shape() {
    insta::assert_json_snapshot!("session", session());
}

#[test]
fn processes_are_absent_where_there_are_none() {
    let bare = SessionDetail {
        session: session(),
        config_hash: "64ef5155d6f8c832".to_owned(),
        managed_processes: BTreeMap::new(),
        managed_process: None,
        execs: Vec::new(),
    };
    let json = serde_json::to_value(&bare).expect("JSON");
    assert!(json.get("managed_process").is_none() && json.get("managed_processes").is_none());
    assert_eq!(json["session_id"], "群/person:a b");
    assert_eq!(json["config_hash"], "64ef5155d6f8c832");
    let with_one = SessionDetail {
        managed_processes: [(ProcessId::default(), process())].into(),
        managed_process: Some(process()),
        ..bare
    };
    let text = serde_json::to_string(&with_one).expect("JSON");
    let read: SessionDetail = serde_json::from_str(&text).expect("what was sent can be read");
    assert_eq!(read, with_one);
}

#[test]
fn a_process_keeps_its_shape() {
    insta::assert_json_snapshot!("process", process());
}

#[test]
fn a_result_keeps_its_shape() {
    let result = ExecResult {
        session_id: session_id(),
        backend_name: "native".to_owned(),
        status: ExecStatus::TimedOut,
        exit_code: None,
        stdout: " partial\n".to_owned(),
        stderr: String::new(),
        duration_ms: 2001,
        reason: Some(Reason::Timeout),
        stdout_capture: StreamCapture {
            total_bytes: 9,
            dropped_bytes: 0,
        },
        stderr_capture: StreamCapture::default(),
        notices: Vec::new(),
    };
    insta::assert_json_snapshot!("result", result);
}

#[test]
fn reasons_can_be_branched_on() {
    let reasons = [
        Reason::Timeout,
        Reason::Oom,
        Reason::PidsLimit,
        Reason::DiskQuota,
        Reason::OutputLimit,
        Reason::Seccomp {
            syscall: "mount".to_owned(),
        },
        Reason::NetworkDenied {
            host: "example.org".to_owned(),
        },
        Reason::Signal { signal: 9 },
        Reason::BoxGone,
        Reason::Cancelled,
    ];
    let lines: Vec<String> = reasons
        .iter()
        .map(|reason| serde_json::to_string(reason).expect("JSON"))
        .collect();
    insta::assert_snapshot!("reasons", lines.join("\n"));
}

#[test]
fn health_and_status_have_the_shape_of_langbot_box() {
    let backend = BackendInfo {
        name: None,
        available: false,
    };
    assert_eq!(
        serde_json::to_string(&backend).expect("JSON"),
        r#"{"name":null,"available":false}"#
    );
    let status = Status {
        backend,
        active_sessions: 0,
        managed_processes: 0,
        session_ttl_sec: 300,
        warm_boxes: 0,
        frozen_sessions: 0,
    };
    assert_eq!(
        serde_json::to_string(&status).expect("JSON"),
        r#"{"backend":{"name":null,"available":false},"active_sessions":0,"managed_processes":0,"session_ttl_sec":300,"warm_boxes":0,"frozen_sessions":0}"#
    );
}

#[test]
fn both_spellings_of_utc_are_times() {
    let json = serde_json::to_string(&session()).expect("JSON");
    let iso = json.replace("18Z", "18+00:00");
    assert_ne!(json, iso);
    let read: SessionInfo = serde_json::from_str(&iso).expect("an ISO time");
    assert_eq!(read, session());
}
