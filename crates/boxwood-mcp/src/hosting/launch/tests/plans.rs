//! Whole plans, after the acceptance list of the system this one follows.

use std::fs;
use std::os::unix::fs::symlink;

use boxwood_api::McpServerName;
use serde_json::json;

use super::super::*;

pub(super) fn spec(value: serde_json::Value) -> McpServerSpec {
    let mut value = value;
    value["name"] = json!("test");
    serde_json::from_value(value).expect("it is well formed")
}

fn facts() -> HostFacts {
    HostFacts {
        tools: "fixed".to_owned(),
    }
}

#[track_caller]
pub(super) fn planned(value: serde_json::Value) -> LaunchPlan {
    plan(&spec(value), &facts()).expect("it can be planned")
}

/// A directory with files, each with its text.
pub(super) fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir_in("/tmp").expect("there is room");
    for (name, text) in files {
        let path = directory.path().join(name);
        fs::create_dir_all(path.parent().expect("it has one")).expect("it is ours");
        fs::write(path, text).expect("it is ours");
    }
    let root = paths::real(directory.path());
    (directory, root)
}

pub(super) fn script(plan: &LaunchPlan) -> &str {
    // The functions come first, the steps after them.
    let script = &plan
        .install
        .as_ref()
        .expect("something is installed")
        .script;
    script
        .rsplit_once("\n}\n")
        .map_or(script, |(_, steps)| steps)
}

#[track_caller]
fn assert_staged(plan: &LaunchPlan, from: &Path) {
    match &plan.host_path {
        Some(HostPath::Staged(parts)) if parts.len() == 1 => assert_eq!(parts[0].from, from),
        other => panic!("{other:?}"),
    }
}

