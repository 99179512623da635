//! Access to the host through a symlink in the workspace, with every file call.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure};
use boxwood_api::MountMode;

use crate::harness::case::cases;
use crate::harness::host_side::marker;
use crate::harness::test_box::request;
use crate::{BoxSpec, Fixture, TestBox};
use boxwood_backend::{FileAnswer, FileCall, OpenFor, Scope};

cases! { "file_routes" needs Files:
    cannot_read_the_host_through_a_link,
    cannot_write_the_host_through_a_link,
    cannot_list_or_stat_the_host_through_a_link,
    cannot_make_or_remove_on_the_host_through_a_link,
    cannot_move_to_or_from_the_host_through_a_link,
    cannot_reach_the_host_through_magic_links,
    cannot_win_a_race_by_swapping_a_link,
    cannot_reach_the_host_by_a_link_made_later,
}

/// A box and its workspace, in which the host made links to one of its directories that is not mounted.
struct Trap {
    test_box: TestBox,
    /// Content of the files in `outside`.
    secret_text: String,
    /// The directory of the host.
    outside: std::path::PathBuf,
    /// Paths in the box that lead to it if links are followed.
    links: Vec<String>,
}

async fn trap(fixture: &Fixture) -> anyhow::Result<Trap> {
    let secret_text = marker("host-secret");
    fixture.host_file("outside/secret", &secret_text)?;
    fixture.host_file("outside/dir/inner", &secret_text)?;
    let outside = fixture.scratch().join("outside");
    let workspace = fixture.host_dir("workspace")?;
    std::fs::create_dir_all(workspace.join("sub"))?;
    let up = "../".repeat(24);
    let absolute = outside.display().to_string();
    let targets = [
        ("absolute", absolute.clone()),
        ("relative", "../outside".to_owned()),
        (
            "far-up",
            format!("{up}{}", absolute.trim_start_matches('/')),
        ),
        ("by-proc-root", format!("/proc/1/root{absolute}")),
        ("by-self-root", format!("/proc/self/root{absolute}")),
        ("twice", "absolute".to_owned()),
        ("slashes", absolute.replace('/', "//")),
    ];
    let mut links = Vec::new();
    for (name, target) in &targets {
        std::os::unix::fs::symlink(target, workspace.join(name))?;
        links.push(format!("/workspace/{name}"));
    }
    // Paths without a link that leave the workspace by `..`, and the path on the host.
    links.push("/workspace/../outside".to_owned());
    links.push(format!("/workspace/sub/../..{absolute}"));
    links.push(absolute);
    let test_box = fixture
        .start(&BoxSpec::new().workspace(&workspace, MountMode::Rw))
        .await?;
    Ok(Trap {
        test_box,
        secret_text,
        outside,
        links,
    })
}

impl Trap {
    /// Checks that the files on the host are unchanged.
    fn is_untouched(&self) -> anyhow::Result<()> {
        for file in ["secret", "dir/inner"] {
            ensure!(
                std::fs::read_to_string(self.outside.join(file))? == self.secret_text,
                "`{file}` on the host was changed"
            );
        }
        let names = |path: &Path| std::fs::read_dir(path).map(Iterator::count);
        ensure!(names(&self.outside)? == 2 && names(&self.outside.join("dir"))? == 1);
        Ok(())
    }

    async fn refused(&self, call: FileCall) -> anyhow::Result<()> {
        let description = format!("{call:?}");
        if let Ok(answer) = self.test_box.try_file(call).await? {
            bail!("{description} reached the host: {answer:?}");
        }
        Ok(())
    }
}

fn open(path: String, how: OpenFor) -> FileCall {
    FileCall::Open { path, how }
}

async fn cannot_read_the_host_through_a_link(fixture: &Fixture) -> anyhow::Result<()> {
    let trap = trap(fixture).await?;
    for link in &trap.links {
        for file in ["secret", "dir/inner"] {
            trap.refused(open(format!("{link}/{file}"), OpenFor::Read))
                .await?;
        }
    }
    Ok(())
}

