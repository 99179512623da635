//! Launch plans, including the cases of LangBot Box.

use std::fs;
use std::os::unix::fs::symlink;

use boxwood_api::McpServerName;
use serde_json::json;

use crate::hosting::launch::*;

pub(super) fn spec(value: serde_json::Value) -> McpServerSpec {
    let mut value = value;
    value["name"] = json!("test");
    serde_json::from_value(value).expect("it is well formed")
}

/// Tools of the host.
const TOOLS: &str = "fixed";

#[track_caller]
pub(super) fn planned(value: serde_json::Value) -> LaunchPlan {
    plan(&spec(value), TOOLS).expect("it can be planned")
}

/// Creates a directory with files.
pub(super) fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir_in("/tmp").expect("a directory");
    for (name, text) in files {
        let path = directory.path().join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("writable");
        fs::write(path, text).expect("writable");
    }
    let root = workspace::paths::real(directory.path());
    (directory, root)
}

pub(super) fn script(plan: &LaunchPlan) -> &str {
    // The steps follow the function definitions.
    let script = &plan
        .install
        .as_ref()
        .expect("something is installed")
        .script;
    script
        .rsplit_once("\n}\n")
        .map_or(script, |(_, steps)| steps)
}

/// One directory is mounted, as the workspace itself.
#[track_caller]
fn assert_mounted(plan: &LaunchPlan, real: &Path) {
    let expected = HostDirectory {
        name: String::new(),
        real: real.to_owned(),
    };
    assert_eq!(plan.directories, [expected]);
}

#[test]
fn a_plain_command_is_started_as_written() {
    let plan = planned(json!({
        "command": "mcp-server", "args": ["--verbose", "relative/path"], "env": {"TOKEN": "t"},
    }));
    assert!(plan.install.is_none());
    assert_eq!(plan.directories, []);
    let program = plan.program(None).expect("nothing is missing");
    assert_eq!(
        program,
        Program {
            command: "mcp-server".to_owned(),
            args: vec!["--verbose".to_owned(), "relative/path".to_owned()],
            cwd: "/workspace".to_owned(),
            env: [("TOKEN".to_owned(), "t".to_owned())].into(),
        }
    );
}

#[test]
fn paths_in_the_directory_are_mapped() {
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
    assert_mounted(&plan, Path::new(root));
}

