//! What the name of an install depends on, and what installers get to see and are asked for.

use std::fs;

use serde_json::json;

use super::super::*;
use super::plans::{plan_error, planned, script, spec, tree};

fn made_in(image: &str, backend: &str) -> BoxKind {
    BoxKind {
        image: image.to_owned(),
        backend: backend.to_owned(),
        memory_mb: 512,
    }
}

/// The key of what is installed from `root`, which is its own workspace.
#[track_caller]
fn key_in(root: &Path, value: serde_json::Value) -> String {
    let install = planned(value).install.expect("there is one");
    let key = install.key(&made_in("", "native"), Some(root));
    key.expect("it can be read")
}

#[test]
fn the_box_that_an_install_is_made_in_decides_too() {
    let plan = planned(json!({"command": "uvx", "args": ["a"]}));
    let install = plan.install.expect("there is one");
    let key = |image: &str, backend: &str| {
        let key = install.key(&made_in(image, backend), None);
        key.expect("nothing has to be read")
    };
    assert_eq!(key("debian", "native"), key("debian", "native"));
    assert_ne!(key("debian", "native"), key("alpine", "native"));
    assert_ne!(key("debian", "native"), key("debian", "container"));
}

#[test]
fn a_file_of_one_directory_is_never_installed_as_that_of_another() {
    for (file, asked) in [
        ("foo-1.0-py3-none-any.whl", ["uvx", "--from", "FILE", "foo"]),
        ("deps.txt", ["uvx", "--with-requirements", "FILE", "foo"]),
        ("pkg.tgz", ["npx", "--package", "FILE", "foo"]),
    ] {
        let key = |root: &Path| {
            let path = root.join(file).display().to_string();
            let args: Vec<_> = asked[1..]
                .iter()
                .map(|word| word.replace("FILE", &path))
                .collect();
            key_in(root, json!({"command": asked[0], "args": args}))
        };
        let (_one, first) = tree(&[(file, "one")]);
        let (_other, second) = tree(&[(file, "one")]);
        assert_ne!(
            key(&first),
            key(&second),
            "{file}: not of another directory"
        );
        let before = key(&first);
        fs::write(first.join(file), "two").expect("it is ours");
        assert_ne!(key(&first), before, "{file}: made again, it is another");
    }
}

