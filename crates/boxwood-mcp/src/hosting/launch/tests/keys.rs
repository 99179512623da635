//! Cache keys, and what installers see and get as options.

use std::fs;

use serde_json::json;

use super::plans::{plan_error, planned, script, spec, tree};
use crate::hosting::launch::*;

fn made_in(image: &str, backend: &str) -> BoxKind {
    BoxKind {
        image: image.to_owned(),
        backend: backend.to_owned(),
        memory_mb: 512,
    }
}

#[track_caller]
fn key(value: serde_json::Value) -> String {
    let install = planned(value).install.expect("there is one");
    let key = install.key(&made_in("", "native"));
    key.expect("it can be read")
}

#[test]
fn the_box_kind_is_part_of_the_key() {
    let plan = planned(json!({"command": "uvx", "args": ["a"]}));
    let install = plan.install.expect("there is one");
    let key = |image: &str, backend: &str| {
        let key = install.key(&made_in(image, backend));
        key.expect("nothing has to be read")
    };
    assert_eq!(key("debian", "native"), key("debian", "native"));
    assert_ne!(key("debian", "native"), key("alpine", "native"));
    assert_ne!(key("debian", "native"), key("debian", "container"));
}

#[test]
fn equal_files_in_different_directories_have_different_keys() {
    for (file, parsed) in [
        ("foo-1.0-py3-none-any.whl", ["uvx", "--from", "FILE", "foo"]),
        ("deps.txt", ["uvx", "--with-requirements", "FILE", "foo"]),
        ("pkg.tgz", ["npx", "--package", "FILE", "foo"]),
    ] {
        let key_in = |root: &Path| {
            let path = root.join(file).display().to_string();
            let args: Vec<_> = parsed[1..]
                .iter()
                .map(|word| word.replace("FILE", &path))
                .collect();
            key(json!({"command": parsed[0], "args": args}))
        };
        let (_one, first) = tree(&[(file, "one")]);
        let (_other, second) = tree(&[(file, "one")]);
        assert_ne!(
            key_in(&first),
            key_in(&second),
            "{file}: not of another directory"
        );
        let before = key_in(&first);
        fs::write(first.join(file), "two").expect("writable");
        assert_ne!(key_in(&first), before, "{file}: made again, it is another");
    }
}

#[test]
fn projects_with_equal_manifests_have_different_keys() {
    let python = [("requirements.txt", "-e .\n"), ("server.py", "")];
    let node = [
        ("package.json", r#"{"dependencies":{"lib":"file:./lib"}}"#),
        ("server.js", ""),
    ];
    for (command, script, files) in [("python", "server.py", python), ("node", "server.js", node)] {
        let key_in = |root: &Path| key(json!({"command": command, "args": [root.join(script)]}));
        let (_one, first) = tree(&files);
        let (_other, second) = tree(&files);
        assert_eq!(key_in(&first), key_in(&first));
        assert_ne!(key_in(&first), key_in(&second), "{command}");
        // Changing the sources requires no new install.
        let before = key_in(&first);
        fs::write(first.join(script), "changed").expect("writable");
        assert_eq!(key_in(&first), before, "{command}");
    }
}

#[test]
fn the_contents_of_a_built_directory_are_part_of_the_key() {
    let (_keep, root) = tree(&[("pyproject.toml", "[build-system]\n"), ("src/a.py", "one")]);
    let key = || {
        let args = json!(["--from", root, "a"]);
        key(json!({"command": "uvx", "args": args}))
    };
    let source = root.join("src/a.py");
    let time = fs::metadata(&source)
        .and_then(|data| data.modified())
        .expect("it has one");
    let before = key();
    fs::write(&source, "two").expect("writable");
    let file = fs::File::options().write(true).open(&source);
    file.and_then(|file| file.set_modified(time))
        .expect("writable");
    assert_ne!(key(), before, "the same size and time, and not the same");
}

#[test]
fn an_installer_sees_the_project_and_not_the_data() {
    let (_one, project) = tree(&[("requirements.txt", "mcp\n"), ("server.py", "")]);
    let (_other, data) = tree(&[("private.db", "")]);
    let plan = planned(json!({"command": "python", "args": [project.join("server.py"), data]}));
    let name = project.file_name().and_then(|name| name.to_str());
    assert_eq!(part_names(plan), [name.expect("text")]);
}

fn part_names(plan: LaunchPlan) -> Vec<String> {
    let parts = plan.install.expect("there is one").parts;
    parts.into_iter().map(|part| part.name).collect()
}

fn parts(value: serde_json::Value) -> Vec<String> {
    part_names(planned(value))
}

#[test]
fn an_installer_does_not_see_siblings_of_the_project() {
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
        let parsed = json!({"command": command, "args": args});
        assert_eq!(parts(parsed), [expected], "{command}");
    }
    // A contained part needs no separate mount.
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
fn an_installer_sees_siblings_that_the_project_refers_to() {
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
        fs::create_dir(&project).expect("writable");
        fs::write(project.join(file), text).expect("writable");
        fs::write(project.join("server.py"), "").expect("writable");
        let args = json!([project.join("server.py"), root.join("private")]);
        let parsed = json!({"command": "python", "args": args});
        assert_eq!(parts(parsed), [""], "{file}");
    }
}

