//! The file tools of agents: read, write, edit, glob and grep.

use anyhow::{bail, ensure};
use boxwood_api::{
    EditTextRequest, EditedText, GlobMatches, GlobRequest, GrepMatches, GrepRequest,
    ReadTextRequest, TextSlice, WriteTextRequest, WrittenText,
};

use crate::harness::case::cases;
use crate::{BoxSpec, Fixture, TestBox};
use boxwood_backend::{FileAnswer, FileCall, FileError, FileFault, FileTool, FileToolAnswer};

cases! { "file_tools":
    text_is_written_and_read_back,
    a_file_is_exchanged_in_one_step,
    an_edit_shows_what_it_changed,
    a_search_follows_the_rules_of_the_tree,
    the_newest_files_come_first,
    large_texts_pass_whole,
    refusals_have_fixed_texts,
    special_files_do_not_block,
    tools_have_the_rights_of_a_command,
    a_search_without_a_caller_ends,
    many_tools_at_once,
}

async fn tool(test_box: &TestBox, tool: FileTool) -> anyhow::Result<FileToolAnswer> {
    match test_box.file(FileCall::Tool(tool)).await? {
        FileAnswer::Tool(answer) => Ok(answer),
        other => bail!("a tool answered {other:?}"),
    }
}

fn of(path: &str) -> ReadTextRequest {
    ReadTextRequest {
        path: path.to_owned(),
        ..ReadTextRequest::default()
    }
}

async fn read(test_box: &TestBox, request: ReadTextRequest) -> anyhow::Result<TextSlice> {
    match tool(test_box, FileTool::Read(request)).await? {
        FileToolAnswer::Read(slice) => Ok(slice),
        other => bail!("read answered {other:?}"),
    }
}

async fn write(test_box: &TestBox, path: &str, content: &str) -> anyhow::Result<WrittenText> {
    let request = WriteTextRequest {
        path: path.to_owned(),
        content: content.to_owned(),
    };
    match tool(test_box, FileTool::Write(request)).await? {
        FileToolAnswer::Write(written) => Ok(written),
        other => bail!("write answered {other:?}"),
    }
}

fn change(path: &str, old: &str, new: &str) -> EditTextRequest {
    EditTextRequest {
        path: path.to_owned(),
        old_string: old.to_owned(),
        new_string: new.to_owned(),
        replace_all: false,
    }
}

async fn edit(test_box: &TestBox, request: EditTextRequest) -> anyhow::Result<EditedText> {
    match tool(test_box, FileTool::Edit(request)).await? {
        FileToolAnswer::Edit(edited) => Ok(edited),
        other => bail!("edit answered {other:?}"),
    }
}

fn named(pattern: &str, path: &str) -> GlobRequest {
    GlobRequest {
        pattern: pattern.to_owned(),
        path: path.to_owned(),
        ..GlobRequest::default()
    }
}

async fn glob(test_box: &TestBox, request: GlobRequest) -> anyhow::Result<GlobMatches> {
    match tool(test_box, FileTool::Glob(request)).await? {
        FileToolAnswer::Glob(matches) => Ok(matches),
        other => bail!("glob answered {other:?}"),
    }
}

fn lines(pattern: &str, path: &str) -> GrepRequest {
    GrepRequest {
        pattern: pattern.to_owned(),
        path: path.to_owned(),
        ..GrepRequest::default()
    }
}

async fn grep(test_box: &TestBox, request: GrepRequest) -> anyhow::Result<GrepMatches> {
    match tool(test_box, FileTool::Grep(request)).await? {
        FileToolAnswer::Grep(matches) => Ok(matches),
        other => bail!("grep answered {other:?}"),
    }
}

/// The fault and the text of a tool call that must fail.
async fn refusal(test_box: &TestBox, tool: FileTool) -> anyhow::Result<(FileFault, String)> {
    match test_box.try_file(FileCall::Tool(tool)).await? {
        Err(FileError::Refused { fault, text }) => Ok((fault, text)),
        other => bail!("{other:?} instead of a refusal"),
    }
}