#[test]
fn projects_with_equal_manifests_share_nothing() {
    let python = [("requirements.txt", "-e .\n"), ("server.py", "")];
    let node = [
        ("package.json", r#"{"dependencies":{"lib":"file:./lib"}}"#),
        ("server.js", ""),
    ];
    for (command, script, files) in [("python", "server.py", python), ("node", "server.js", node)] {
        let key = |root: &Path| {
            key_in(
                root,
                json!({"command": command, "args": [root.join(script)]}),
            )
        };
        let (_one, first) = tree(&files);
        let (_other, second) = tree(&files);
        assert_eq!(key(&first), key(&first));
        assert_ne!(key(&first), key(&second), "{command}");
        // Whoever works on the sources does not wait for an install each time.
        let before = key(&first);
        fs::write(first.join(script), "changed").expect("it is ours");
        assert_eq!(key(&first), before, "{command}");
    }
}

#[test]
fn a_built_directory_counts_by_what_is_in_it() {
    let (_keep, root) = tree(&[("pyproject.toml", "[build-system]\n"), ("src/a.py", "one")]);
    let key = || {
        let args = json!(["--from", root, "a"]);
        key_in(&root, json!({"command": "uvx", "args": args}))
    };
    let source = root.join("src/a.py");
    let time = fs::metadata(&source)
        .and_then(|data| data.modified())
        .expect("it has one");
    let before = key();
    fs::write(&source, "two").expect("it is ours");
    let file = fs::File::options().write(true).open(&source);
    file.and_then(|file| file.set_modified(time))
        .expect("it is ours");
    assert_ne!(key(), before, "the same size and time, and not the same");
}

#[test]
fn an_installer_sees_the_project_and_not_what_it_works_on() {
    let (_one, project) = tree(&[("requirements.txt", "mcp\n"), ("server.py", "")]);
    let (_other, data) = tree(&[("private.db", "")]);
    let plan = planned(json!({"command": "python", "args": [project.join("server.py"), data]}));
    let name = project.file_name().and_then(|name| name.to_str());
    let parts = plan.install.expect("there is one").parts;
    assert_eq!(parts, [name.expect("text")]);
}

fn parts(value: serde_json::Value) -> Vec<String> {
    planned(value).install.expect("there is one").parts
}

#[test]
fn an_installer_sees_the_project_and_not_what_lies_beside_it() {
    let (_keep, root) = tree(&[
        ("py/requirements.txt", "mcp\n"),
        ("py/src/server.py", ""),
        ("js/package.json", r#"{"dependencies":{"zod":"3"}}"#),
        ("js/server.js", ""),
        ("lists/all.txt", "mcp\n"),
        ("private/a.db", ""),
    ]);
    let data = root.join("private");
    for (command, args, expected) in [
        ("python", json!([root.join("py/src/server.py"), data]), "py"),
        ("node", json!([root.join("js/server.js"), data]), "js"),
        ("uvx", json!(["--from", root.join("py"), "a", data]), "py"),
        (
            "uvx",
            json!(["--with-requirements", root.join("lists/all.txt"), "a", data]),
            "lists",
        ),
    ] {
        let asked = json!({"command": command, "args": args});
        assert_eq!(parts(asked), [expected], "{command}");
    }
    // What lies in another part is seen with it.
    let both = json!([
        "run",
        "--directory",
        root.join("py"),
        "--with-editable",
        root.join("py/src"),
        "a",
        data,
    ]);
    assert_eq!(parts(json!({"command": "uv", "args": both})), ["py"]);
}

#[test]
fn an_installer_sees_what_lies_beside_a_project_that_names_it() {
    for (file, text) in [
        ("requirements.txt", "-e ../library\n"),
        ("setup.py", "open(os.path.join(here, '..', 'VERSION'))"),
        (
            "pyproject.toml",
            "[project]\nname='a'\n[tool.uv.sources]\nb = { workspace = true }\n",
        ),
    ] {
        let (_keep, root) = tree(&[("server.py", ""), ("private/a.db", "")]);
        let project = root.join("project");
        fs::create_dir(&project).expect("it is ours");
        fs::write(project.join(file), text).expect("it is ours");
        fs::write(project.join("server.py"), "").expect("it is ours");
        let args = json!([project.join("server.py"), root.join("private")]);
        let asked = json!({"command": "python", "args": args});
        assert_eq!(parts(asked), [""], "{file}");
    }
}

#[test]
fn an_installer_is_not_led_by_a_link_of_the_copy() {
    let (_keep, root) = tree(&[("real/requirements.txt", "mcp\n"), ("private/a.db", "")]);
    std::os::unix::fs::symlink(root.join("real"), root.join("link")).expect("it is new");
    let args = json!(["--from", root.join("link"), "a", root.join("private")]);
    assert_eq!(parts(json!({"command": "uvx", "args": args})), [""]);
}

#[test]
fn a_directory_that_a_package_works_on_is_not_installed_for() {
    let (_keep, data) = tree(&[
        ("package.json", r#"{"dependencies":{"zod":"3"}}"#),
        ("src/index.ts", ""),
    ]);
    let package = "@modelcontextprotocol/server-filesystem";
    for settings in [json!({}), json!({"host_path_mode": "rw"})] {
        let plan =
            planned(json!({"command": "npx", "args": ["-y", package, data], "box": settings}));
        assert_eq!(plan.args, ["/workspace"]);
        assert!(
            !script(&plan).contains("install_node_project"),
            "{settings}"
        );
        let install = plan.install.expect("there is one");
        assert_eq!(install.parts, [""; 0], "{settings}");
        assert!(install.contents.is_empty(), "{settings}");
    }
    // A script of it is another matter: it is started, and needs its modules.
    let plan = planned(json!({"command": "npx", "args": ["tsx", data.join("src/index.ts")]}));
    assert!(script(&plan).contains("install_node_project"));
    assert_eq!(plan.install.expect("there is one").parts, [""]);
}

#[test]
fn what_an_environment_holds_is_only_read_where_the_box_may_see_it() {
    let (_keep, root) = tree(&[
        ("server.py", ""),
        (".venv/bin/python3", ""),
        (
            ".venv/lib/python3.11/site-packages/mcp-1.30.0.dist-info/METADATA",
            "",
        ),
    ]);
    let (_other, elsewhere) = tree(&[("x.txt", "")]);
    for (settings, is_read) in [
        (json!({}), true),
        (json!({"host_path": root}), true),
        (json!({"host_path_mode": "none"}), false),
        (json!({"host_path": elsewhere}), false),
    ] {
        let plan = planned(json!({
            "command": root.join(".venv/bin/python3"), "args": ["-m", "server"], "box": settings,
        }));
        let install = plan.install.map(|install| install.script);
        let shown = install.unwrap_or_default().contains("mcp==1.30.0");
        assert_eq!(shown, is_read, "{settings}");
    }
}

#[test]
fn what_is_asked_of_a_lock_is_never_guessed() {
    const PYPROJECT: &str = "[project]\nname='p'\ndependencies=['a']\n";
    let (_keep, root) = tree(&[("pyproject.toml", PYPROJECT), ("server.py", "")]);
    let asked =
        |option: &str| json!({"command": "uv", "args": ["run", option, "server.py"], "cwd": root});
    for option in ["--locked", "--frozen", "--all-extras", "--group=dev"] {
        let error = plan_error(asked(option));
        assert!(matches!(error, LaunchError::NoLock { .. }), "{error}");
        assert!(error.hint().is_some_and(|hint| hint.contains("uv lock")));
    }
    fs::write(root.join("uv.lock"), "").expect("it is ours");
    let plan = planned(asked("--group=dev"));
    let steps = script(&plan);
    assert!(
        steps.contains("sync_project '/workspace' '--group=dev'"),
        "{steps}"
    );
    assert!(steps.contains("fail '`--group=dev` needs uv"), "{steps}");
}

#[test]
fn what_goes_by_a_lock_is_never_what_was_got_without_one() {
    let (_keep, root) = tree(&[
        ("pyproject.toml", "[project]\nname='a'\n"),
        ("uv.lock", ""),
        ("server.py", ""),
    ]);
    let basis = |options: &[&str]| {
        let words = [&["run"], options, &["server.py"]].concat();
        let plan = planned(json!({"command": "uv", "args": words, "cwd": root}));
        plan.install.expect("there is one").basis
    };
    for option in ["--locked", "--frozen"] {
        assert_ne!(basis(&[option]), basis(&[]), "{option}");
    }
}

#[test]
fn pins_reach_the_installer_and_the_key() {
    let basis = |line: &[&str]| {
        let plan = planned(json!({"command": "uvx", "args": line}));
        let steps = script(&plan).to_owned();
        (plan.install.expect("there is one").basis, steps)
    };
    let (free, _) = basis(&["a"]);
    let (pinned, steps) = basis(&["--exclude-newer", "2025-01-01", "--no-build", "a"]);
    assert_ne!(free, pinned);
    let expected = "install_tool '--exclude-newer' '2025-01-01' '--only-binary' ':all:' 'a'";
    assert!(steps.contains(expected), "{steps}");
    // In a project npm is told by variables.
    let (_keep, root) = tree(&[
        ("package.json", r#"{"dependencies":{"zod":"3"}}"#),
        ("index.js", ""),
    ]);
    let plan = planned(json!({
        "command": "npx", "args": ["--ignore-scripts", "--registry=https://x", "tsx", root.join("index.js")],
    }));
    let steps = script(&plan);
    assert!(
        steps.contains("export npm_config_ignore_scripts='true'\n"),
        "{steps}"
    );
    assert!(
        steps.contains("export npm_config_registry='https://x'\n"),
        "{steps}"
    );
}

#[test]
fn an_option_among_a_projects_dependencies_is_refused_and_not_quoted() {
    let pyproject = "[project]\nname='p'\ndependencies=['--index-url=http://x', 'a']\n";
    let script = "# /// script\n# dependencies = ['-e .']\n# ///\n";
    let (_one, project) = tree(&[("pyproject.toml", pyproject), ("server.py", "")]);
    let (_other, alone) = tree(&[("server.py", script)]);
    for root in [project, alone] {
        let error = plan_error(json!({"command": "uv", "args": ["run", "server.py"], "cwd": root}));
        assert!(matches!(error, LaunchError::BadManifest { .. }), "{error}");
        assert!(!error.to_string().contains("index-url"), "{error}");
    }
}

#[test]
fn the_key_is_the_same_only_for_the_same_install() {
    let base = json!({"command": "uvx", "args": ["a", "--x"]});
    let key = |change: serde_json::Value| {
        let mut asked = base.clone();
        for (name, value) in change.as_object().expect("it is an object") {
            asked[name] = value.clone();
        }
        planned(asked).install.expect("there is one").basis
    };
    let first = key(json!({}));
    // What only the server sees does not count.
    for same in [
        json!({"args": ["a", "--other"]}),
        json!({"env": {"TOKEN": "t"}}),
        json!({"command": "/somewhere/uvx"}),
        json!({"box": {"memory_mb": 64, "profile": "offline_readonly", "network": "off"}}),
        json!({"cwd": "/nowhere"}),
    ] {
        assert_eq!(key(same.clone()), first, "{same}");
    }
    for other in [
        json!({"args": ["b"]}),
        json!({"args": ["a==1"]}),
        json!({"args": ["--python", "3.12", "a"]}),
        json!({"args": ["--index-url", "https://x", "a"]}),
        json!({"with": ["mcp<2"]}),
        json!({"box": {"env": {"A": "b"}}}),
        json!({"env": {"UV_INDEX_URL": "https://x"}}),
        json!({"command": "npx"}),
    ] {
        assert_ne!(key(other.clone()), first, "{other}");
    }
    // One package, and three programs to start.
    let ways = [
        key(json!({"command": "npx", "args": ["-p", "a", "b"]})),
        key(json!({"command": "npx", "args": ["-p", "a", "-c", "b"]})),
        key(json!({"command": "npx", "args": ["a"]})),
    ];
    assert!(ways[0] != ways[1] && ways[1] != ways[2] && ways[0] != ways[2]);
    let elsewhere = HostFacts {
        tools: "another python".to_owned(),
    };
    let again = plan(&spec(base.clone()), &elsewhere).expect("it can be planned");
    assert_ne!(again.install.expect("there is one").basis, first);
}