#[test]
fn a_linked_interpreter_becomes_python_and_the_project_is_mounted() {
    let (_keep, root) = tree(&[("src/server.py", ""), ("requirements.txt", "mcp<2\n")]);
    let programs = root.join(".venv/bin");
    fs::create_dir_all(&programs).expect("writable");
    symlink("/usr/bin/env", programs.join("python")).expect("a new link");
    let plan = planned(json!({
        "command": programs.join("python"), "args": ["-u", root.join("src/server.py")],
    }));
    assert_mounted(&plan, &root);
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
fn a_virtual_environment_without_manifest_is_refused_with_the_fix() {
    let (_keep, root) = tree(&[
        ("server.py", ""),
        (".venv/pyvenv.cfg", ""),
        (".venv/bin/python3", ""),
    ]);
    let parsed = json!({
        "command": root.join(".venv/bin/python3"), "args": [root.join("server.py")],
    });
    let error = plan_error(parsed.clone());
    assert!(matches!(error, LaunchError::NoManifest { .. }), "{error}");
    assert_eq!(
        error.concerned_directory(),
        Some(root.join(".venv").as_path())
    );
    let hint = error.hint().expect("there is a fix");
    assert!(hint.contains("requirements.txt"), "{hint}");

    let mut listed = parsed;
    listed["with"] = json!(["mcp==1.30.0"]);
    let plan = planned(listed);
    assert!(script(&plan).contains("install_python 'mcp==1.30.0'"));
}

#[test]
fn declared_dependencies_are_installed_with_the_requested_extras() {
    let (_keep, root) = tree(&[
        (
            "pyproject.toml",
            "[project]\nname='x'\ndependencies=['a']\n",
        ),
        ("server.py", ""),
    ]);
    let plan = planned(json!({
        "command": "uv", "args": ["run", "--extra", "more", "--with", "b", "server.py"], "cwd": root,
    }));
    let steps = script(&plan);
    let expected = "install_declared '/workspace/pyproject.toml' '--extra' 'more' 'b'\n";
    assert!(steps.contains(expected), "{steps}");
}

#[test]
fn python_without_dependencies_is_only_located() {
    let (_keep, root) = tree(&[("server.py", "print()")]);
    let plan = planned(json!({"command": "python", "args": [root.join("server.py")]}));
    let steps = script(&plan);
    assert!(
        steps.contains("only_python ''") && !steps.contains("install_python"),
        "{steps}"
    );
    assert_eq!(plan.args, ["/workspace/server.py"]);
    assert_eq!(plan.install.expect("there is one").parts, []);

    // Every box with Python has this interpreter.
    let plan = planned(json!({"command": "python3", "args": [root.join("server.py")]}));
    assert!(plan.install.is_none());
    assert_eq!((plan.command.as_str(), plan.args.len()), ("python3", 1));
}

#[test]
fn uvx_installs_the_package_with_its_extras() {
    let plan = planned(json!({
        "command": "uvx", "args": ["mcp-server-sqlite", "--db-path", "x.db"], "with": ["mcp<2"],
    }));
    let install = plan.install.as_ref().expect("there is one");
    assert_eq!(install.what, "mcp-server-sqlite");
    assert_eq!(install.parts, []);
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
    assert_eq!(plan.directories, []);
}

#[test]
fn a_data_directory_is_mounted_in_both_modes() {
    let (_keep, root) = tree(&[(".git/HEAD", ""), ("a.txt", "")]);
    for mode in ["ro", "rw"] {
        let plan = planned(json!({
            "command": "uvx", "args": ["mcp-server-git", "--repository", root],
            "box": {"host_path_mode": mode},
        }));
        assert_mounted(&plan, &root);
        assert_eq!(plan.args, ["--repository", "/workspace"]);
    }
}

#[test]
fn npx_writes_a_manifest_in_which_with_overrides_all() {
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
fn a_node_project_gets_its_modules() {
    let (_keep, root) = tree(&[
        ("package.json", r#"{"dependencies":{"zod":"3"}}"#),
        ("build/index.js", ""),
    ]);
    let parsed = json!({"command": "node", "args": [root.join("build/index.js")]});
    let plan = planned(parsed.clone());
    assert_mounted(&plan, &root);
    assert!(
        plan.install
            .as_ref()
            .expect("there is one")
            .has_node_modules
    );
    assert!(script(&plan).contains("install_node_project '/workspace' '{}'"));
    assert_eq!(plan.args, ["/workspace/build/index.js"]);

    let mut writable = parsed.clone();
    writable["box"] = json!({"host_path_mode": "rw"});
    let install = planned(writable).install.expect("there is one");
    assert!(install.has_node_modules);

    fs::create_dir(root.join("node_modules")).expect("writable");
    let plan = planned(parsed);
    assert!(!script(&plan).contains("install_node_project"));
}

#[track_caller]
pub(super) fn plan_error(value: serde_json::Value) -> LaunchError {
    plan(&spec(value), TOOLS).expect_err("it cannot be planned")
}

#[test]
fn uv_run_uses_the_lock() {
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
    assert_mounted(&plan, &root.join("p"));
    let steps = script(&plan);
    assert!(steps.contains("make_venv '>=3.10'"), "{steps}");
    assert!(
        steps
            .contains("sync_project '/workspace' '--extra' 'more'\nrefuse_compiled '/workspace'\n"),
        "{steps}"
    );
    assert!(!steps.contains("install_python"), "{steps}");
    assert!(steps.contains("any_program 'p'"), "{steps}");
    assert_eq!(plan.args, ["--x"]);
    assert_eq!(plan.cwd, "/workspace");

    // Builds write beside their sources, so the installer works on a copy.
    assert!(
        steps.starts_with("copy_sources '/opt/mcp-sources/' '/workspace/'\n"),
        "{steps}"
    );
    assert_eq!(plan.env["PYTHONDONTWRITEBYTECODE"], "1");

    let run = json!(["--directory", root.join("p"), "run", "--extra", "more", "p"]);
    let run = json!({"command": "uv", "args": run});
    fs::remove_file(root.join("p/uv.lock")).expect("writable");
    let unlocked = planned(run);
    let steps = script(&unlocked);
    assert!(
        steps.contains("install_python '-e' '/workspace[more]'\nrefuse_compiled '/workspace'\n"),
        "{steps}"
    );
}

#[test]
fn commands_of_the_python_sdk_are_understood() {
    let (_keep, root) = tree(&[("server.py", "")]);
    let plan = planned(json!({
        "command": "/home/user/.local/bin/uv",
        "args": ["run", "--with", "mcp[cli]", "mcp", "run", root.join("server.py")],
    }));
    assert_mounted(&plan, &root);
    let steps = script(&plan);
    assert!(steps.contains("install_python 'mcp[cli]'"), "{steps}");
    assert!(steps.contains("any_program 'mcp'"), "{steps}");
    assert_eq!(plan.args, ["run", "/workspace/server.py"]);
}

#[test]
fn a_script_with_inline_metadata_needs_no_project() {
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
fn the_installer_does_not_see_secrets() {
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
fn process_variables_override_box_variables() {
    let plan = planned(json!({
        "command": "server", "env": {"MODE": "mine"}, "box": {"env": {"MODE": "any", "PLACE": "box"}},
    }));
    assert_eq!(plan.env["MODE"], "mine");
    assert_eq!(plan.env["PLACE"], "box");
}

#[test]
fn server_memory_writes_to_the_workspace() {
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
fn arguments_are_quoted_in_the_script() {
    for hostile in ["a'; touch x; '", "$(id)", "`id`", "a b", "a;b", "a\"b"] {
        let plan = planned(json!({
            "command": "uvx", "args": ["--from", hostile, "tool"], "with": [hostile],
        }));
        let quoted = recipe::shell_quote::quote(hostile);
        assert!(script(&plan).contains(&format!("install_tool {quoted} {quoted}\n")));
        let plan = planned(json!({"command": "npx", "args": ["-p", "a", hostile]}));
        assert!(script(&plan).contains(&format!("node_program {quoted}\n")));
    }
}

#[test]
fn the_host_path_must_exist() {
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
fn unrelated_directories_are_mounted_side_by_side() {
    let (_one, first) = tree(&[("a", "")]);
    let (_other, second) = tree(&[("b", "")]);
    let parsed = json!({"command": "npx", "args": ["-y", "server-filesystem", first, second]});
    let plan = planned(parsed);
    let name = |path: &Path| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.expect("text").to_owned()
    };
    let in_box = |path: &Path| format!("/workspace/{}", name(path));
    assert_eq!(plan.args, [in_box(&first), in_box(&second)]);
    let mut expected = [first, second].map(|real| HostDirectory {
        name: name(&real),
        real,
    });
    expected.sort_by(|one, other| one.real.cmp(&other.real));
    assert_eq!(plan.directories, expected);
}

#[test]
fn host_path_mode_none_keeps_the_arguments() {
    let (_keep, root) = tree(&[("file", "")]);
    let plan = planned(json!({"command": "x", "args": [root], "box": {"host_path_mode": "none"}}));
    assert_eq!(plan.directories, []);
    assert_eq!(plan.args, [root.to_str().expect("text")]);
}

#[test]
fn with_requires_an_install() {
    let error = plan_error(json!({"command": "server", "with": ["mcp<2"]}));
    assert!(matches!(error, LaunchError::WithNothing { .. }), "{error}");
}

#[test]
fn the_install_comes_first_in_path() {
    let (_keep, root) = tree(&[(
        ".entry",
        "command=/opt/mcp/venv/bin/a\npath=/opt/mcp/venv/bin\nbox_path=/usr/bin:/bin\n",
    )]);
    let plan = planned(json!({"command": "uvx", "args": ["a"], "env": {"PATH": "/mine:/bin"}}));
    let program = plan.program(Some(&root)).expect("it is installed");
    assert_eq!(program.command, "/opt/mcp/venv/bin/a");
    assert_eq!(program.env["PATH"], "/opt/mcp/venv/bin:/mine:/bin:/usr/bin");
    plan.program(None).expect_err("it is not installed");

    let plain = planned(json!({"command": "server", "env": {"PATH": "/mine"}}));
    let program = plain.program(None).expect("nothing is missing");
    assert!(program.env["PATH"].starts_with("/mine:/usr/local/sbin:"));
}

#[test]
fn the_server_name_is_not_in_the_script() {
    // The install is shared, so it must not depend on the server.
    let mut one = spec(json!({"command": "uvx", "args": ["a"]}));
    let first = plan(&one, TOOLS).expect("it can be planned");
    one.name = McpServerName::new("other").expect("it is legal");
    let second = plan(&one, TOOLS).expect("it can be planned");
    let parts = |plan: LaunchPlan| plan.install.map(|install| (install.basis, install.script));
    assert_eq!(parts(first), parts(second));
}
