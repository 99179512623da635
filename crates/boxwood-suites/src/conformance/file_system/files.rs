//! All file calls, and the faults that they return.

use anyhow::{bail, ensure};
use boxwood_api::{FileEntry, FileKind, MountMode};

use crate::harness::case::cases;
use crate::{BoxSpec, Fixture, TestBox};
use boxwood_backend::{FileAnswer, FileCall, FileError, FileFault, OpenFor};

cases! { "files" needs Files:
    what_is_written_is_read_back,
    creating_anew_refuses_what_exists,
    writing_truncates_and_keeps_the_mode,
    stat_reports_kind_size_mode_and_target,
    a_listing_is_sorted_and_bounded,
    directories_are_made_with_their_parents,
    moving_overwrites_only_on_request,
    a_tree_is_removed_only_on_request,
    each_fault_has_its_own_kind,
    odd_files_are_not_opened_and_nothing_hangs,
    the_kernels_files_are_refused,
    symlinks_stay_inside_the_box,
    odd_names_are_listed,
    files_belong_to_the_box_user,
    a_full_area_is_reported,
    many_calls_at_once,
}

fn open(path: &str, how: OpenFor) -> FileCall {
    FileCall::Open {
        path: path.to_owned(),
        how,
    }
}

fn stat(path: &str, follow: bool) -> FileCall {
    FileCall::Stat {
        path: path.to_owned(),
        follow,
    }
}

fn list(path: &str, limit: usize) -> FileCall {
    FileCall::List {
        path: path.to_owned(),
        limit,
    }
}

fn mkdir(path: &str, parents: bool) -> FileCall {
    FileCall::Mkdir {
        path: path.to_owned(),
        parents,
    }
}

fn remove(path: &str, recursive: bool) -> FileCall {
    FileCall::Remove {
        path: path.to_owned(),
        recursive,
    }
}

fn rename(from: &str, to: &str, overwrite: bool) -> FileCall {
    FileCall::Move {
        from: from.to_owned(),
        to: to.to_owned(),
        overwrite,
    }
}

async fn entry(test_box: &TestBox, path: &str, follow: bool) -> anyhow::Result<FileEntry> {
    match test_box.file(stat(path, follow)).await? {
        FileAnswer::Entry(entry) => Ok(entry),
        other => bail!("a stat answered {other:?}"),
    }
}

async fn entries(
    test_box: &TestBox,
    path: &str,
    limit: usize,
) -> anyhow::Result<(Vec<FileEntry>, bool)> {
    match test_box.file(list(path, limit)).await? {
        FileAnswer::Entries { entries, truncated } => Ok((entries, truncated)),
        other => bail!("a listing answered {other:?}"),
    }
}

async fn what_is_written_is_read_back(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let content: Vec<u8> = (0..3_000_000_u32).flat_map(u32::to_le_bytes).collect();
    test_box.write("/workspace/big", &content).await?;
    ensure!(test_box.read("/workspace/big").await? == content);
    ensure!(test_box.stdout_of("wc -c < big").await?.trim() == content.len().to_string());
    test_box
        .stdout_of("printf 'from sh' > /home/box/small")
        .await?;
    ensure!(test_box.read("/home/box/small").await? == b"from sh");
    test_box.write("/tmp/empty", b"").await?;
    ensure!(test_box.read("/tmp/empty").await?.is_empty());
    Ok(())
}

async fn creating_anew_refuses_what_exists(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let anew = OpenFor::CreateNew { mode: 0o640 };
    let answer = test_box.file(open("/workspace/new", anew)).await?;
    ensure!(matches!(answer, FileAnswer::Opened { .. }));
    ensure!(entry(&test_box, "/workspace/new", false).await?.mode & 0o7777 == 0o640);
    ensure!(test_box.file_fault(open("/workspace/new", anew)).await? == FileFault::Exists);
    test_box.stdout_of("ln -s nowhere dangling").await?;
    ensure!(
        test_box
            .file_fault(open("/workspace/dangling", anew))
            .await?
            == FileFault::Exists
    );
    ensure!(test_box.stdout_of("test ! -e nowhere; echo $?").await? == "0\n");
    Ok(())
}

async fn writing_truncates_and_keeps_the_mode(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    test_box
        .stdout_of("echo a long first content > file; chmod 755 file")
        .await?;
    test_box.write("/workspace/file", b"short").await?;
    ensure!(test_box.stdout_of("cat file; stat -c %a file").await? == "short755\n");
    Ok(())
}

