//! What each launcher was told, read from lines as people write them.

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
    assert_eq!(tool.how.with, words(with));
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
fn where_packages_come_from_is_said_in_words_of_both_installers() {
    let tool = uvx(&words(
        "-p 3.12 --default-index https://a/simple --index corp=https://b/simple --prerelease allow t",
    ))
    .expect("it is well formed");
    assert_eq!(tool.how.python.as_deref(), Some("3.12"));
    assert_eq!(
        tool.how.options,
        words("--index-url https://a/simple --extra-index-url https://b/simple --pre")
    );
}

#[test]
fn an_address_alone_does_not_say_what_to_run() {
    let error = uvx(&words("git+https://example.org/x")).expect_err("no program");
    assert!(
        error.to_string().contains("--from PACKAGE PROGRAM"),
        "{error}"
    );
    uvx(&words("--from x ../../bin/sh")).expect_err("a program has no slash");
    uvx(&words("--with --index-url=x t")).expect_err("an option is no package");
}

#[test]
fn pipx_runs_like_uvx() {
    let tool = pipx(&words("run --spec mcp-server-git==1 mcp-server-git -r x"))
        .expect("it is well formed");
    assert_eq!(
        (tool.from.as_str(), tool.program.as_str()),
        ("mcp-server-git==1", "mcp-server-git")
    );
    pipx(&words("install x")).expect_err("it starts nothing");
}

#[track_caller]
fn run(line: &str) -> ProjectRun {
    match uv(&words(line)).expect("it is well formed") {
        Launcher::Project(run) => run,
        other => panic!("{other:?}"),
    }
}

#[test]
fn uv_run_knows_scripts_modules_and_programs() {
    let script = run("run --with mcp[cli] server.py --port 1");
    assert_eq!(script.target, Target::Python);
    assert_eq!(script.args, words("server.py --port 1"));
    assert_eq!(script.with, words("mcp[cli]"));
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
fn uv_run_may_be_told_where_before_and_after_the_word() {
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
    uv(&words("run --env-file .env server.py")).expect_err("nobody would read the file");
}

#[test]
fn pins_are_kept_in_words_of_the_installers() {
    let tool = uvx(&words(
        "--exclude-newer 2025-01-01 --no-build --no-binary-package a --resolution lowest --no-sources t",
    ))
    .expect("it is well formed");
    assert_eq!(
        tool.how.options,
        words(
            "--exclude-newer 2025-01-01 --only-binary :all: --no-binary a --resolution lowest --no-sources"
        )
    );
    // Nothing can be installed without a network, and with one it would not be kept.
    uvx(&words("--offline t")).expect_err("it cannot be kept");
    uvx(&words("--exclude-newer --no-build t")).expect_err("an option is no date");
}

#[test]
fn what_only_a_lock_can_say_is_kept_apart() {
    let run = run("run --locked --all-extras --group dev --no-editable --no-build server.py");
    assert!(run.is_locked && !run.is_editable);
    assert_eq!(run.by_lock, ["--all-extras", "--group=dev"]);
    assert_eq!(run.sync, ["--no-build"]);
    assert_eq!(run.options, ["--only-binary", ":all:"]);
}