async fn text_is_written_and_read_back(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let text = "one\ntwo\nthrée\n";
    let written = write(&test_box, "/workspace/a/b/text", text).await?;
    ensure!(written.created && written.size == text.len() as u64);
    ensure!(test_box.stdout_of("cat a/b/text").await? == text);
    let whole = read(&test_box, of("/workspace/a/b/text")).await?;
    ensure!(whole.content == text && whole.total_lines == Some(3));
    ensure!(whole.path == "/workspace/a/b/text" && !whole.truncated);
    let mut second = of("/workspace/a/b/text");
    (second.offset, second.limit) = (Some(2), Some(1));
    let second = read(&test_box, second).await?;
    ensure!(second.content == "two\n" && second.first_line == 2 && second.truncated);
    test_box.stdout_of("touch a/z a/.hidden").await?;
    let names = read(&test_box, of("/workspace/a")).await?;
    ensure!(names.is_directory && names.content == ".hidden\nb\nz");
    test_box.stdout_of(r"printf 'bin\000ary' > binary").await?;
    let binary = read(&test_box, of("/workspace/binary")).await?;
    ensure!(binary.is_binary && binary.content.is_empty() && binary.size == 7);
    Ok(())
}

async fn a_file_is_exchanged_in_one_step(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    test_box
        .stdout_of("echo long old text > file; chmod 750 file; ln -s file link")
        .await?;
    let written = write(&test_box, "/workspace/link", "new\n").await?;
    ensure!(!written.created);
    let output = test_box
        .stdout_of("cat file; find file -printf '%m\\n'; readlink link; ls -A")
        .await?;
    ensure!(output == "new\n750\nfile\nfile\nlink\n", "{output:?}");
    // A concurrent reader sees the old or the new text, never half of one.
    let texts = ["a".repeat(300_000), "b".repeat(300_000)];
    write(&test_box, "/workspace/file", &texts[0]).await?;
    let watching = test_box.clone();
    let watcher = tokio::spawn(async move {
        watching
            .stdout_of(
                "i=0; while [ ! -e stop ]; do [ \"$(wc -c < file)\" = 300000 ] || echo half; \
                 i=$((i+1)); done; echo $i",
            )
            .await
    });
    for turn in 0..40 {
        write(&test_box, "/workspace/file", &texts[turn % 2]).await?;
    }
    write(&test_box, "/workspace/stop", "").await?;
    let output = watcher.await??;
    ensure!(!output.contains("half"), "{output:?}");
    Ok(())
}

async fn an_edit_shows_what_it_changed(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    test_box
        .stdout_of("printf 'a\\nb\\nc\\nb\\n' > file; chmod 600 file")
        .await?;
    let path = "/workspace/file";
    let edited = edit(&test_box, change(path, "a\nb", "a\nB")).await?;
    ensure!(edited.replaced == 1 && edited.size == 8, "{edited:?}");
    ensure!(
        edited.diff
            == "--- /workspace/file\n+++ /workspace/file\n@@ -1,4 +1,4 @@\n a\n-b\n+B\n c\n b\n",
        "{}",
        edited.diff
    );
    let (_, text) = refusal(&test_box, FileTool::Edit(change(path, "x", "y"))).await?;
    ensure!(text == "old_string not found in file.", "{text}");
    test_box.stdout_of("printf 'b\\nb\\n' > file").await?;
    let (_, text) = refusal(&test_box, FileTool::Edit(change(path, "b", "y"))).await?;
    ensure!(
        text == "old_string matches 2 locations; provide a more unique string.",
        "{text}"
    );
    let mut all = change(path, "b", "y");
    all.replace_all = true;
    ensure!(edit(&test_box, all).await?.replaced == 2);
    ensure!(
        test_box
            .stdout_of("cat file; find file -printf '%m\\n'")
            .await?
            == "y\ny\n600\n"
    );
    Ok(())
}

