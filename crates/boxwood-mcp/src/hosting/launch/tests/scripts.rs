//! Install scripts, executed by the host's shell with fake tools.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

use crate::hosting::launch::recipe::script::Recipe;
use crate::hosting::launch::*;

/// A directory in which a script finds only the given tools.
struct Stage {
    directory: tempfile::TempDir,
}

impl Stage {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let tools = directory.path().join("tools");
        fs::create_dir(&tools).expect("writable");
        for tool in [
            "rm", "mkdir", "cat", "mv", "cp", "ln", "chmod", "ls", "tr", "tail", "tee", "head",
            "readlink", "grep", "sed", "sh", "env", "find", "sleep",
        ] {
            let real = ["/usr/bin", "/bin"]
                .iter()
                .map(|directory| Path::new(directory).join(tool))
                .find(|path| path.exists())
                .expect("every system has it");
            std::os::unix::fs::symlink(real, tools.join(tool)).expect("a new link");
        }
        fs::create_dir(directory.path().join("cache")).expect("writable");
        Self { directory }
    }

    fn cache(&self) -> PathBuf {
        self.directory.path().join("cache")
    }

    fn tool(&self, name: &str, script: &str) {
        let path = self.directory.path().join("tools").join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("writable");
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("writable");
    }

    /// A fake uv that records its arguments and creates the programs in `brings`.
    fn uv(&self, brings: &str) {
        let log = self.directory.path().join("log");
        self.tool(
            "uv",
            &format!(
                r#"printf '%s\n' "uv $*" >>'{}'
case "$1" in
venv) for last; do :; done; mkdir -p "$last/bin"; printf '#!/bin/sh\n' >"$last/bin/python"; chmod +x "$last/bin/python" ;;
pip) for name in {brings}; do printf x >"$UV_PROJECT_ENVIRONMENT/bin/$name"; chmod +x "$UV_PROJECT_ENVIRONMENT/bin/$name"; done ;;
esac"#,
                log.display()
            ),
        );
    }

    fn log(&self) -> String {
        fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    fn run(&self, recipe: &Recipe) -> Output {
        let cache = self.cache();
        Command::new("/bin/sh")
            .arg("-c")
            .arg(recipe.script(cache.to_str().expect("text")))
            .env_clear()
            .env("PATH", self.directory.path().join("tools"))
            .env("HOME", self.directory.path())
            .output()
            .expect("there is a shell")
    }

    #[track_caller]
    fn fails(&self, recipe: &Recipe) -> String {
        let output = self.run(recipe);
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{stderr}");
        assert!(!self.cache().join(".entry").exists());
        assert!(!self.cache().join(".tmp").exists(), "it cleans up");
        stderr
    }

    #[track_caller]
    fn succeeds(&self, recipe: &Recipe) -> Entry {
        let output = self.run(recipe);
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        assert!(!self.cache().join(".tmp").exists(), "it cleans up");
        Entry::read(&self.cache()).expect("it says what to run")
    }
}

