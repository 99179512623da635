//! Sessions in real boxes that write to a directory of the host as fast as they can.
//!
//! Every one of them is stopped at most 64 MiB (or a tenth) over its quota, with the reason, and the
//! session lives on. That bound holds for a daemon with a real-time priority, as root has it.
#![forbid(unsafe_code)]

#[path = "quota/bound.rs"]
mod bound;
mod support;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use boxwood_api::{
    ExecResult, MountMode, ProcessId, ProcessSpec, ProcessStatus, Reason, SessionId,
};
use boxwood_backend::suite::{Places, Subject, Wish, conclude, failed, runtime};
use boxwood_backend::{BoxFuture, FileCall};
use boxwood_session::{Backends, Replace, SessionError, Sessions, Settings, ShutdownBoxes};
use libtest_mimic::Trial;

use bound::{MIB, documented_slack, slack_here, used};

const HANG: Duration = Duration::from_mins(3);

type Work = for<'a> fn(&'a House) -> BoxFuture<'a, anyhow::Result<()>>;

macro_rules! trials {
    ($($name:ident),+ $(,)?) => {
        vec![$((stringify!($name), (|house| Box::pin($name(house))) as Work)),+]
    };
}

fn main() {
    let trials: Vec<(&str, Work)> = trials![
        one_file_is_stopped,
        many_files_are_stopped,
        many_writers_at_once_are_stopped,
        large_writes_are_stopped,
        small_files_are_stopped,
        empty_files_are_stopped,
        mapped_files_are_stopped,
        reserved_space_is_stopped,
        one_sparse_file_is_refused_by_the_kernel,
        files_without_a_name_are_stopped,
        files_in_a_closed_directory_are_stopped,
        what_a_command_left_running_is_stopped,
        a_managed_process_is_stopped,
        a_large_tree_is_measured_while_the_box_stands_still,
        large_writes_in_a_large_tree_are_stopped,
        many_middling_writes_in_a_large_tree_are_stopped,
        large_writes_with_much_open_are_stopped,
        large_writes_of_a_program_that_hides_are_stopped,
        a_program_that_wakes_itself_is_stopped,
        a_program_that_wakes_itself_under_a_strange_name_is_stopped,
        a_neighbour_that_writes_stops_nobody_else,
        a_neighbour_stops_nobody_who_overwrites_a_large_file,
        a_box_goes_on_after_its_files_were_removed,
    ];
    let trials = trials
        .into_iter()
        .map(|(name, work)| Trial::test(name, move || run(work).map_err(|error| failed(&error))));
    conclude(trials.collect())
}

struct House {
    sessions: Sessions,
    directory: PathBuf,
}

fn run(work: Work) -> anyhow::Result<()> {
    let places = Places::make()?;
    let backend = support::Native.launch(&places)?;
    let directory = tempfile::Builder::new()
        .prefix("boxwood-quota-")
        .tempdir()?;
    let runtime = runtime()?;
    let outcome = runtime.block_on(async {
        backend.settle().await;
        let house = House {
            sessions: Sessions::new(Backends::only(Arc::clone(&backend)), Settings::default()),
            directory: directory.path().to_owned(),
        };
        let outcome = work(&house).await;
        house.sessions.shutdown(ShutdownBoxes::Stop).await;
        outcome
    });
    runtime.shutdown_timeout(Duration::from_secs(5));
    outcome
}

impl House {
    fn wish(&self, quota_mb: u64) -> Wish {
        Wish::new()
            .memory_mb(1024)
            .cpus(2.0)
            .workspace(&self.directory, MountMode::Rw)
            .quota_mb(quota_mb)
    }

    async fn exec(&self, quota_mb: u64, command: &str) -> anyhow::Result<ExecResult> {
        let admission = self.wish(quota_mb).admit_command("s", command)?;
        let running = self.sessions.exec(admission);
        let result = tokio::time::timeout(HANG, running).await;
        Ok(result.context("it was never stopped")??)
    }

    async fn python(&self, quota_mb: u64, script: &str) -> anyhow::Result<ExecResult> {
        self.exec(quota_mb, &format!("exec python3 -c '{script}'"))
            .await
    }

    /// It was stopped in time, and the session is as it was but for its files.
    async fn stopped(&self, quota_mb: u64, result: &ExecResult) -> anyhow::Result<()> {
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
            .exec(self.wish(quota_mb).admit_command("s", "true")?);
        let refused = refused.await;
        ensure!(
            matches!(&refused, Err(SessionError::OverQuota { phase, .. }) if phase.starts_with("before")),
            "{refused:?}"
        );
        Ok(())
    }