async fn a_search_follows_the_rules_of_the_tree(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    test_box
        .stdout_of(
            "mkdir -p src/deep node_modules/x .git; echo '*.log' > .gitignore; \
         for f in src/a.py src/deep/b.py src/c.log node_modules/x/d.py .git/e.py .hidden; do \
         printf 'first\\nlet needle = 1\\n' > $f; done; printf 'needle\\000' > src/binary",
        )
        .await?;
    let found = grep(&test_box, lines(r"need\w+ =", "/workspace")).await?;
    let hits: Vec<_> = found
        .matches
        .iter()
        .map(|hit| (hit.file.as_str(), hit.line, hit.content.as_str()))
        .collect();
    ensure!(
        hits == [
            ("/workspace/.hidden", 2, "let needle = 1"),
            ("/workspace/src/a.py", 2, "let needle = 1"),
            ("/workspace/src/deep/b.py", 2, "let needle = 1"),
        ],
        "{found:?}"
    );
    ensure!(found.total == 3 && !found.truncated);
    let mut some = lines("NEEDLE", "/workspace/src");
    some.include = Some("*.py".to_owned());
    some.ignore_case = true;
    some.limit = Some(1);
    let some = grep(&test_box, some).await?;
    ensure!(some.matches.len() == 1 && some.truncated, "{some:?}");
    let mut typed = lines("needle", "/workspace");
    (typed.file_type, typed.ignored) = (Some("py".to_owned()), true);
    ensure!(grep(&test_box, typed).await?.matches.len() == 2);
    let one = grep(&test_box, lines("^first$", "/workspace/src/c.log")).await?;
    ensure!(one.matches.len() == 1 && one.files_searched == 1);
    Ok(())
}

async fn the_newest_files_come_first(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    test_box
        .stdout_of(
            "mkdir -p d/e; touch -d @1000000000 a.py; touch -d @1000000002 d/b.py; \
         touch -d @1000000001 d/e/c.py; touch d/e/x.txt; ln -s / d/loop",
        )
        .await?;
    let found = glob(&test_box, named("*.py", "/workspace")).await?;
    let newest = [
        "/workspace/d/b.py",
        "/workspace/d/e/c.py",
        "/workspace/a.py",
    ];
    ensure!(found.matches == newest, "{found:?}");
    ensure!(found.total == 3 && !found.truncated);
    let mut one = named("d/**/*.py", "/workspace");
    one.limit = Some(1);
    let one = glob(&test_box, one).await?;
    ensure!(
        one.matches == newest[..1] && one.total == 2 && one.truncated,
        "{one:?}"
    );
    Ok(())
}

async fn large_texts_pass_whole(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let line = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcde\n";
    let text = line.repeat(128 * 1024);
    write(&test_box, "/workspace/big", &text).await?;
    ensure!(test_box.stdout_of("wc -c < big").await?.trim() == text.len().to_string());
    let mut some = of("/workspace/big");
    some.max_bytes = Some(2 * 1024 * 1024);
    let some = read(&test_box, some).await?;
    ensure!(some.content.len() == 2 * 1024 * 1024 && some.truncated);
    ensure!(some.total_lines == Some(128 * 1024));
    let unlimited = read(&test_box, of("/workspace/big")).await?;
    ensure!(unlimited.content.len() == 256 * 1024 && unlimited.truncated);
    let mut many = lines("0123", "/workspace/big");
    many.limit = Some(10_000);
    let many = grep(&test_box, many).await?;
    ensure!(many.matches.len() == 10_000 && many.truncated);
    let content = "x".repeat(16 * 1024 * 1024 + 1);
    let path = "/workspace/larger".to_owned();
    let (fault, _) = refusal(
        &test_box,
        FileTool::Write(WriteTextRequest { path, content }),
    )
    .await?;
    ensure!(fault == FileFault::TooLarge, "{fault:?}");
    test_box.assert_responsive().await
}

async fn refusals_have_fixed_texts(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    test_box.stdout_of("touch file").await?;
    let nowhere = "/workspace/no/where";
    for (tool, fault, expected) in [
        (
            FileTool::Read(of(nowhere)),
            FileFault::NotFound,
            "File not found: /workspace/no/where",
        ),
        (
            FileTool::Edit(change(nowhere, "a", "b")),
            FileFault::NotFound,
            "File not found: /workspace/no/where",
        ),
        (
            FileTool::Glob(named("*", nowhere)),
            FileFault::NotADirectory,
            "Path is not a directory: /workspace/no/where",
        ),
        (
            FileTool::Glob(named("*", "/workspace/file")),
            FileFault::NotADirectory,
            "Path is not a directory: /workspace/file",
        ),
        (
            FileTool::Grep(lines("a", nowhere)),
            FileFault::NotFound,
            "Path not found: /workspace/no/where",
        ),
        (
            FileTool::Edit(change("/workspace", "a", "b")),
            FileFault::IsADirectory,
            "Path is a directory: /workspace",
        ),
    ] {
        let (output, text) = refusal(&test_box, tool).await?;
        ensure!(
            output == fault && text == expected,
            "{output:?} {text:?} {expected:?}"
        );
    }
    let (fault, text) = refusal(&test_box, FileTool::Grep(lines("(", "/workspace"))).await?;
    ensure!(
        fault == FileFault::Unfit && text.starts_with("Invalid regex: "),
        "{text}"
    );
    let relative = test_box
        .try_file(FileCall::Tool(FileTool::Read(of("file"))))
        .await?;
    ensure!(
        matches!(
            relative,
            Err(FileError::Fault {
                fault: FileFault::BadPath,
                ..
            })
        ),
        "{relative:?}"
    );
    Ok(())
}