fn tool_recipe(program: &str, packages: &[&str]) -> Recipe {
    let mut recipe = Recipe::new("test", "test");
    recipe.call("make_venv", [""]);
    recipe.call("install_tool", packages);
    recipe.call("python_program", [program]);
    recipe.line(r#"finish "$program" "$mcp/venv/bin""#);
    recipe
}

fn node_recipe() -> Recipe {
    let mut recipe = Recipe::new("test", "test");
    recipe.line("find_node npm");
    recipe
}

#[test]
fn uv_installs_a_package_and_names_its_program() {
    let stage = Stage::new();
    stage.uv("tool-x other");
    let entry = stage.succeeds(&tool_recipe("tool_x", &["tool_x", "it's<2"]));
    let cache = stage.cache();
    let programs = cache.join("venv/bin");
    assert_eq!(
        entry.command,
        programs.join("tool-x").to_str().map(str::to_owned)
    );
    assert_eq!(entry.path, [programs.to_str().expect("text")]);
    let log = stage.log();
    assert!(log.contains("pip install --python"), "{log}");
    assert!(log.contains("tool_x it's<2"), "{log}");
}

#[test]
fn a_missing_program_is_reported_with_the_available_ones() {
    let stage = Stage::new();
    stage.uv("serve admin");
    let stderr = stage.fails(&tool_recipe("tool", &["tool"]));
    assert!(stderr.contains("no program called `tool`"), "{stderr}");
    assert!(
        stderr.contains("Available programs: admin serve"),
        "{stderr}"
    );
    assert!(stderr.contains("--from"), "{stderr}");
}

#[test]
fn a_failing_installer_ends_the_script_with_its_output() {
    let stage = Stage::new();
    stage.tool(
        "uv",
        r#"[ "$1" != pip ] || { echo "no version of x" >&2; exit 7; }
for last; do :; done; mkdir -p "$last/bin"; printf '#!/bin/sh\n' >"$last/bin/python"; chmod +x "$last/bin/python""#,
    );
    let recipe = tool_recipe("x", &["x"]);
    assert_eq!(stage.run(&recipe).status.code(), Some(1));
    assert_eq!(stage.fails(&recipe), "no version of x\n");
}

#[test]
fn a_newer_python_is_used_if_required() {
    let stage = Stage::new();
    let uv = |has_newer: &str| {
        format!(
            r#"for last; do :; done
case "$*" in
*venv*'>=3.13'*) {has_newer} || {{ echo "no interpreter found" >&2; exit 2; }}; echo 3.13 >"${{0%/*}}/made" ;;
pip*) [ -f "${{0%/*}}/made" ] || {{ echo "the current Python version (3.11.2) does not satisfy Python>=3.13 and x" >&2; exit 1; }}
  printf x >"$UV_PROJECT_ENVIRONMENT/bin/x"; chmod +x "$UV_PROJECT_ENVIRONMENT/bin/x"; exit ;;
esac
mkdir -p "$last/bin"; printf '#!/bin/sh\n' >"$last/bin/python"; chmod +x "$last/bin/python""#
        )
    };
    stage.tool("uv", &uv("false"));
    let stderr = stage.fails(&tool_recipe("x", &["x"]));
    assert!(stderr.contains("does not satisfy Python>=3.13"), "{stderr}");
    assert!(stderr.contains("found no Python >=3.13"), "{stderr}");
    stage.tool("uv", &uv("true"));
    stage.succeeds(&tool_recipe("x", &["x"]));
}

#[test]
fn a_missing_python_is_reported_with_the_search_path() {
    let stage = Stage::new();
    let stderr = stage.fails(&tool_recipe("x", &["x"]));
    assert!(stderr.contains("neither uv nor python3"), "{stderr}");
    assert!(stderr.contains("/tools"), "{stderr}");
    assert!(stderr.contains("box.image"), "{stderr}");
    // Python without pip and venv is not sufficient.
    stage.tool("python3", r#"[ "$1" = -c ]"#);
    let stderr = stage.fails(&tool_recipe("x", &["x"]));
    assert!(stderr.contains("neither pip nor venv"), "{stderr}");
    assert!(stderr.contains("python3-venv"), "{stderr}");
}

#[test]
fn pip_is_used_without_uv() {
    let stage = Stage::new();
    stage.tool(
        "python3",
        r#"case "$*" in
*--target*) echo "no uv for this machine" >&2; exit 1 ;;
"-m venv --without-pip "*) exit 1 ;;
"-m venv "*) mkdir -p "$3/bin"; cat >"$3/bin/python" <<'X'
#!/bin/sh
[ "$3" != install ] || { printf x >"${0%/*}/tool"; chmod +x "${0%/*}/tool"; }
X
chmod +x "$3/bin/python" ;;
esac"#,
    );
    let output = stage.run(&tool_recipe("tool", &["tool"]));
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(stdout.contains("no uv for this machine"), "{stdout}");
    assert!(stdout.contains("continuing with pip"), "{stdout}");
    assert!(output.status.success());
    assert!(stage.cache().join("venv/bin/tool").exists());
}

#[test]
fn an_unreachable_index_is_not_reported_as_a_missing_package() {
    let stage = Stage::new();
    stage.tool(
        "python3",
        r#"case "$*" in
*--target*) echo "WARNING: Retrying after connection broken by 'Error([Errno -3] Temporary failure in name resolution)': /simple/uv/" >&2; exit 1 ;;
esac"#,
    );
    let stderr = stage.fails(&tool_recipe("tool", &["tool"]));
    assert!(
        stderr.contains("cannot be reached from this box"),
        "{stderr}"
    );
    assert!(
        stderr.contains("Temporary failure in name resolution)'. "),
        "{stderr}"
    );
}

