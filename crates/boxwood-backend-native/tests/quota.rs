//! Quotas of real boxes that write to a directory of the host as fast as they can.
//!
//! Every one of them is killed with the reason `disk_quota` within the bound that docs/quotas.md gives,
//! and the session remains.
#![forbid(unsafe_code)]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use boxwood_api::{
    ExecResult, MountMode, ProcessId, ProcessSpec, ProcessStatus, Reason, SessionId,
};
use boxwood_backend::{BoxFuture, FileCall};
use boxwood_session::{Backends, Replace, SessionError, Sessions, Settings, ShutdownBoxes};
use boxwood_suites::{BackendSetup, BoxSpec, StateDirs, failed, run_trials, runtime};
use libtest_mimic::Trial;

const MIB: u64 = 1024 * 1024;
const HANG: Duration = Duration::from_mins(3);

/// A poll interval and a measurement (docs/quotas.md), with room for a busy machine.
const OVERSHOOT_MILLISECONDS: u64 = 1500;
/// What a box writes to the page cache at most.
const MIB_PER_MILLISECOND: u64 = 4;

type Work = for<'a> fn(&'a Setup) -> BoxFuture<'a, anyhow::Result<()>>;

macro_rules! trials {
    ($($name:ident),+ $(,)?) => {
        vec![$((stringify!($name), (|setup| Box::pin($name(setup))) as Work)),+]
    };
}

fn main() {
    let trials: Vec<(&str, Work)> = trials![
        one_file_is_limited_by_the_kernel,
        a_writer_of_many_files_is_killed,
        several_writers_are_killed,
        large_writes_are_killed,
        a_writer_of_small_files_is_killed,
        a_writer_of_empty_files_is_killed,
        a_writer_of_mapped_files_is_killed,
        space_cannot_be_reserved,
        one_sparse_file_is_refused_by_the_kernel,
        hard_links_and_sparse_files_count_by_their_length,
        deleted_files_do_not_count,
        files_in_an_unreadable_directory_count,
        a_background_program_of_an_earlier_command_is_killed,
        a_managed_process_is_killed,
        a_writer_in_a_large_tree_is_killed,
        files_of_earlier_commands_count,
        a_neighbour_that_writes_does_not_get_others_killed,
        a_box_is_usable_after_its_files_were_removed,
    ];
    let trials = trials
        .into_iter()
        .map(|(name, work)| Trial::test(name, move || run(work).map_err(|error| failed(&error))));
    run_trials(trials.collect())
}

struct Setup {
    sessions: Sessions,
    directory: PathBuf,
}

fn run(work: Work) -> anyhow::Result<()> {
    let dirs = StateDirs::make()?;
    let backend = support::Native.launch(&dirs)?;
    let directory = tempfile::Builder::new()
        .prefix("boxwood-quota-")
        .tempdir()?;
    let runtime = runtime()?;
    let outcome = runtime.block_on(async {
        backend.finish_adoption().await;
        let setup = Setup {
            sessions: Sessions::new(Backends::only(Arc::clone(&backend)), Settings::default()),
            directory: directory.path().to_owned(),
        };
        let outcome = work(&setup).await;
        setup.sessions.shutdown(ShutdownBoxes::Stop).await;
        outcome
    });
    runtime.shutdown_timeout(Duration::from_secs(5));
    outcome
}

impl Setup {
    fn spec(&self, quota_mb: u64) -> BoxSpec {
        BoxSpec::new()
            .memory_mb(1024)
            .cpus(2.0)
            .workspace(&self.directory, MountMode::Rw)
            .quota_mb(quota_mb)
    }

    async fn exec(&self, quota_mb: u64, command: &str) -> anyhow::Result<ExecResult> {
        let admission = self.spec(quota_mb).admit_command("s", command)?;
        let running = self.sessions.exec(admission);
        let result = tokio::time::timeout(HANG, running).await;
        Ok(result.context("it was never killed")??)
    }

    async fn python(&self, quota_mb: u64, script: &str) -> anyhow::Result<ExecResult> {
        self.exec(quota_mb, &format!("exec python3 -c '{script}'"))
            .await
    }