async fn stat_reports_kind_size_mode_and_target(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    test_box.stdout_of("printf 12345 > f; chmod 604 f; touch -d @1000000000 f; mkdir -m 711 d; ln -s f l; mkfifo p")
        .await?;
    let file = entry(&test_box, "/workspace/f", true).await?;
    ensure!(file.kind == FileKind::File && file.size == 5 && file.mode & 0o7777 == 0o604);
    ensure!(file.name == "f" && file.path == "/workspace/f", "{file:?}");
    ensure!(file.modified_at.as_second() == 1_000_000_000, "{file:?}");
    let directory = entry(&test_box, "/workspace/d", true).await?;
    ensure!(directory.kind == FileKind::Directory && directory.mode & 0o7777 == 0o711);
    let link = entry(&test_box, "/workspace/l", false).await?;
    ensure!(link.kind == FileKind::Symlink && link.symlink_target.as_deref() == Some("f"));
    let followed = entry(&test_box, "/workspace/l", true).await?;
    ensure!(followed.kind == FileKind::File && followed.size == 5);
    ensure!(entry(&test_box, "/workspace/p", true).await?.kind == FileKind::Other);
    ensure!(entry(&test_box, "/", true).await?.kind == FileKind::Directory);
    ensure!(entry(&test_box, "/dev/null", true).await?.kind == FileKind::Other);
    Ok(())
}

async fn a_listing_is_sorted_and_bounded(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    test_box.stdout_of("mkdir many; cd many; for i in $(seq 500); do : > f$i; done; mkdir z; ln -s z a; : > .hidden")
        .await?;
    let (all, truncated) = entries(&test_box, "/workspace/many", 10_000).await?;
    ensure!(all.len() == 503 && !truncated, "{} entries", all.len());
    ensure!(all.is_sorted_by(|one, other| one.name <= other.name));
    ensure!(all.iter().any(|entry| entry.name == ".hidden"));
    ensure!(
        all.iter()
            .all(|entry| entry.path == format!("/workspace/many/{}", entry.name))
    );
    let link = all.iter().find(|entry| entry.name == "a");
    ensure!(link.is_some_and(|entry| entry.kind == FileKind::Symlink));
    let (some, truncated) = entries(&test_box, "/workspace/many", 10).await?;
    ensure!(some.len() == 10 && truncated, "{} entries", some.len());
    test_box.stdout_of("mkdir empty").await?;
    let (none, truncated) = entries(&test_box, "/workspace/empty", 10).await?;
    ensure!(none.is_empty() && !truncated);
    Ok(())
}

async fn directories_are_made_with_their_parents(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let missing = test_box.file_fault(mkdir("/workspace/a/b", false)).await?;
    ensure!(missing == FileFault::NotFound, "{missing:?}");
    test_box.file(mkdir("/workspace/a/b/c", true)).await?;
    test_box.file(mkdir("/workspace/d", false)).await?;
    ensure!(
        test_box
            .stdout_of("test -d a/b/c -a -d d && echo yes")
            .await?
            == "yes\n"
    );
    ensure!(test_box.file_fault(mkdir("/workspace/d", false)).await? == FileFault::Exists);
    // Like `mkdir -p`: an existing directory is a success.
    test_box.file(mkdir("/workspace/a/b/c", true)).await?;
    test_box.stdout_of("echo x > file").await?;
    let through = test_box
        .file_fault(mkdir("/workspace/file/below", true))
        .await?;
    ensure!(
        matches!(through, FileFault::NotADirectory | FileFault::Exists),
        "{through:?}"
    );
    Ok(())
}

async fn moving_overwrites_only_on_request(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    test_box
        .stdout_of("echo one > one; echo two > two; mkdir d; echo in > d/in")
        .await?;
    let fault = test_box
        .file_fault(rename("/workspace/one", "/workspace/two", false))
        .await?;
    ensure!(fault == FileFault::Exists, "{fault:?}");
    ensure!(test_box.stdout_of("cat one two").await? == "one\ntwo\n");
    test_box
        .file(rename("/workspace/one", "/workspace/two", true))
        .await?;
    ensure!(test_box.stdout_of("cat two; test ! -e one").await? == "one\n");
    test_box
        .file(rename("/workspace/d", "/workspace/e", false))
        .await?;
    ensure!(test_box.stdout_of("cat e/in").await? == "in\n");
    let missing = test_box
        .file_fault(rename("/workspace/nothing", "/workspace/x", false))
        .await?;
    ensure!(missing == FileFault::NotFound, "{missing:?}");
    // Across two of the box's file systems.
    match test_box
        .try_file(rename("/workspace/two", "/tmp/two", false))
        .await?
    {
        Ok(_) => ensure!(test_box.stdout_of("cat /tmp/two; test ! -e two").await? == "one\n"),
        Err(FileError::Fault { .. }) => ensure!(test_box.stdout_of("cat two").await? == "one\n"),
        Err(other) => bail!("a move between file systems: {other:?}"),
    }
    Ok(())
}

