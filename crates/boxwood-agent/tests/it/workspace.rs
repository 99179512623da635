use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use boxwood_agent::workspace::{
    ExecWishes, ProcessWishes, Workspace, infer_host_path, rewrite_command, rewrite_path,
    unwrap_venv,
};
use boxwood_api::{MountMode, Network, ProcessId};
use proptest::prelude::*;
use serde_json::{Value, json};

/// A project with a virtual environment as Python makes it: the interpreter is a link.
struct Project {
    _place: tempfile::TempDir,
    root: PathBuf,
}

impl Project {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        let root = place.path().canonicalize().unwrap().join("project");
        for directory in [".venv/bin", "sub/venv/bin", "src", "bin"] {
            std::fs::create_dir_all(root.join(directory)).unwrap();
        }
        for link in [
            ".venv/bin/python",
            ".venv/bin/python3.11",
            "sub/venv/bin/python",
        ] {
            symlink("/bin/sh", root.join(link)).unwrap();
        }
        for file in ["src/server.py", "bin/tool", ".venv/bin/uvicorn"] {
            std::fs::write(root.join(file), "").unwrap();
        }
        Self {
            _place: place,
            root,
        }
    }

    fn path(&self, tail: &str) -> String {
        self.root.join(tail).to_str().unwrap().to_owned()
    }
}