async fn cannot_write_the_host_through_a_link(fixture: &Fixture) -> anyhow::Result<()> {
    let trap = trap(fixture).await?;
    for link in &trap.links {
        for how in [
            OpenFor::Write { mode: 0o666 },
            OpenFor::CreateNew { mode: 0o666 },
        ] {
            trap.refused(open(format!("{link}/secret"), how)).await?;
            trap.refused(open(format!("{link}/new"), how)).await?;
        }
    }
    trap.is_untouched()
}

async fn cannot_list_or_stat_the_host_through_a_link(fixture: &Fixture) -> anyhow::Result<()> {
    let trap = trap(fixture).await?;
    for link in &trap.links {
        trap.refused(FileCall::List {
            path: link.clone(),
            limit: 100,
        })
        .await?;
        for follow in [true, false] {
            trap.refused(FileCall::Stat {
                path: format!("{link}/secret"),
                follow,
            })
            .await?;
        }
        trap.refused(FileCall::Stat {
            path: link.clone(),
            follow: true,
        })
        .await?;
    }
    Ok(())
}

async fn cannot_make_or_remove_on_the_host_through_a_link(fixture: &Fixture) -> anyhow::Result<()> {
    let trap = trap(fixture).await?;
    for link in &trap.links {
        for recursive in [true, false] {
            trap.refused(FileCall::Remove {
                path: format!("{link}/secret"),
                recursive,
            })
            .await?;
            trap.refused(FileCall::Remove {
                path: format!("{link}/dir"),
                recursive,
            })
            .await?;
        }
        trap.refused(FileCall::Mkdir {
            path: format!("{link}/made"),
            parents: false,
        })
        .await?;
        // With `parents`, a directory of the same name may be created inside the box.
        let _made_inside = trap
            .test_box
            .try_file(FileCall::Mkdir {
                path: format!("{link}/made/deep"),
                parents: true,
            })
            .await?;
    }
    trap.is_untouched()?;
    // Removing a link removes the link only.
    for link in trap.links.iter().take(7) {
        trap.test_box
            .file(FileCall::Remove {
                path: link.clone(),
                recursive: true,
            })
            .await?;
    }
    trap.is_untouched()
}

async fn cannot_move_to_or_from_the_host_through_a_link(fixture: &Fixture) -> anyhow::Result<()> {
    let trap = trap(fixture).await?;
    trap.test_box.write("/workspace/mine", b"box").await?;
    for link in &trap.links {
        for overwrite in [true, false] {
            for (from, to) in [
                (format!("{link}/secret"), "/workspace/stolen".to_owned()),
                ("/workspace/mine".to_owned(), format!("{link}/secret")),
                ("/workspace/mine".to_owned(), format!("{link}/planted")),
                (format!("{link}/dir"), "/workspace/stolen-dir".to_owned()),
            ] {
                trap.refused(FileCall::Move {
                    from,
                    to,
                    overwrite,
                })
                .await?;
            }
        }
    }
    trap.is_untouched()
}

async fn cannot_reach_the_host_through_magic_links(fixture: &Fixture) -> anyhow::Result<()> {
    let trap = trap(fixture).await?;
    let outside = trap.outside.display().to_string();
    for start in [
        "/proc/1/root",
        "/proc/1/cwd",
        "/proc/self/root",
        "/proc/self/cwd",
        "/proc/thread-self/root",
        "/proc/self/fd/3",
        "/dev/fd/3",
    ] {
        for path in [
            format!("{start}{outside}/secret"),
            format!("{start}/../../../../..{outside}/secret"),
        ] {
            trap.refused(open(path.clone(), OpenFor::Read)).await?;
            trap.refused(open(path.clone(), OpenFor::Write { mode: 0o666 }))
                .await?;
            trap.refused(FileCall::Remove {
                path,
                recursive: false,
            })
            .await?;
        }
        // A listing must show the box's own files.
        let listed = trap
            .test_box
            .try_file(FileCall::List {
                path: start.to_owned(),
                limit: 1000,
            })
            .await?;
        if let Ok(FileAnswer::Entries { entries, .. }) = listed {
            let host_only = fixture
                .scratch()
                .file_name()
                .map(std::ffi::OsStr::to_string_lossy);
            ensure!(
                !entries
                    .iter()
                    .any(|entry| Some(entry.name.as_str()) == host_only.as_deref()),
                "{start} shows the host"
            );
        }
    }
    trap.is_untouched()
}