async fn a_tree_is_removed_only_on_request(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    test_box.stdout_of("mkdir -p t/a/b; echo x > t/a/b/c; ln -s /etc t/link; mkdir keep; echo k > keep/k; ln -s ../keep t/keep; mkfifo t/p")
        .await?;
    let fault = test_box.file_fault(remove("/workspace/t", false)).await?;
    ensure!(fault == FileFault::NotEmpty, "{fault:?}");
    test_box.file(remove("/workspace/t", true)).await?;
    ensure!(
        test_box
            .stdout_of("test ! -e t && cat keep/k && test -d /etc")
            .await?
            == "k\n"
    );
    test_box.file(remove("/workspace/keep/k", false)).await?;
    test_box.file(remove("/workspace/keep", false)).await?;
    let fault = test_box.file_fault(remove("/workspace/keep", true)).await?;
    ensure!(fault == FileFault::NotFound, "{fault:?}");
    test_box
        .stdout_of("mkdir -p target; echo t > target/t; ln -s target s")
        .await?;
    test_box.file(remove("/workspace/s", true)).await?;
    ensure!(test_box.stdout_of("test ! -L s && cat target/t").await? == "t\n");
    Ok(())
}

async fn each_fault_has_its_own_kind(fixture: &Fixture) -> anyhow::Result<()> {
    let read_only = fixture.host_dir("ro-files")?;
    std::fs::write(read_only.join("file"), "x")?;
    let test_box = fixture
        .start(&BoxSpec::new().extra(&read_only, "/data/ro", MountMode::Ro))
        .await?;
    test_box.stdout_of("echo x > file; mkdir dir; ln -s loop loop; mkdir shut; chmod 000 shut; echo s > secret; chmod 000 secret")
        .await?;
    let write = OpenFor::Write { mode: 0o644 };
    let long = format!("/workspace/{}", "n".repeat(300));
    let table = [
        (open("/workspace/none", OpenFor::Read), FileFault::NotFound),
        (open("/workspace/none/x", write), FileFault::NotFound),
        (
            open("/workspace/file/x", OpenFor::Read),
            FileFault::NotADirectory,
        ),
        (list("/workspace/file", 10), FileFault::NotADirectory),
        (open("/workspace/dir", write), FileFault::IsADirectory),
        (
            open("/workspace/loop", OpenFor::Read),
            FileFault::TooManyLinks,
        ),
        (open("/workspace/shut/x", OpenFor::Read), FileFault::Denied),
        (open("/workspace/secret", OpenFor::Read), FileFault::Denied),
        (list("/workspace/shut", 10), FileFault::Denied),
        (open("/data/ro/new", write), FileFault::ReadOnly),
        (open("/data/ro/file", write), FileFault::ReadOnly),
        (remove("/data/ro/file", false), FileFault::ReadOnly),
        (mkdir("/data/ro/dir", false), FileFault::ReadOnly),
        (open("relative", OpenFor::Read), FileFault::BadPath),
        (open("", OpenFor::Read), FileFault::BadPath),
        (
            open("/workspace/nul\0byte", OpenFor::Read),
            FileFault::BadPath,
        ),
        (open(&long, write), FileFault::BadPath),
    ];
    for (call, expected) in table {
        let description = format!("{call:?}");
        let found = test_box.file_fault(call).await?;
        ensure!(
            found == expected,
            "{description}: {found:?} instead of {expected:?}"
        );
    }
    let directory = test_box
        .file_fault(open("/workspace/dir", OpenFor::Read))
        .await?;
    ensure!(
        matches!(directory, FileFault::IsADirectory | FileFault::NotAFile),
        "reading a directory: {directory:?}"
    );
    test_box.stop().await?;
    let after = test_box.try_file(stat("/workspace/file", false)).await?;
    ensure!(
        matches!(after, Err(FileError::Gone)),
        "after the stop: {after:?}"
    );
    Ok(())
}

async fn odd_files_are_not_opened_and_nothing_hangs(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    test_box.stdout_of("mkfifo fifo; python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"sock\")'; ln -s fifo link")
        .await?;
    for path in [
        "/workspace/fifo",
        "/workspace/sock",
        "/workspace/link",
        "/dev/null",
        "/dev/zero",
        "/dev/tty",
        "/dev/stdin",
    ] {
        for how in [OpenFor::Read, OpenFor::Write { mode: 0o600 }] {
            let fault = test_box.file_fault(open(path, how)).await?;
            ensure!(
                matches!(
                    fault,
                    FileFault::NotAFile
                        | FileFault::Denied
                        | FileFault::NotFound
                        | FileFault::ReadOnly
                ),
                "{path} {how:?}: {fault:?}"
            );
        }
    }
    test_box.file(remove("/workspace/fifo", false)).await?;
    test_box.file(remove("/workspace/sock", false)).await?;
    test_box.assert_responsive().await
}