#[test]
fn a_missing_node_is_reported_with_a_hint() {
    let stage = Stage::new();
    let stderr = stage.fails(&node_recipe());
    assert!(stderr.contains("no node 18 or newer with npm"), "{stderr}");
    assert!(stderr.contains("box.image"), "{stderr}");
    // An old version does not count.
    stage.tool("node", "echo 16");
    stage.tool("npm", "exit 0");
    let stderr = stage.fails(&node_recipe());
    assert!(stderr.contains("no node 18 or newer with npm"), "{stderr}");
    stage.tool("node", "echo 20");
    let mut recipe = node_recipe();
    recipe.line(r#"finish "$found""#);
    let entry = stage.succeeds(&recipe);
    let command = entry.command.expect("a program");
    assert!(command.ends_with("/tools/node"), "{command}");
}

#[test]
fn python_alone_needs_no_virtual_environment() {
    let stage = Stage::new();
    stage.tool("python3", r#"[ "$1" = -c ]"#);
    let mut recipe = Recipe::new("test", "test");
    recipe.call("only_python", [""]);
    recipe.line(r#"finish "$program""#);
    let entry = stage.succeeds(&recipe);
    assert!(
        entry
            .command
            .is_some_and(|command| command.ends_with("/tools/python3"))
    );
    assert!(!stage.cache().join("venv").exists());
    assert_eq!(entry.path, [""; 0]);
}

#[test]
fn an_interrupted_script_removes_its_files() {
    let stage = Stage::new();
    let mut recipe = Recipe::new("test", "test");
    recipe.line("kill -TERM $$");
    recipe.line("sleep 5");
    stage.fails(&recipe);
}

#[test]
fn registry_passwords_are_not_kept_in_an_install() {
    let stage = Stage::new();
    let project = stage.directory.path().join("project");
    fs::create_dir(&project).expect("writable");
    fs::write(project.join("package.json"), "{}").expect("writable");
    fs::write(project.join(".npmrc"), "//x/:_authToken=secret").expect("writable");
    stage.tool("node", "echo install");
    stage.tool(
        "npm",
        r#"cat .npmrc >"${0%/*}/seen"; mkdir -p node_modules"#,
    );
    let mut recipe = Recipe::new("test", "test");
    let project = project.to_str().expect("text");
    recipe.call("install_node_project", [project, "{}"]);
    recipe.line(r#"finish """#);
    stage.succeeds(&recipe);
    let seen = fs::read_to_string(stage.directory.path().join("tools/seen"));
    assert!(seen.expect("npm ran").contains("secret"));
    assert!(!stage.cache().join(".npmrc").exists());
}

#[test]
fn sources_are_copied_without_history_environments_and_modules() {
    let stage = Stage::new();
    let (from, to) = (
        stage.directory.path().join("from"),
        stage.directory.path().join("to"),
    );
    for file in [
        "pyproject.toml",
        ".npmrc",
        "a b/c.py",
        ".git/HEAD",
        "own/pyvenv.cfg",
        "node_modules/x/index.js",
    ] {
        let path = from.join(file);
        fs::create_dir_all(path.parent().expect("a parent")).expect("writable");
        fs::write(path, file).expect("writable");
    }
    std::os::unix::fs::symlink("/no/such/place", from.join("link")).expect("a new link");
    let mut recipe = Recipe::new("test", "test");
    let paths = [&from, &to].map(|path| path.to_str().expect("text"));
    recipe.call("copy_sources", paths);
    recipe.line("finish ''");
    stage.succeeds(&recipe);
    let mut names: Vec<_> = fs::read_dir(&to)
        .expect("it was made")
        .map(|entry| entry.expect("listed").file_name())
        .collect();
    names.sort();
    assert_eq!(names, [".npmrc", "a b", "link", "pyproject.toml"]);
    let copied = fs::read_to_string(to.join("a b/c.py")).expect("it was copied");
    assert_eq!(copied, "a b/c.py");
}

#[test]
fn modules_compiled_by_an_editable_install_are_refused() {
    let project = tempfile::tempdir().expect("a directory");
    let project = project.path().to_str().expect("text");
    let with_steps = |steps: &[&str]| {
        let mut recipe = Recipe::new("test", "test");
        recipe.line(r#"mkdir -p "$mcp/venv""#);
        for step in steps {
            recipe.line(step.replace("PROJECT", project));
        }
        recipe.call("refuse_compiled", [project]);
        recipe.line(r#"finish """#);
        recipe
    };
    let (venv, compiled) = (r#": >"$mcp/venv/pyvenv.cfg""#, ": >'PROJECT/native.so'");
    // Files of the project itself are older than the environment.
    Stage::new().succeeds(&with_steps(&[compiled, "sleep 0.1", venv]));
    let error = Stage::new().fails(&with_steps(&[venv, "sleep 0.1", compiled]));
    assert!(error.contains("uvx --from DIRECTORY PROGRAM"), "{error}");
}