    /// Checks that the command was killed in time, and that the session remains.
    async fn killed(&self, quota_mb: u64, result: &ExecResult) -> anyhow::Result<()> {
        ensure!(
            result.reason == Some(Reason::DiskQuota),
            "{:?} {:?} {}",
            result.reason,
            result.exit_code,
            result.stderr
        );
        self.within(quota_mb)?;
        ensure!(self.sessions.list().len() == 1, "the session is gone");
        let refused = self
            .sessions
            .exec(self.spec(quota_mb).admit_command("s", "true")?);
        let refused = refused.await;
        ensure!(
            matches!(&refused, Err(SessionError::OverQuota { phase, .. }) if phase.starts_with("before")),
            "{refused:?}"
        );
        Ok(())
    }

    fn within(&self, quota_mb: u64) -> anyhow::Result<()> {
        let used_mib = used(&self.directory)? / MIB;
        let overshoot = MIB_PER_MILLISECOND * OVERSHOOT_MILLISECONDS;
        println!("used {used_mib} MiB of {quota_mb} MiB");
        ensure!(
            used_mib <= quota_mb + overshoot,
            "used {used_mib} MiB of {quota_mb} MiB, more than {overshoot} MiB over"
        );
        Ok(())
    }

    fn id() -> anyhow::Result<SessionId> {
        Ok(SessionId::new("s")?)
    }

    async fn remove(&self, name: &str) -> anyhow::Result<()> {
        let call = FileCall::Remove {
            path: format!("/workspace/{name}"),
            recursive: true,
        };
        self.sessions.file(&Self::id()?, call).await?;
        Ok(())
    }
}

async fn one_file_is_limited_by_the_kernel(setup: &Setup) -> anyhow::Result<()> {
    let result = setup
        .exec(100, "dd if=/dev/zero of=f bs=1M count=8192")
        .await?;
    setup.killed(100, &result).await?;
    ensure!(
        result.stderr.contains("File too large"),
        "{}",
        result.stderr
    );
    Ok(())
}

const FLOOD: &str =
    "mkdir -p d; while :; do i=$((i+1)); dd if=/dev/zero of=d/$1$i bs=1M count=16 2>&-; done";

async fn a_writer_of_many_files_is_killed(setup: &Setup) -> anyhow::Result<()> {
    let result = setup.exec(200, FLOOD).await?;
    ensure!(result.exit_code == Some(137), "{:?}", result.exit_code);
    setup.killed(200, &result).await
}

async fn several_writers_are_killed(setup: &Setup) -> anyhow::Result<()> {
    let command = format!("for n in a b c d e f; do sh -c '{FLOOD}' sh $n & done; wait");
    let result = setup.exec(300, &command).await?;
    setup.killed(300, &result).await
}

/// Each thread writes 90 MiB with one call, which only SIGKILL interrupts.
const LARGE_WRITES: &str = r#"
import os, threading
block = bytes(90 << 20)
def write(name):
    n = 0
    while True:
        n += 1
        file = os.open(f"{name}{n}", os.O_WRONLY | os.O_CREAT)
        os.write(file, block)
        os.close(file)
for name in "abcdef": threading.Thread(target=write, args=name).start()
"#;

async fn large_writes_are_killed(setup: &Setup) -> anyhow::Result<()> {
    let result = setup.python(100, LARGE_WRITES).await?;
    setup.killed(100, &result).await
}

async fn a_writer_of_small_files_is_killed(setup: &Setup) -> anyhow::Result<()> {
    let script = r#"
import os
n = 0
while True:
    n += 1
    if n % 1000 == 1: os.mkdir(f"d{n}"); at = f"d{n}"
    with open(f"{at}/{n}", "wb") as file: file.write(b"x" * 4000)
"#;
    let result = setup.python(40, script).await?;
    setup.killed(40, &result).await
}

async fn a_writer_of_empty_files_is_killed(setup: &Setup) -> anyhow::Result<()> {
    let script = r#"
import os
for d in range(100):
    os.mkdir(f"d{d}")
    for n in range(100_000): os.mknod(f"d{d}/{n:0200}")
"#;
    // Every file counts with 256 bytes.
    let result = setup.python(4, script).await?;
    setup.killed(4, &result).await
}

async fn a_writer_of_mapped_files_is_killed(setup: &Setup) -> anyhow::Result<()> {
    let script = r#"
import mmap, os
n, size = 0, 16 << 20
page = b"x" * (1 << 20)
while True:
    n += 1
    file = os.open(f"f{n}", os.O_RDWR | os.O_CREAT)
    os.ftruncate(file, size)
    with mmap.mmap(file, size) as memory:
        for at in range(0, size, len(page)): memory[at:at + len(page)] = page
    os.close(file)
"#;
    let result = setup.python(128, script).await?;
    setup.killed(128, &result).await
}