fn only_part(plan: &LaunchPlan) -> &Staging {
    match &plan.host_path {
        Some(HostPath::Staged(parts)) => parts.first().expect("there is one"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_plain_command_is_started_as_it_is() {
    let plan = planned(json!({
        "command": "mcp-server", "args": ["--verbose", "relative/path"], "env": {"TOKEN": "t"},
    }));
    assert!(plan.install.is_none());
    assert_eq!(plan.host_path, None);
    let program = plan.program(None).expect("nothing is missing");
    assert_eq!(
        program,
        Program {
            command: "mcp-server".to_owned(),
            args: vec!["--verbose".to_owned(), "relative/path".to_owned()],
            cwd: "/workspace".to_owned(),
            env: [("TOKEN".to_owned(), "t".to_owned())].into(),
            check: None,
        }
    );
}

#[test]
fn command_arguments_and_cwd_are_renamed_when_they_lie_in_the_directory() {
    let (_keep, root) = tree(&[("bin/server", ""), ("data/a.db", ""), ("other", "")]);
    let root = root.to_str().expect("text");
    let plan = planned(json!({
        "command": format!("{root}/bin/server"),
        "args": ["--db", format!("{root}/data/a.db"), format!("--log={root}/log"), "/elsewhere", format!("{root}-two/x")],
        "cwd": format!("{root}/data"),
        "box": {"host_path": root},
    }));
    assert_eq!(plan.command, "/workspace/bin/server");
    let two = format!("{root}-two/x");
    assert_eq!(
        plan.args,
        [
            "--db",
            "/workspace/data/a.db",
            "--log=/workspace/log",
            "/elsewhere",
            &two
        ]
    );
    assert_eq!(plan.cwd, "/workspace/data");
    assert_staged(&plan, Path::new(root));
}

#[test]
fn a_linked_interpreter_of_an_environment_becomes_python_and_the_project_is_staged() {
    let (_keep, root) = tree(&[("src/server.py", ""), ("requirements.txt", "mcp<2\n")]);
    let programs = root.join(".venv/bin");
    fs::create_dir_all(&programs).expect("it is ours");
    symlink("/usr/bin/env", programs.join("python")).expect("it is new");
    let plan = planned(json!({
        "command": programs.join("python"), "args": ["-u", root.join("src/server.py")],
    }));
    assert_staged(&plan, &root);
    assert_eq!(plan.command, "python");
    assert_eq!(plan.args, ["-u", "/workspace/src/server.py"]);
    assert_eq!(plan.cwd, "/workspace");
    let steps = script(&plan);
    assert!(
        steps.contains("install_python '-r' '/workspace/requirements.txt'"),
        "{steps}"
    );
    assert!(
        steps.contains(r#"finish "$mcp/venv/bin/python""#),
        "{steps}"
    );
}

#[test]
fn an_environment_without_a_manifest_is_made_again_from_its_packages() {
    let (_keep, root) = tree(&[
        ("server.py", ""),
        (
            ".venv/lib/python3.11/site-packages/mcp-1.30.0.dist-info/METADATA",
            "",
        ),
    ]);
    let programs = root.join(".venv/bin");
    fs::create_dir_all(&programs).expect("it is ours");
    symlink("/usr/bin/env", programs.join("python3")).expect("it is new");
    let plan = planned(json!({
        "command": programs.join("python3"), "args": [root.join("server.py")],
    }));
    assert!(script(&plan).contains("install_python 'mcp==1.30.0'"));
}

#[test]
fn a_python_without_needs_is_only_looked_for() {
    let (_keep, root) = tree(&[("server.py", "print()")]);
    let plan = planned(json!({"command": "python", "args": [root.join("server.py")]}));
    let steps = script(&plan);
    assert!(
        steps.contains("only_python ''") && !steps.contains("install_python"),
        "{steps}"
    );
    assert_eq!(plan.args, ["/workspace/server.py"]);
    assert_eq!(plan.install.expect("there is one").parts, [""; 0]);

    // Every box with Python has this one, so nobody has to look.
    let plan = planned(json!({"command": "python3", "args": [root.join("server.py")]}));
    assert!(plan.install.is_none());
    assert_eq!((plan.command.as_str(), plan.args.len()), ("python3", 1));
}

#[test]
fn uvx_installs_what_is_asked_for_with_what_goes_with_it() {
    let plan = planned(json!({
        "command": "uvx", "args": ["mcp-server-sqlite", "--db-path", "x.db"], "with": ["mcp<2"],
    }));
    let install = plan.install.as_ref().expect("there is one");
    assert_eq!(install.what, "mcp-server-sqlite");
    assert_eq!(install.parts, [""; 0]);
    let steps = script(&plan);
    assert!(
        steps.contains("install_tool 'mcp-server-sqlite' 'mcp<2'\n"),
        "{steps}"
    );
    assert!(
        steps.contains("python_program 'mcp-server-sqlite'\n"),
        "{steps}"
    );
    assert_eq!(plan.args, ["--db-path", "x.db"]);
    assert_eq!(plan.host_path, None);
}

#[test]
fn a_directory_to_work_on_is_copied_with_its_history() {
    let (_keep, root) = tree(&[(".git/HEAD", ""), ("a.txt", "")]);
    let plan = planned(json!({
        "command": "uvx", "args": ["mcp-server-git", "--repository", root],
    }));
    assert_staged(&plan, &root);
    let staging = only_part(&plan);
    assert_eq!(staging.contents, Contents::Data);
    assert_eq!(plan.args, ["--repository", "/workspace"]);
    let plan = planned(json!({
        "command": "uvx", "args": ["mcp-server-git", "--repository", root],
        "box": {"host_path_mode": "rw"},
    }));
    assert_eq!(plan.host_path, Some(HostPath::Direct { path: root }));
}

#[test]
fn a_directory_to_work_on_keeps_its_history_beside_a_project() {
    let (_one, project) = tree(&[
        ("pyproject.toml", "[project]\nname='a'\ndependencies=[]\n"),
        ("package.json", r#"{"dependencies":{"zod":"3"}}"#),
        ("server.py", ""),
        ("server.js", ""),
        (".venv/bin/python", ""),
        (".venv/pyvenv.cfg", ""),
    ]);
    let (_other, repository) = tree(&[(".git/HEAD", "")]);
    let python = project.join(".venv/bin/python");
    for (command, args) in [
        (
            json!("uv"),
            json!([
                "--directory",
                project,
                "run",
                "a",
                "--repository",
                repository
            ]),
        ),
        (
            json!("python"),
            json!([project.join("server.py"), repository]),
        ),
        (json!(python), json!(["-m", "a", repository])),
        (
            json!("node"),
            json!([project.join("server.js"), repository]),
        ),
        (
            json!("npx"),
            json!(["tsx", project.join("server.js"), repository]),
        ),
        (
            json!("bash"),
            json!([project.join("server.py"), repository]),
        ),
    ] {
        let plan = planned(json!({"command": command, "args": args}));
        let Some(HostPath::Staged(parts)) = &plan.host_path else {
            panic!("{:?}", plan.host_path);
        };
        assert_eq!(parts.len(), 2, "{command}");
        for part in parts {
            let expected = if part.from == project {
                Contents::Project
            } else {
                Contents::Data
            };
            assert_eq!(part.contents, expected, "{command} {}", part.from.display());
        }
    }
    // Nothing that is started lies there.
    for (command, args) in [
        ("mcp-server-git", json!(["--repository", repository])),
        (
            "python",
            json!(["-m", "mcp_server_git", "--repository", repository]),
        ),
    ] {
        let plan = planned(json!({"command": command, "args": args}));
        assert_eq!(only_part(&plan).contents, Contents::Data, "{command}");
    }
}

#[test]
fn npx_writes_a_manifest_in_which_with_overrules_everybody() {
    let plan = planned(json!({
        "command": "npx", "args": ["-y", "@scope/server@1", "stdio"], "with": ["zod@3.22.0"],
    }));
    let steps = script(&plan);
    let manifest = r#"'{"dependencies":{"@scope/server":"1","zod":"3.22.0"},"overrides":{"zod":"3.22.0"},"private":true}'"#;
    assert!(steps.contains(manifest), "{steps}");
    assert!(
        steps.contains("package_program '@scope/server' 'zod'"),
        "{steps}"
    );
    assert_eq!(plan.args, ["stdio"]);
}

#[test]
fn a_node_project_gets_its_modules_and_a_link_to_them() {
    let (_keep, root) = tree(&[
        ("package.json", r#"{"dependencies":{"zod":"3"}}"#),
        ("build/index.js", ""),
    ]);
    let asked = json!({"command": "node", "args": [root.join("build/index.js")]});
    let plan = planned(asked.clone());
    assert_staged(&plan, &root);
    let staging = only_part(&plan);
    assert_eq!(
        staging.links,
        [("node_modules".into(), "/opt/mcp/node_modules".to_owned())]
    );
    assert!(script(&plan).contains("install_node_project '/workspace' '{}' '{}'"));
    assert_eq!(plan.args, ["/workspace/build/index.js"]);

    let mut direct = asked.clone();
    direct["box"] = json!({"host_path_mode": "rw"});
    let error = plan_error(direct);
    assert!(
        error
            .hint()
            .is_some_and(|hint| hint.contains("npm install")),
        "{error}"
    );

    fs::create_dir(root.join("node_modules")).expect("it is ours");
    let plan = planned(asked);
    assert!(!script(&plan).contains("install_node_project"));
}

#[track_caller]
pub(super) fn plan_error(value: serde_json::Value) -> LaunchError {
    plan(&spec(value), &facts()).expect_err("it cannot be planned")
}

#[test]
fn uv_run_installs_a_project_from_its_lock_where_uv_is() {
    const PYPROJECT: &str =
        "[build-system]\nrequires=['hatchling']\n[project]\nname='p'\nrequires-python='>=3.10'\n";
    let (_keep, root) = tree(&[
        ("p/pyproject.toml", PYPROJECT),
        ("p/uv.lock", ""),
        ("p/src/p/__init__.py", ""),
    ]);
    let plan = planned(json!({
        "command": "uv", "args": ["--directory", root.join("p"), "run", "--extra", "more", "p", "--x"],
    }));
    assert_staged(&plan, &root.join("p"));
    let steps = script(&plan);
    assert!(steps.contains("make_venv '>=3.10'"), "{steps}");
    assert!(
        steps.contains("sync_project '/workspace' '--extra' 'more'"),
        "{steps}"
    );
    assert!(
        steps.contains("install_python '-e' '/workspace[more]'"),
        "{steps}"
    );
    assert!(steps.contains("any_program 'p'"), "{steps}");
    assert_eq!(plan.args, ["--x"]);
    assert_eq!(plan.cwd, "/workspace");

    // Used as it is, it is built from a copy: nothing is written into somebody's directory.
    let plan = planned(json!({
        "command": "uv", "args": ["--directory", root.join("p"), "run", "p"],
        "box": {"host_path_mode": "rw"},
    }));
    let steps = script(&plan);
    assert!(steps.contains("copy_project '/workspace'"), "{steps}");
    assert!(
        steps.contains(r#"install_python "$tmp/source"''"#),
        "{steps}"
    );
}

#[test]
fn what_the_clients_of_the_python_sdk_write_is_understood() {
    let (_keep, root) = tree(&[("server.py", "")]);
    let plan = planned(json!({
        "command": "/home/somebody/.local/bin/uv",
        "args": ["run", "--with", "mcp[cli]", "mcp", "run", root.join("server.py")],
    }));
    assert_staged(&plan, &root);
    let steps = script(&plan);
    assert!(steps.contains("install_python 'mcp[cli]'"), "{steps}");
    assert!(steps.contains("any_program 'mcp'"), "{steps}");
    assert_eq!(plan.args, ["run", "/workspace/server.py"]);
}

#[test]
fn a_script_with_its_own_metadata_is_enough() {
    let (_keep, root) = tree(&[(
        "server.py",
        "# /// script\n# dependencies = [\"mcp<2\", \"it's\"]\n# ///\n",
    )]);
    let plan = planned(json!({
        "command": "uv", "args": ["run", "server.py"], "cwd": root,
    }));
    assert_eq!(plan.cwd, "/workspace");
    let steps = script(&plan);
    assert!(
        steps.contains(r"install_python 'mcp<2' 'it'\''s'"),
        "{steps}"
    );
}

#[test]
fn secrets_of_the_server_are_not_shown_to_the_installer() {
    let plan = planned(json!({
        "command": "npx", "args": ["a"],
        "env": {"API_KEY": "secret", "NPM_CONFIG_REGISTRY": "https://x", "https_proxy": "http://p"},
        "box": {"env": {"SHOWN": "1"}},
    }));
    let install = plan.install.expect("there is one");
    let names: Vec<_> = install.env.keys().map(String::as_str).collect();
    assert_eq!(names, ["NPM_CONFIG_REGISTRY", "SHOWN", "https_proxy"]);
    assert!(!install.script.contains("secret"));
    assert_eq!(plan.env["API_KEY"], "secret");
}

#[test]
fn variables_of_the_box_reach_the_process_and_its_own_win() {
    let plan = planned(json!({
        "command": "server", "env": {"MODE": "mine"}, "box": {"env": {"MODE": "any", "PLACE": "box"}},
    }));
    assert_eq!(plan.env["MODE"], "mine");
    assert_eq!(plan.env["PLACE"], "box");
}

#[test]
fn a_server_that_writes_beside_its_code_is_sent_to_the_workspace() {
    let memory =
        json!({"command": "npx", "args": ["-y", "@modelcontextprotocol/server-memory@1.0"]});
    let set = |more: serde_json::Value| {
        let mut all = memory.clone();
        let fields = all.as_object_mut().expect("an object");
        fields.extend(more.as_object().expect("an object").clone());
        all
    };
    let plan = planned(memory.clone());
    assert_eq!(plan.env["MEMORY_FILE_PATH"], "/workspace/memory.jsonl");
    assert!(notice(&spec(memory.clone())).is_some());
    let own = set(json!({"env": {"MEMORY_FILE_PATH": "/workspace/mine"}}));
    assert_eq!(
        planned(own.clone()).env["MEMORY_FILE_PATH"],
        "/workspace/mine"
    );
    assert_eq!(notice(&spec(own)), None);
    let other = planned(json!({"command": "npx", "args": ["another-server"]}));
    assert!(other.env.is_empty());
}

#[test]
fn whatever_is_asked_for_stays_a_word_of_the_script() {
    for hostile in ["a'; touch x; '", "$(id)", "`id`", "a b", "a;b", "a\"b"] {
        let plan = planned(json!({
            "command": "uvx", "args": ["--from", hostile, "tool"], "with": [hostile],
        }));
        let quoted = quote::quote(hostile);
        assert!(script(&plan).contains(&format!("install_tool {quoted} {quoted}\n")));
        let plan = planned(json!({"command": "npx", "args": ["-p", "a", hostile]}));
        assert!(script(&plan).contains(&format!("node_program {quoted}\n")));
    }
}

#[test]
fn the_directory_that_is_asked_for_has_to_be_there() {
    let (_keep, root) = tree(&[("file", "")]);
    for path in [
        "/no/such/directory".into(),
        root.join("file"),
        "relative".into(),
    ] {
        let error = plan_error(json!({"command": "x", "box": {"host_path": path}}));
        assert_eq!(
            error.to_string(),
            format!(
                "MCP host_path does not exist or is not a directory: {}",
                path.display()
            )
        );
    }
}

#[test]
fn directories_with_nothing_in_common_are_copied_side_by_side() {
    let (_one, first) = tree(&[("a", "")]);
    let (_other, second) = tree(&[("b", "")]);
    let asked = json!({"command": "npx", "args": ["-y", "server-filesystem", first, second]});
    let plan = planned(asked.clone());
    let Some(HostPath::Staged(parts)) = &plan.host_path else {
        panic!("{:?}", plan.host_path);
    };
    let mut from: Vec<_> = parts.iter().map(|part| part.from.clone()).collect();
    let name = |path: &Path| {
        path.file_name()
            .and_then(|name| name.to_str())
            .map(str::to_owned)
    };
    for part in parts {
        assert_eq!(Some(part.into.clone()), name(&part.from));
    }
    let in_box = |path: &Path| format!("/workspace/{}", name(path).expect("text"));
    assert_eq!(plan.args, [in_box(&first), in_box(&second)]);
    from.sort();
    let mut expected = vec![first, second];
    expected.sort();
    assert_eq!(from, expected);

    let mut direct = asked;
    direct["box"] = json!({"host_path_mode": "rw"});
    let error = plan_error(direct);
    assert!(
        error.hint().is_some_and(|hint| hint.contains("`ro`")),
        "{error}"
    );
}

#[test]
fn a_server_that_is_to_see_nothing_of_the_host_keeps_its_words() {
    let (_keep, root) = tree(&[("file", "")]);
    let plan = planned(json!({"command": "x", "args": [root], "box": {"host_path_mode": "none"}}));
    assert_eq!(plan.host_path, None);
    assert_eq!(plan.args, [root.to_str().expect("text")]);
}

#[test]
fn with_needs_something_to_go_with() {
    let error = plan_error(json!({"command": "server", "with": ["mcp<2"]}));
    assert!(matches!(error, LaunchError::WithNothing { .. }), "{error}");
    let many: Vec<_> = (0..65).map(|index| format!("p{index}")).collect();
    let error = plan_error(json!({"command": "uvx", "args": ["a"], "with": many}));
    assert!(
        matches!(error, LaunchError::TooManyPackages { .. }),
        "{error}"
    );
}

#[test]
fn what_the_install_brought_comes_first_in_the_path() {
    let (_keep, root) = tree(&[(
        ".entry",
        "command=/opt/mcp/venv/bin/a\npath=/opt/mcp/venv/bin\nbox_path=/usr/bin:/bin\nneed=/usr/bin/python3.11\n",
    )]);
    let plan = planned(json!({"command": "uvx", "args": ["a"], "env": {"PATH": "/mine:/bin"}}));
    let program = plan.program(Some(&root)).expect("it is installed");
    assert_eq!(program.command, "/opt/mcp/venv/bin/a");
    assert_eq!(program.env["PATH"], "/opt/mcp/venv/bin:/mine:/bin:/usr/bin");
    assert_eq!(
        program.check.as_deref(),
        Some("[ -x '/usr/bin/python3.11' ]")
    );
    plan.program(None).expect_err("it is not installed");

    let plain = planned(json!({"command": "server", "env": {"PATH": "/mine"}}));
    let program = plain.program(None).expect("nothing is missing");
    assert!(program.env["PATH"].starts_with("/mine:/usr/local/sbin:"));
}

#[test]
fn a_name_never_reaches_the_script() {
    // Two servers share an install, so nothing of one may be in it.
    let mut one = spec(json!({"command": "uvx", "args": ["a"]}));
    let first = plan(&one, &facts()).expect("it can be planned");
    one.name = McpServerName::new("other").expect("it is legal");
    let second = plan(&one, &facts()).expect("it can be planned");
    let parts = |plan: LaunchPlan| plan.install.map(|install| (install.basis, install.script));
    assert_eq!(parts(first), parts(second));
}