fn strings(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

fn variables(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect()
}

#[test]
fn paths_below_the_host_directory_become_the_boxes() {
    let host = Path::new("/nowhere/project");
    for (path, expected) in [
        ("/nowhere/project", "/workspace"),
        ("/nowhere/project/", "/workspace"),
        ("/nowhere/project/a/b.py", "/workspace/a/b.py"),
        ("/nowhere/project/a/../b.py", "/workspace/b.py"),
        ("/nowhere/projects/a", "/nowhere/projects/a"),
        ("/nowhere/project/../other", "/nowhere/project/../other"),
        ("/etc/hosts", "/etc/hosts"),
        ("", ""),
        ("--verbose", "--verbose"),
        ("src/server.py", "src/server.py"),
    ] {
        assert_eq!(rewrite_path(path, host, "/workspace"), expected, "{path}");
    }
    assert_eq!(
        rewrite_path("/nowhere/project/a", host, "/mnt/p/"),
        "/mnt/p/a"
    );
}

#[test]
fn relative_arguments_are_the_programs_own_wherever_this_process_is() {
    let here = std::env::current_dir().unwrap();
    assert_eq!(
        rewrite_path("Cargo.toml", &here, "/workspace"),
        "Cargo.toml"
    );
    assert_eq!(rewrite_path(".", &here, "/workspace"), ".");
}

#[test]
fn links_are_followed_to_and_from_the_host_directory() {
    let project = Project::new();
    let beside = project.root.with_file_name("beside");
    symlink(&project.root, &beside).unwrap();
    let through = beside.join("src/server.py");
    assert_eq!(
        rewrite_path(through.to_str().unwrap(), &project.root, "/workspace"),
        "/workspace/src/server.py"
    );
    assert_eq!(
        rewrite_path(&project.path("src/server.py"), &beside, "/workspace"),
        "/workspace/src/server.py"
    );
    let alias = project.root.with_file_name("alias.py");
    symlink(project.root.join("src/server.py"), &alias).unwrap();
    assert_eq!(
        rewrite_path(alias.to_str().unwrap(), &project.root, "/workspace"),
        "/workspace/src/server.py"
    );
}

#[test]
fn the_interpreter_of_a_virtual_environment_becomes_the_boxes_own() {
    let project = Project::new();
    for interpreter in [
        ".venv/bin/python",
        ".venv/bin/python3.11",
        "sub/venv/bin/python",
    ] {
        assert_eq!(
            rewrite_command(&project.path(interpreter), &project.root, "/workspace"),
            "python",
            "{interpreter}"
        );
    }
    for (command, expected) in [
        (project.path("bin/tool"), "/workspace/bin/tool"),
        (
            project.path(".venv/bin/uvicorn"),
            "/workspace/.venv/bin/uvicorn",
        ),
        (project.path("bin/python"), "/workspace/bin/python"),
        ("/usr/bin/python3".to_owned(), "/usr/bin/python3"),
        (
            "/usr/lib/.venv/bin/python".to_owned(),
            "/usr/lib/.venv/bin/python",
        ),
        ("python".to_owned(), "python"),
        ("npx".to_owned(), "npx"),
    ] {
        assert_eq!(
            rewrite_command(&command, &project.root, "/workspace"),
            expected
        );
    }
}

#[test]
fn a_virtual_environment_belongs_to_the_directory_above_it() {
    for (directory, expected) in [
        ("/p/.venv/bin", "/p"),
        ("/p/venv/Scripts", "/p"),
        ("/p/env/bin/deeper", "/p"),
        ("/p/sub/.env/bin", "/p/sub"),
        ("/a/.venv/bin/b/.venv/bin", "/a/.venv/bin/b"),
        ("/.venv/bin", "/"),
        ("/p/bin", "/p/bin"),
        ("/p/.venv", "/p/.venv"),
        ("/", "/"),
    ] {
        assert_eq!(
            unwrap_venv(Path::new(directory)),
            Path::new(expected),
            "{directory}"
        );
    }
}

#[test]
fn the_host_directory_is_found_from_the_command_line() {
    let project = Project::new();
    let infer = |command: &str, args: &[&str]| infer_host_path(command, &strings(args));
    assert_eq!(
        infer(&project.path(".venv/bin/python"), &[]),
        Some(project.root.clone())
    );
    assert_eq!(
        infer(
            &project.path(".venv/bin/python"),
            &["-u", &project.path("src/server.py")]
        ),
        Some(project.root.clone())
    );
    assert_eq!(
        infer("python", &[&project.path("src/server.py")]),
        Some(project.root.join("src"))
    );
    assert_eq!(
        infer("python", &[&project.path("src")]),
        Some(project.root.join("src"))
    );
    assert_eq!(infer("python", &["server.py"]), None);
    assert_eq!(infer("python", &[&project.path("missing.py")]), None);
    // Nothing in common but the host.
    assert_eq!(infer("/bin/sh", &[&project.path("src/server.py")]), None);
}

#[test]
fn a_dangling_interpreter_still_tells_its_project() {
    let project = Project::new();
    let interpreter = project.root.join(".venv/bin/python");
    std::fs::remove_file(&interpreter).unwrap();
    symlink("/nowhere/python3.9", &interpreter).unwrap();
    let command = project.path(".venv/bin/python");
    assert_eq!(infer_host_path(&command, &[]), Some(project.root.clone()));
    assert_eq!(
        rewrite_command(&command, &project.root, "/workspace"),
        "python"
    );
}

#[test]
fn a_session_payload_has_what_is_set_and_nothing_else() {
    let mut workspace = Workspace::new("s");
    assert_eq!(
        Value::Object(workspace.session_payload()),
        json!({"session_id": "s", "workdir": "/workspace", "env": {}, "persistent": false})
    );
    workspace.mount_path = "/elsewhere".to_owned();
    workspace.host_path = Some(PathBuf::from("/srv/p"));
    workspace.host_path_mode = MountMode::Ro;
    workspace.env = variables(&[("A", "1")]);
    workspace.network = Some(Network::On);
    workspace.read_only_rootfs = Some(false);
    workspace.image = Some("tools".to_owned());
    workspace.cpus = Some(0.5);
    workspace.memory_mb = Some(256);
    workspace.pids_limit = Some(64);
    workspace.persistent = true;
    assert_eq!(
        Value::Object(workspace.session_payload()),
        json!({
            "session_id": "s", "workdir": "/workspace", "env": {"A": "1"}, "persistent": true,
            "network": "on", "read_only_rootfs": false, "host_path": "/srv/p", "host_path_mode": "ro",
            "image": "tools", "cpus": 0.5, "memory_mb": 256, "pids_limit": 64,
        })
    );
}

#[test]
fn an_exec_payload_adds_the_command_and_leaves_an_empty_environment_out() {
    let mut workspace = Workspace::new("person_test_user");
    workspace.host_path = Some(PathBuf::from("/srv/p"));
    assert_eq!(
        Value::Object(workspace.exec_payload("python run.py", &ExecWishes::default())),
        json!({
            "session_id": "person_test_user", "workdir": "/workspace", "persistent": false,
            "host_path": "/srv/p", "host_path_mode": "rw", "cmd": "python run.py",
        })
    );
    workspace.env = variables(&[("A", "1")]);
    let wishes = ExecWishes {
        workdir: Some("/workspace/sub".to_owned()),
        timeout_sec: Some(60),
        env: Some(variables(&[("B", "2")])),
    };
    let payload = workspace.exec_payload("ls", &wishes);
    assert_eq!(payload["workdir"], "/workspace/sub");
    assert_eq!(payload["timeout_sec"], 60);
    assert_eq!(payload["env"], json!({"B": "2"}));
    let kept = workspace.exec_payload("ls", &ExecWishes::default());
    assert_eq!(kept["env"], json!({"A": "1"}));
    let emptied = ExecWishes {
        env: Some(BTreeMap::new()),
        ..ExecWishes::default()
    };
    assert!(!workspace.exec_payload("ls", &emptied).contains_key("env"));
}

#[test]
fn a_process_payload_has_the_paths_of_the_box() {
    let project = Project::new();
    let mut workspace = Workspace::new("mcp-shared");
    workspace.host_path = Some(project.root.clone());
    let mut wishes = ProcessWishes {
        process_id: Some(ProcessId::default()),
        command: project.path(".venv/bin/python"),
        args: strings(&[&project.path("src/server.py"), "--port", "5"]),
        env: variables(&[("SOURCES", &project.path("src"))]),
        cwd: Some(project.path("src")),
    };
    assert_eq!(
        Value::Object(workspace.process_payload(&wishes)),
        json!({
            "process_id": "default",
            "command": "python",
            "args": ["/workspace/src/server.py", "--port", "5"],
            "env": {"SOURCES": project.path("src")},
            "cwd": "/workspace/src",
        })
    );
    workspace.host_path = None;
    wishes.process_id = None;
    wishes.cwd = None;
    assert_eq!(
        Value::Object(workspace.process_payload(&wishes)),
        json!({
            "command": project.path(".venv/bin/python"),
            "args": [project.path("src/server.py"), "--port", "5"],
            "env": {"SOURCES": project.path("src")},
            "cwd": "/workspace",
        })
    );
}

proptest! {
    #[test]
    fn a_rewritten_path_lies_below_the_mount_and_names_the_same_file(tail in "(/[a-z.]{1,4}){0,5}") {
        let host = Path::new("/nowhere/project");
        let path = format!("/nowhere/project{tail}");
        let found = rewrite_path(&path, host, "/workspace");
        if found == path {
            // Only what climbed out stays.
            prop_assert!(tail.contains(".."));
        } else {
            prop_assert!(found == "/workspace" || found.starts_with("/workspace/"));
            prop_assert!(found.split('/').all(|name| name != ".." && name != "."));
        }
    }
}