async fn space_cannot_be_reserved(setup: &Setup) -> anyhow::Result<()> {
    let script = r#"
import ctypes, os
libc = ctypes.CDLL(None)
n = reserved = 0
while True:
    n += 1
    file = os.open(f"f{n}", os.O_RDWR | os.O_CREAT)
    for mode in (0, 1):
        if libc.fallocate(file, mode, ctypes.c_long(0), ctypes.c_long(32 << 20)) == 0: reserved += 1
    os.posix_fallocate(file, 0, 32 << 20)
    os.close(file)
    print(reserved, flush=True)
"#;
    let result = setup.python(128, script).await?;
    ensure!(
        result.stdout.lines().all(|line| line == "0"),
        "space was reserved: {}",
        result.stdout
    );
    setup.killed(128, &result).await
}

async fn one_sparse_file_is_refused_by_the_kernel(setup: &Setup) -> anyhow::Result<()> {
    let result = setup.exec(64, "truncate -s 10G f").await?;
    ensure!(result.exit_code == Some(1), "{:?}", result.exit_code);
    ensure!(
        result.stderr.contains("File too large"),
        "{}",
        result.stderr
    );
    ensure!(used(&setup.directory)? <= 64 * MIB);
    Ok(())
}

async fn hard_links_and_sparse_files_count_by_their_length(setup: &Setup) -> anyhow::Result<()> {
    let refused = async |quota_mb| {
        let refused = setup
            .sessions
            .exec(setup.spec(quota_mb).admit_command("s", "true")?);
        let refused = matches!(refused.await, Err(SessionError::OverQuota { .. }));
        ensure!(refused, "over {quota_mb} MiB and not refused");
        anyhow::Ok(())
    };
    setup.exec(100, "head -c 30M /dev/zero > f").await?;
    setup.exec(100, "ln f g; ln f h").await?;
    setup.exec(100, "true").await?;
    setup.exec(100, "ln f i").await?;
    refused(100).await?;
    setup.remove("i").await?;
    setup.exec(100, "truncate -s 50M sparse").await?;
    refused(100).await
}

/// A walk cannot see them. docs/quotas.md says so.
async fn deleted_files_do_not_count(setup: &Setup) -> anyhow::Result<()> {
    let script = r#"
import os, time
file = os.open("f", os.O_RDWR | os.O_CREAT)
os.unlink("f")
for _ in range(20): os.write(file, b"x" * (1 << 20))
time.sleep(1)
print("done")
"#;
    let result = setup.python(16, script).await?;
    // One file can still not be larger than the quota and 1 MiB.
    ensure!(
        result.reason.is_none() || result.stdout.is_empty(),
        "{result:?}"
    );
    let later = setup.exec(16, "echo room").await?;
    ensure!(later.stdout == "room\n", "{later:?}");
    Ok(())
}

async fn files_in_an_unreadable_directory_count(setup: &Setup) -> anyhow::Result<()> {
    let script = r#"
import os, time
os.mkdir("d")
files = [os.open(f"d/{n}", os.O_WRONLY | os.O_CREAT) for n in range(20)]
os.chmod("d", 0)
block = b"x" * (1 << 20)
for file in files:
    for _ in range(64):
        os.write(file, block)
        time.sleep(0.001)
"#;
    // A daemon that is not root cannot measure the directory and treats it as over the quota.
    let result = setup.python(128, script).await?;
    ensure!(result.reason == Some(Reason::DiskQuota), "{result:?}");
    fs::set_permissions(setup.directory.join("d"), fs::Permissions::from_mode(0o755))?;
    setup.within(128)
}

async fn a_background_program_of_an_earlier_command_is_killed(setup: &Setup) -> anyhow::Result<()> {
    let command = format!("setsid sh -c '{FLOOD}' >&- 2>&- & echo started");
    let result = setup.exec(150, &command).await?;
    ensure!(result.stdout == "started\n", "{result:?}");
    let started = Instant::now();
    let mut last = 0;
    let mut same = 0;
    while same < 20 {
        ensure!(started.elapsed() < HANG, "it was never killed");
        tokio::time::sleep(Duration::from_millis(20)).await;
        let now = used(&setup.directory).unwrap_or(0);
        same = if now == last && now > 100 * MIB {
            same + 1
        } else {
            0
        };
        last = now;
    }
    setup.within(150)?;
    setup.remove("d").await?;
    let later = setup.exec(150, "echo room").await?;
    ensure!(later.stdout == "room\n", "{later:?}");
    Ok(())
}