async fn special_files_do_not_block(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    test_box
        .stdout_of(
            "mkfifo pipe .gitignore .ignore; echo needle > file; ln -s pipe link; ln -s . round",
        )
        .await?;
    let found = grep(&test_box, lines("needle", "/workspace")).await?;
    ensure!(found.matches.len() == 1 && !found.truncated, "{found:?}");
    let found = glob(&test_box, named("*", "/workspace")).await?;
    ensure!(found.matches == ["/workspace/file"], "{found:?}");
    for path in ["/workspace/pipe", "/workspace/link"] {
        let write = WriteTextRequest {
            path: path.to_owned(),
            content: "x".to_owned(),
        };
        for tool in [
            FileTool::Read(of(path)),
            FileTool::Write(write),
            FileTool::Edit(change(path, "a", "b")),
            FileTool::Grep(lines("a", path)),
        ] {
            let (fault, text) = refusal(&test_box, tool).await?;
            ensure!(fault == FileFault::NotAFile, "{path}: {text}");
        }
    }
    test_box.assert_responsive().await
}

async fn tools_have_the_rights_of_a_command(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    write(&test_box, "/workspace/made/deep/file", "x").await?;
    let lines = test_box
        .stdout_of("find made -printf '%U:%G\\n' | sort -u; id -u; id -g")
        .await?;
    let mut lines = lines.lines();
    let (owner, uid, gid) = (lines.next(), lines.next(), lines.next());
    ensure!(
        owner
            == Some(&format!(
                "{}:{}",
                uid.unwrap_or_default(),
                gid.unwrap_or_default()
            )),
        "{owner:?} {uid:?} {gid:?}"
    );
    let kernels = refusal(&test_box, FileTool::Read(of("/proc/self/status"))).await?;
    ensure!(kernels.0 == FileFault::NotAFile, "{kernels:?}");
    // Only root may write beside the programs; a tool is not root.
    let write = WriteTextRequest {
        path: "/usr/bin/boxwood-was-here".to_owned(),
        content: "x".to_owned(),
    };
    if uid != Some("0") {
        let (fault, text) = refusal(&test_box, FileTool::Write(write)).await?;
        ensure!(
            matches!(fault, FileFault::Denied | FileFault::ReadOnly),
            "{text}"
        );
    }
    Ok(())
}

async fn a_search_without_a_caller_ends(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    test_box
        .stdout_of("for i in 1 2 3 4 5 6 7 8; do mkdir d$i; (cd d$i; seq 300 | xargs touch); done")
        .await?;
    for _ in 0..20 {
        let search = test_box.try_file(FileCall::Tool(FileTool::Grep(lines("x", "/workspace"))));
        let moment = std::time::Duration::from_millis(3);
        let _ = tokio::time::timeout(moment, search).await;
    }
    // The abandoned searches do not block the next one.
    let found = glob(&test_box, named("300", "/workspace")).await?;
    ensure!(found.total == 8, "{found:?}");
    test_box.assert_responsive().await
}

async fn many_tools_at_once(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..16 {
        let test_box = test_box.clone();
        tasks.spawn(async move {
            let path = format!("/workspace/{number}/file");
            let text = format!("needle {number}\n").repeat(1000);
            write(&test_box, &path, &text).await?;
            let slice = read(&test_box, of(&path)).await?;
            ensure!(slice.content == text);
            let found = grep(&test_box, lines(&format!("needle {number}$"), "/workspace")).await?;
            ensure!(found.matches.len() == 200 && found.truncated);
            Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}
