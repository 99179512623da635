//! Parsing of typical command lines.

use super::*;

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

#[track_caller]
fn check_tool(line: &str, from: &str, program: &str, args: &str, with: &str) {
    let tool = uvx(&words(line)).expect("it is well formed");
    assert_eq!(tool.from, from);
    assert_eq!(tool.program, program);
    assert_eq!(tool.args, words(args));
    assert_eq!(tool.install.with, words(with));
}

#[test]
fn uvx_installs_one_package_and_runs_one_program() {
    check_tool(
        "mcp-server-time",
        "mcp-server-time",
        "mcp-server-time",
        "",
        "",
    );
    check_tool(
        "mcp-server-time@2026.10.19 --local-timezone UTC",
        "mcp-server-time==2026.10.19",
        "mcp-server-time",
        "--local-timezone UTC",
        "",
    );
    check_tool(
        "--from mcp-server-git==1 --with a,b --with=mcp<2 -q mcp-server-git -r x",
        "mcp-server-git==1",
        "mcp-server-git",
        "-r x",
        "a b mcp<2",
    );
    check_tool(
        "--from git+https://example.org/x server",
        "git+https://example.org/x",
        "server",
        "",
        "",
    );
    check_tool("tool[extra]@latest", "tool[extra]", "tool", "", "");
    check_tool(
        "--with-requirements /a/r.txt t",
        "t",
        "t",
        "",
        "-r /a/r.txt",
    );
}

#[test]
fn index_options_are_passed_on() {
    let options =
        "--default-index https://a/simple --index corp=https://b/simple --prerelease allow";
    let tool = uvx(&words(&format!("-p 3.12 {options} t"))).expect("it is well formed");
    assert_eq!(tool.install.python.as_deref(), Some("3.12"));
    assert_eq!(tool.install.options, words(options));
}

#[test]
fn a_url_needs_a_program_name() {
    let error = uvx(&words("git+https://example.org/x")).expect_err("no program");
    assert!(
        error.to_string().contains("--from PACKAGE PROGRAM"),
        "{error}"
    );
    uvx(&words("--from x ../../bin/sh")).expect_err("a program has no slash");
    uvx(&words("--with --index-url=x t")).expect_err("an option is no package");
}

#[track_caller]
fn run(line: &str) -> ProjectRun {
    match uv(&words(line)).expect("it is well formed") {
        Launcher::Project(run) => run,
        other => panic!("{other:?}"),
    }
}

#[test]
fn uv_run_supports_scripts_modules_and_programs() {
    let script = run("run --with mcp[cli] server.py --port 1");
    assert_eq!(script.target, Target::Python);
    assert_eq!(script.args, words("server.py --port 1"));
    assert_eq!(script.install.with, words("mcp[cli]"));
    let module = run("run -m package --x");
    assert_eq!(module.args, words("-m package --x"));
    let program = run("run --with mcp[cli] mcp run /p/server.py");
    assert_eq!(program.target, Target::Program("mcp".to_owned()));
    assert_eq!(program.args, words("run /p/server.py"));
    let python = run("run python -m package");
    assert_eq!(
        (python.target, python.args),
        (Target::Python, words("-m package"))
    );
}

#[test]
fn uv_run_accepts_its_directory_before_and_after_run() {
    for line in [
        "--directory /p run --extra a server.py",
        "run --directory /p --extra a server.py",
        "run --directory=/p --extra=a --frozen server.py",
    ] {
        let run = run(line);
        assert_eq!(run.directory.as_deref(), Some("/p"), "{line}");
        assert_eq!(run.extras, ["a"]);
        assert!(run.has_project);
    }
    assert!(!run("run --no-project server.py").has_project);
    uv(&words("pip install x")).expect_err("it starts nothing");
    uv(&words("run --env-file .env server.py")).expect_err("the file would not be read");
}

#[test]
fn version_pins_are_passed_on() {
    let tool = uvx(&words("--exclude-newer 2025-01-01 --resolution lowest t"));
    assert_eq!(
        tool.expect("it is well formed").install.options,
        words("--exclude-newer 2025-01-01 --resolution lowest")
    );
    for line in ["--offline t", "--no-build t", "--no-binary-package a t"] {
        let error = uvx(&words(line)).expect_err(line);
        assert!(
            matches!(error, LaunchError::UnknownOption { .. }),
            "{error}"
        );
    }
    uvx(&words("--exclude-newer --no-build t")).expect_err("an option is no date");
}

#[test]
fn lock_options_require_a_lock() {
    assert!(run("run --locked server.py").requires_lock);
    assert!(run("run --frozen server.py").requires_lock);
    assert!(!run("run server.py").requires_lock);
    uv(&words("run --no-editable server.py")).expect_err("sources stay live");
    uv(&words("run --all-extras server.py")).expect_err("parts are selected with --extra");
}