    /// The documented bound, where the daemon stops the program.
    fn within(&self, quota_mb: u64) -> anyhow::Result<()> {
        self.over_by_at_most(quota_mb, slack_here(quota_mb))
    }

    fn over_by_at_most(&self, quota_mb: u64, slack: u64) -> anyhow::Result<()> {
        let used = used(&self.directory)?;
        let most = quota_mb * MIB + slack;
        println!("used {} MiB of {quota_mb} MiB", used / MIB);
        ensure!(used <= most, "{} MiB of {} MiB", used / MIB, most / MIB);
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

async fn one_file_is_stopped(house: &House) -> anyhow::Result<()> {
    let result = house
        .exec(100, "dd if=/dev/zero of=f bs=1M count=8192")
        .await?;
    house.stopped(100, &result).await?;
    ensure!(
        result.stderr.contains("File too large"),
        "{}",
        result.stderr
    );
    Ok(())
}

const FLOOD: &str =
    "mkdir -p d; while :; do i=$((i+1)); dd if=/dev/zero of=d/$1$i bs=1M count=16 2>&-; done";

async fn many_files_are_stopped(house: &House) -> anyhow::Result<()> {
    let result = house.exec(200, FLOOD).await?;
    ensure!(result.exit_code == Some(137), "{:?}", result.exit_code);
    house.stopped(200, &result).await
}

async fn many_writers_at_once_are_stopped(house: &House) -> anyhow::Result<()> {
    let command = format!("for n in a b c d e f; do sh -c '{FLOOD}' sh $n & done; wait");
    let result = house.exec(300, &command).await?;
    house.stopped(300, &result).await
}

/// None of them comes out of the kernel before it has written as much as is allowed to all.
const LARGE_WRITES: &str = r#"
import ctypes, os, threading
block = bytes(90 << 20)
def write(name):
    # CLONE_FILES: descriptors of its own, which the process does not show.
    ctypes.CDLL(None).unshare(0x400)
    n = 0
    while True:
        n += 1
        file = os.open(f"{name}{n}", os.O_WRONLY | os.O_CREAT)
        os.write(file, block)
        os.close(file)
for name in "abcdef": threading.Thread(target=write, args=name).start()
"#;

async fn large_writes_are_stopped(house: &House) -> anyhow::Result<()> {
    let result = house.python(100, LARGE_WRITES).await?;
    house.stopped(100, &result).await
}

async fn small_files_are_stopped(house: &House) -> anyhow::Result<()> {
    let script = r#"
import os
n = 0
while True:
    n += 1
    if n % 1000 == 1: os.mkdir(f"d{n}"); at = f"d{n}"
    with open(f"{at}/{n}", "wb") as file: file.write(b"x" * 4000)
"#;
    let result = house.python(40, script).await?;
    house.stopped(40, &result).await
}

async fn empty_files_are_stopped(house: &House) -> anyhow::Result<()> {
    let script = r#"
import os
for d in range(100):
    os.mkdir(f"d{d}")
    for n in range(100_000): os.mknod(f"d{d}/{n:0200}")
"#;
    // An inode and its name take room even when nothing is in it; far fewer than ten million fit.
    let result = house.python(4, script).await?;
    house.stopped(4, &result).await
}

async fn mapped_files_are_stopped(house: &House) -> anyhow::Result<()> {
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
    let result = house.python(128, script).await?;
    house.stopped(128, &result).await
}

async fn reserved_space_is_stopped(house: &House) -> anyhow::Result<()> {
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
    let result = house.python(128, script).await?;
    ensure!(
        result.stdout.lines().all(|line| line == "0"),
        "space was reserved: {}",
        result.stdout
    );
    house.stopped(128, &result).await
}

async fn one_sparse_file_is_refused_by_the_kernel(house: &House) -> anyhow::Result<()> {
    let result = house.exec(64, "truncate -s 10G f").await?;
    ensure!(result.exit_code == Some(1), "{:?}", result.exit_code);
    ensure!(
        result.stderr.contains("File too large"),
        "{}",
        result.stderr
    );
    house.over_by_at_most(64, documented_slack(64))
}

async fn files_without_a_name_are_stopped(house: &House) -> anyhow::Result<()> {
    let script = r#"
import os
block, files = b"x" * (1 << 20), []
while True:
    file = os.open("f", os.O_RDWR | os.O_CREAT)
    os.unlink("f")
    files.append(file)
    for _ in range(32): os.write(file, block)
"#;
    let free = || -> anyhow::Result<u64> {
        let sizes = rustix::fs::statvfs(&house.directory)?;
        Ok(sizes.f_bfree * sizes.f_frsize)
    };
    let before = free()?;
    let watching = async {
        let mut least = before;
        loop {
            tokio::time::sleep(Duration::from_millis(2)).await;
            least = least.min(free().unwrap_or(before));
            if least == 0 {
                return least;
            }
        }
    };
    let result = tokio::select! {
        result = house.python(128, script) => result?,
        _ = watching => bail!("the host is full"),
    };
    ensure!(result.reason == Some(Reason::DiskQuota), "{result:?}");
    ensure!(result.exit_code == Some(137), "{:?}", result.exit_code);
    // What nobody can name any more goes with whoever held it.
    let again = house.exec(128, "echo room").await?;
    ensure!(again.stdout == "room\n", "{again:?}");
    Ok(())
}

async fn files_in_a_closed_directory_are_stopped(house: &House) -> anyhow::Result<()> {
    // Others write as fast as they can; here it is about what cannot be seen.
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
    // A daemon that is root measures it; any other takes what it may not see for too much.
    let result = house.python(128, script).await?;
    ensure!(result.reason == Some(Reason::DiskQuota), "{result:?}");
    fs::set_permissions(house.directory.join("d"), fs::Permissions::from_mode(0o755))?;
    house.within(128)
}

async fn what_a_command_left_running_is_stopped(house: &House) -> anyhow::Result<()> {
    let command = format!("setsid sh -c '{FLOOD}' >&- 2>&- & echo begun");
    let result = house.exec(150, &command).await?;
    ensure!(result.stdout == "begun\n", "{result:?}");
    let began = Instant::now();
    let mut last = 0;
    let mut same = 0;
    while same < 20 {
        ensure!(began.elapsed() < HANG, "it is never stopped");
        tokio::time::sleep(Duration::from_millis(20)).await;
        let now = used(&house.directory).unwrap_or(0);
        same = if now == last && now > 100 * MIB {
            same + 1
        } else {
            0
        };
        last = now;
    }
    house.within(150)?;
    house.remove("d").await?;
    let again = house.exec(150, "echo room").await?;
    ensure!(again.stdout == "room\n", "{again:?}");
    Ok(())
}

async fn a_managed_process_is_stopped(house: &House) -> anyhow::Result<()> {
    let id = House::id()?;
    house
        .sessions
        .get_or_create(house.wish(128).admit("s")?)
        .await?;
    let spec = ProcessSpec {
        process_id: ProcessId::new("p")?,
        command: "sh".to_owned(),
        args: vec!["-c".to_owned(), FLOOD.to_owned()],
        env: BTreeMap::new(),
        cwd: "/workspace".to_owned(),
    };
    let process = spec.process_id.clone();
    house
        .sessions
        .start_process(&id, spec, Replace::Refuse)
        .await?;
    let began = Instant::now();
    loop {
        let info = house.sessions.process(&id, &process)?;
        if info.status == ProcessStatus::Exited {
            ensure!(info.reason == Some(Reason::DiskQuota), "{info:?}");
            break;
        }
        ensure!(began.elapsed() < HANG, "it was never stopped");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    house.within(128)
}

/// So many files that a measure takes a while. Further names of one: those are made much faster than files.
fn plant(directory: &Path) -> anyhow::Result<()> {
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

async fn a_large_tree_is_measured_while_the_box_stands_still(house: &House) -> anyhow::Result<()> {
    plant(&house.directory)?;
    let result = house.exec(150, FLOOD).await?;
    house.stopped(150, &result).await
}

async fn large_writes_in_a_large_tree_are_stopped(house: &House) -> anyhow::Result<()> {
    // Long before it is known how much the tree holds.
    plant(&house.directory)?;
    let result = house.python(100, LARGE_WRITES).await?;
    house.stopped(100, &result).await
}

async fn many_middling_writes_in_a_large_tree_are_stopped(house: &House) -> anyhow::Result<()> {
    // Each stands still before it has written too much; all together do not.
    plant(&house.directory)?;
    let script = r#"
import ctypes, os, threading
block = bytes(15 << 20)
def write(name):
    ctypes.CDLL(None).unshare(0x400)
    n = 0
    while True:
        n += 1
        file = os.open(f"{name}-{n}", os.O_WRONLY | os.O_CREAT)
        os.write(file, block)
        os.close(file)
for name in range(40): threading.Thread(target=write, args=[name]).start()
"#;
    let result = house.python(100, script).await?;
    house.stopped(100, &result).await
}

async fn large_writes_with_much_open_are_stopped(house: &House) -> anyhow::Result<()> {
    plant(&house.directory)?;
    let script = r#"
import os
many = [os.open("file", os.O_WRONLY) for _ in range(5000)]
"#;
    let script = format!("{script}{LARGE_WRITES}");
    let result = house.python(100, &script).await?;
    house.stopped(100, &result).await
}

async fn large_writes_of_a_program_that_hides_are_stopped(house: &House) -> anyhow::Result<()> {
    plant(&house.directory)?;
    // PR_SET_DUMPABLE: nobody but root sees what it has open.
    let script = r"
import ctypes
assert ctypes.CDLL(None).prctl(4, 0) == 0
";
    let script = format!("{script}{LARGE_WRITES}");
    let result = house.python(100, &script).await?;
    house.stopped(100, &result).await
}

/// Timers that take turns have the kernel send it SIGCONT all the time.
const WAKES_ITSELF: &str = r#"
import ctypes, os
libc = ctypes.CDLL(None)
class Times(ctypes.Structure): _fields_ = [(name, ctypes.c_long) for name in "abcd"]
libc.signal(18, ctypes.cast(libc.getppid, ctypes.c_void_p))
count, every = 400, 20_000_000
for at in range(count):
    timer, event = ctypes.c_void_p(), (ctypes.c_int * 16)(0, 0, 18, 0)
    libc.timer_create(1, event, ctypes.byref(timer))
    times = Times(0, every, 0, 1 + every * at // count)
    libc.timer_settime(timer, 0, ctypes.byref(times), None)
block, n = bytes(1 << 20), 0
while True:
    n += 1
    file = os.open(str(n // 16), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try: os.write(file, block)
    except OSError: pass
    os.close(file)
"#;

async fn a_program_that_wakes_itself_is_stopped(house: &House) -> anyhow::Result<()> {
    wakes_itself_and_is_stopped(house, WAKES_ITSELF).await
}

async fn a_program_that_wakes_itself_under_a_strange_name_is_stopped(
    house: &House,
) -> anyhow::Result<()> {
    // PR_SET_NAME: of bytes that are no text.
    let script = r#"
import ctypes
assert ctypes.CDLL(None).prctl(15, b"\xff\xfe) T", 0, 0, 0) == 0
"#;
    wakes_itself_and_is_stopped(house, &format!("{script}{WAKES_ITSELF}")).await
}

async fn wakes_itself_and_is_stopped(house: &House, script: &str) -> anyhow::Result<()> {
    plant(&house.directory)?;
    let result = house.python(150, script).await?;
    // By the quota, or before that, because it would not stand still.
    ensure!(result.exit_code == Some(137), "{result:?}");
    house.within(150)
}

async fn a_neighbour_that_writes_stops_nobody_else(house: &House) -> anyhow::Result<()> {
    let command =
        "head -c 8000000 /dev/zero > f; for i in 1 2 3 4 5 6; do sleep 0.5; done; echo unharmed";
    unharmed_by_a_neighbour(house, 16, command).await
}

async fn a_neighbour_stops_nobody_who_overwrites_a_large_file(house: &House) -> anyhow::Result<()> {
    // It does not stand still either, but nothing becomes more by it.
    plant(&house.directory)?;
    let file = house.directory.join("f");
    fs::write(&file, vec![1; 64 << 20])?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o666))?;
    let script = r#"
import os, time
block, until = bytes(64 << 20), time.monotonic() + 3
file = os.open("f", os.O_WRONLY)
while time.monotonic() < until: os.pwrite(file, block, 0)
print("unharmed")
"#;
    unharmed_by_a_neighbour(house, 120, &format!("exec python3 -c '{script}'")).await
}

async fn unharmed_by_a_neighbour(
    house: &House,
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
    let began = Instant::now();
    let result = house.exec(quota_mb, command).await;
    let took = began.elapsed();
    stop.send(())?;
    let written = writing
        .join()
        .map_err(|_| anyhow::anyhow!("the neighbour panicked"))??;
    println!("{} MiB by the neighbour in {took:?}", written * 32);
    let result = result?;
    ensure!(result.stdout == "unharmed\n", "{result:?}");
    ensure!(
        took < Duration::from_secs(10),
        "it was held for too long: {took:?}"
    );
    Ok(())
}

async fn a_box_goes_on_after_its_files_were_removed(house: &House) -> anyhow::Result<()> {
    for _ in 0..3 {
        let result = house.exec(64, FLOOD).await?;
        house.stopped(64, &result).await?;
        house.remove("d").await?;
    }
    let result = house
        .exec(64, "mkdir d && echo fine > d/f && cat d/f")
        .await?;
    ensure!(result.stdout == "fine\n", "{result:?}");
    Ok(())
}