async fn a_managed_process_is_killed(setup: &Setup) -> anyhow::Result<()> {
    let id = Setup::id()?;
    setup
        .sessions
        .get_or_create(setup.spec(128).admit("s")?)
        .await?;
    let spec = ProcessSpec {
        process_id: ProcessId::new("p")?,
        command: "sh".to_owned(),
        args: vec!["-c".to_owned(), FLOOD.to_owned()],
        env: BTreeMap::new(),
        cwd: "/workspace".to_owned(),
    };
    let process = spec.process_id.clone();
    setup
        .sessions
        .start_process(&id, spec, Replace::Refuse)
        .await?;
    let started = Instant::now();
    loop {
        let info = setup.sessions.process(&id, &process)?;
        if info.status == ProcessStatus::Exited {
            ensure!(info.reason == Some(Reason::DiskQuota), "{info:?}");
            break;
        }
        ensure!(started.elapsed() < HANG, "it was never killed");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    setup.within(128)
}

/// So many files that a measurement takes a while. Hard links are made much faster than files.
fn create_files(directory: &Path) -> anyhow::Result<()> {
    let file = directory.join("file");
    fs::File::create(&file)?;
    for number in 0..60_000 {
        let directory = directory.join(format!("d{}", number / 1000));
        if number % 1000 == 0 {
            fs::create_dir(&directory)?;
        }
        fs::hard_link(&file, directory.join(number.to_string()))?;
    }
    Ok(())
}

async fn a_writer_in_a_large_tree_is_killed(setup: &Setup) -> anyhow::Result<()> {
    create_files(&setup.directory)?;
    let result = setup.exec(150, FLOOD).await?;
    setup.killed(150, &result).await
}

async fn files_of_earlier_commands_count(setup: &Setup) -> anyhow::Result<()> {
    setup.exec(100, "head -c 60M /dev/zero > f").await?;
    let result = setup
        .exec(100, "head -c 60M /dev/zero > g; exec sleep 60")
        .await?;
    setup.killed(100, &result).await
}

async fn a_neighbour_that_writes_does_not_get_others_killed(setup: &Setup) -> anyhow::Result<()> {
    let command =
        "head -c 8000000 /dev/zero > f; for i in 1 2 3 4 5 6; do sleep 0.5; done; echo unharmed";
    unharmed_by_a_neighbour(setup, 16, command).await
}

async fn unharmed_by_a_neighbour(
    setup: &Setup,
    quota_mb: u64,
    command: &str,
) -> anyhow::Result<()> {
    let neighbour = tempfile::tempdir()?;
    let path = neighbour.path().to_owned();
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let writing = std::thread::spawn(move || -> std::io::Result<u64> {
        let block = vec![1_u8; 32 << 20];
        let mut written = 0;
        while stopped.try_recv().is_err() {
            fs::write(path.join((written % 10).to_string()), &block)?;
            written += 1;
        }
        Ok(written)
    });
    let started = Instant::now();
    let result = setup.exec(quota_mb, command).await;
    let elapsed = started.elapsed();
    stop.send(())?;
    let written = writing
        .join()
        .map_err(|_| anyhow::anyhow!("the neighbour panicked"))??;
    println!("{} MiB by the neighbour in {elapsed:?}", written * 32);
    let result = result?;
    ensure!(result.stdout == "unharmed\n", "{result:?}");
    ensure!(
        elapsed < Duration::from_secs(10),
        "it took too long: {elapsed:?}"
    );
    Ok(())
}

async fn a_box_is_usable_after_its_files_were_removed(setup: &Setup) -> anyhow::Result<()> {
    for _ in 0..3 {
        let result = setup.exec(64, FLOOD).await?;
        setup.killed(64, &result).await?;
        setup.remove("d").await?;
    }
    let result = setup
        .exec(64, "mkdir d && echo fine > d/f && cat d/f")
        .await?;
    ensure!(result.stdout == "fine\n", "{result:?}");
    Ok(())
}

/// Does not use the code under test.
fn used(directory: &Path) -> anyhow::Result<u64> {
    let (mut lengths, mut allocated) = (0, 0);
    let mut pending = vec![directory.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(directory)? {
            let entry = entry?;
            let facts = fs::symlink_metadata(entry.path())?;
            allocated += facts.blocks() * 512;
            if facts.is_dir() {
                pending.push(entry.path());
            } else {
                lengths += facts.len();
            }
        }
    }
    Ok(allocated.max(lengths))
}