/// Swaps a directory with a link to the directory of the host, until it is killed.
const SWAP: &str = "
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
os.chdir('/workspace')
open('swapping', 'w')
while True:
    if libc.renameat2(-100, b'swapped', -100, b'decoy', 2) != 0: os._exit(3)";

async fn cannot_win_a_race_by_swapping_a_link(fixture: &Fixture) -> anyhow::Result<()> {
    let trap = trap(fixture).await?;
    trap.test_box
        .stdout_of(&format!(
            "mkdir swapped; echo decoy > swapped/secret; mkdir -p swapped/dir; ln -s {} decoy",
            trap.outside.display()
        ))
        .await?;
    let racing = trap
        .test_box
        .spawn(request(&["python3", "-c", SWAP]))
        .await?;
    trap.test_box
        .stdout_of("for i in $(seq 100); do [ -e swapping ] && exit 0; sleep 0.1; done; exit 1")
        .await?;
    let began = Instant::now();
    let mut rounds = 0_u32;
    let mut inside = 0_u32;
    while began.elapsed() < Duration::from_secs(12) {
        rounds += 1;
        let path = "/workspace/swapped/secret".to_owned();
        if let Ok(FileAnswer::Opened { mut file, .. }) = trap
            .test_box
            .try_file(open(path.clone(), OpenFor::Read))
            .await?
        {
            let mut content = String::new();
            std::io::Read::read_to_string(&mut file, &mut content)?;
            ensure!(
                !content.contains(&trap.secret_text),
                "round {rounds} read the host's file"
            );
            inside += 1;
        }
        if let Ok(FileAnswer::Opened { mut file, .. }) = trap
            .test_box
            .try_file(open(path, OpenFor::Write { mode: 0o666 }))
            .await?
        {
            std::io::Write::write_all(&mut file, b"decoy")?;
        }
        let _answer = trap
            .test_box
            .try_file(FileCall::Mkdir {
                path: format!("/workspace/swapped/made{rounds}"),
                parents: true,
            })
            .await?;
        let _answer = trap
            .test_box
            .try_file(FileCall::Move {
                from: "/workspace/swapped/secret".to_owned(),
                to: "/workspace/swapped/dir/secret".to_owned(),
                overwrite: true,
            })
            .await?;
        if rounds.is_multiple_of(16) {
            let _answer = trap
                .test_box
                .try_file(FileCall::Remove {
                    path: "/workspace/swapped/dir".to_owned(),
                    recursive: true,
                })
                .await?;
        }
    }
    ensure!(
        rounds > 50 && inside > 0,
        "{rounds} rounds, {inside} files opened: the race did not happen"
    );
    let exit = tokio::time::timeout(Duration::from_millis(50), racing.control.wait()).await;
    ensure!(exit.is_err(), "the swapping ended early: {exit:?}");
    racing.control.signal(9, Scope::Tree).await?;
    trap.is_untouched()
}

async fn cannot_reach_the_host_by_a_link_made_later(fixture: &Fixture) -> anyhow::Result<()> {
    let trap = trap(fixture).await?;
    // A link whose target does not exist, then a link that the host adds while the box runs.
    let workspace = fixture.scratch().join("workspace");
    std::os::unix::fs::symlink(fixture.scratch().join("not-yet"), workspace.join("later"))?;
    let _made = trap
        .test_box
        .try_file(FileCall::Mkdir {
            path: "/workspace/later/a/b".to_owned(),
            parents: true,
        })
        .await?;
    ensure!(
        !fixture.scratch().join("not-yet").exists(),
        "made on the host"
    );
    std::os::unix::fs::symlink(&trap.outside, workspace.join("fresh"))?;
    trap.refused(open("/workspace/fresh/secret".to_owned(), OpenFor::Read))
        .await?;
    trap.refused(open(
        "/workspace/fresh/new".to_owned(),
        OpenFor::Write { mode: 0o600 },
    ))
    .await?;
    trap.is_untouched()
}