#[test]
fn an_installer_sees_no_link_targets() {
    let (_keep, root) = tree(&[("real/requirements.txt", "mcp\n"), ("private/a.db", "")]);
    std::os::unix::fs::symlink(root.join("real"), root.join("link")).expect("a new link");
    let args = json!(["--from", root.join("link"), "a", root.join("private")]);
    assert_eq!(parts(json!({"command": "uvx", "args": args})), [""]);
}

#[test]
fn data_directories_of_packages_are_not_installed() {
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
        assert_eq!(install.parts, [], "{settings}");
        assert!(install.contents.is_empty(), "{settings}");
    }
}

#[test]
fn virtual_environments_outside_the_workspace_are_not_inspected() {
    let (_keep, root) = tree(&[(".venv/pyvenv.cfg", ""), (".venv/bin/python3", "")]);
    let (_other, elsewhere) = tree(&[("x.txt", "")]);
    let parsed = |settings: &serde_json::Value| {
        json!({
            "command": root.join(".venv/bin/python3"), "args": ["-m", "server"], "box": settings,
        })
    };
    for settings in [json!({}), json!({"host_path": root})] {
        let error = plan_error(parsed(&settings));
        assert!(matches!(error, LaunchError::NoManifest { .. }), "{error}");
    }
    for settings in [
        json!({"host_path_mode": "none"}),
        json!({"host_path": elsewhere}),
    ] {
        planned(parsed(&settings));
    }
}

#[test]
fn lock_options_require_a_lock() {
    const PYPROJECT: &str = "[project]\nname='p'\ndependencies=['a']\n";
    let (_keep, root) = tree(&[("pyproject.toml", PYPROJECT), ("server.py", "")]);
    let parsed =
        |option: &str| json!({"command": "uv", "args": ["run", option, "server.py"], "cwd": root});
    for option in ["--locked", "--frozen"] {
        let error = plan_error(parsed(option));
        assert!(matches!(error, LaunchError::NoLock { .. }), "{error}");
        assert!(error.hint().is_some_and(|hint| hint.contains("uv lock")));
    }
    fs::write(root.join("uv.lock"), "").expect("writable");
    let plan = planned(parsed("--locked"));
    let steps = script(&plan);
    assert!(steps.contains("sync_project '/workspace'\n"), "{steps}");
    for option in ["--all-extras", "--group=dev", "--dev", "--package=p"] {
        let error = plan_error(parsed(option));
        assert!(
            matches!(error, LaunchError::UnknownOption { .. }),
            "{error}"
        );
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
    let (pinned, steps) = basis(&["--exclude-newer", "2025-01-01", "a"]);
    assert_ne!(free, pinned);
    let expected = "install_tool '--exclude-newer' '2025-01-01' 'a'";
    assert!(steps.contains(expected), "{steps}");
}

#[test]
fn options_in_script_dependencies_are_refused_and_not_quoted() {
    let script = "# /// script\n# dependencies = ['--index-url=http://x', 'a']\n# ///\n";
    let (_keep, root) = tree(&[("server.py", script)]);
    let error = plan_error(json!({"command": "uv", "args": ["run", "server.py"], "cwd": root}));
    assert!(matches!(error, LaunchError::BadManifest { .. }), "{error}");
    assert!(!error.to_string().contains("index-url"), "{error}");
}

#[test]
fn equal_installs_have_equal_keys() {
    let base = json!({"command": "uvx", "args": ["a", "--x"]});
    let key = |change: serde_json::Value| {
        let mut parsed = base.clone();
        for (name, value) in change.as_object().expect("it is an object") {
            parsed[name] = value.clone();
        }
        planned(parsed).install.expect("there is one").basis
    };
    let first = key(json!({}));
    // Settings of the server alone do not change the key.
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
    // One package with two programs.
    let named = key(json!({"command": "npx", "args": ["-p", "a", "b"]}));
    assert_ne!(named, key(json!({"command": "npx", "args": ["a"]})));
    let again = plan(&spec(base.clone()), "another python").expect("it can be planned");
    assert_ne!(again.install.expect("there is one").basis, first);
}