async fn the_kernels_files_are_refused(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    test_box
        .stdout_of("ln -s /proc/self/environ environ; ln -s /proc proc")
        .await?;
    for path in [
        "/proc/self/environ",
        "/proc/1/environ",
        "/proc/self/mem",
        "/proc/cpuinfo",
        "/proc/self/status",
        "/proc/sys/kernel/hostname",
        "/workspace/environ",
        "/workspace/proc/self/cmdline",
        "/workspace/../proc/self/maps",
    ] {
        let fault = test_box.file_fault(open(path, OpenFor::Read)).await?;
        ensure!(
            matches!(
                fault,
                FileFault::NotAFile
                    | FileFault::Denied
                    | FileFault::NotFound
                    | FileFault::TooManyLinks
            ),
            "{path}: {fault:?}"
        );
    }
    Ok(())
}

async fn symlinks_stay_inside_the_box(fixture: &Fixture) -> anyhow::Result<()> {
    let secret = fixture.host_file("outside/secret", "of the host\n")?;
    let directory = fixture.host_dir("links")?;
    // Made on the host, so that no filter inside could have refused it.
    std::os::unix::fs::symlink(&secret, directory.join("absolute"))?;
    std::os::unix::fs::symlink("../outside/secret", directory.join("relative"))?;
    std::os::unix::fs::symlink("/etc/passwd", directory.join("passwd"))?;
    let test_box = fixture
        .start(&BoxSpec::new().workspace(&directory, MountMode::Rw))
        .await?;
    for name in ["absolute", "relative"] {
        let fault = test_box
            .file_fault(open(&format!("/workspace/{name}"), OpenFor::Read))
            .await?;
        ensure!(fault == FileFault::NotFound, "{name}: {fault:?}");
    }
    // Resolved in the box: this is the box's own account file.
    let passwd = test_box.read("/workspace/passwd").await?;
    ensure!(passwd == test_box.read("/etc/passwd").await?);
    ensure!(String::from_utf8_lossy(&passwd).contains("box:"));
    Ok(())
}

async fn odd_names_are_listed(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    test_box.stdout_of("mkdir odd; cd odd; : > 'a b'; : > \"$(printf 'new\\nline')\"; : > \"$(printf 'bad\\377utf')\"; : > -- '-dash'; : > 'ünï'")
        .await?;
    let (all, _) = entries(&test_box, "/workspace/odd", 100).await?;
    ensure!(all.len() >= 4, "{all:?}");
    for name in ["a b", "new\nline", "ünï"] {
        ensure!(
            all.iter().any(|entry| entry.name == name),
            "{name:?} in {all:?}"
        );
    }
    ensure!(all.iter().any(|entry| entry.name.starts_with("bad")));
    test_box
        .write("/workspace/odd/mit ümlaut & 'quote'", b"x")
        .await?;
    ensure!(test_box.read("/workspace/odd/mit ümlaut & 'quote'").await? == b"x");
    Ok(())
}

async fn files_belong_to_the_box_user(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    test_box.write("/workspace/file", b"x").await?;
    test_box.file(mkdir("/workspace/made/deep", true)).await?;
    let text = test_box
        .stdout_of("stat -c %u:%g file made made/deep | sort -u")
        .await?;
    ensure!(text == "1000:1000\n", "{text:?}");
    Ok(())
}

async fn a_full_area_is_reported(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new().tmp_mb(4)).await?;
    let FileAnswer::Opened { mut file, .. } = test_box
        .file(open("/tmp/big", OpenFor::Write { mode: 0o600 }))
        .await?
    else {
        bail!("not opened")
    };
    let block = vec![0; 1 << 20];
    let outcome = (0..16).try_for_each(|_| std::io::Write::write_all(&mut file, &block));
    let error = outcome.err().map(|error| error.kind());
    ensure!(error == Some(std::io::ErrorKind::StorageFull), "{error:?}");
    Ok(())
}

async fn many_calls_at_once(fixture: &Fixture) -> anyhow::Result<()> {
    let test_box = fixture.start(&BoxSpec::new()).await?;
    let mut tasks = tokio::task::JoinSet::new();
    for number in 0..64 {
        let test_box = test_box.clone();
        tasks.spawn(async move {
            let path = format!("/workspace/n{number}");
            let content = number.to_string().into_bytes();
            test_box.write(&path, &content).await?;
            ensure!(test_box.read(&path).await? == content);
            anyhow::Ok(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(())
}
