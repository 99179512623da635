//! Runs already built tests as an ordinary user.
//!
//! The tests are passed in a nextest archive, so that they run with the same settings as for root: one process each, the
//! same timeouts and groups.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::{form, suites};
use crate::backends;
use crate::engines::Variables;
use crate::run::{check, find, workspace_root};

pub(crate) const USER: &str = "boxwood-test";
/// How many subordinate ids a rootless box may use.
const SUBORDINATE_IDS: u32 = 65_536;
/// The first subordinate id if `useradd` assigned none: above the usual ranges of Debian's users, below the ranges that
/// boxes of root use.
const FIRST_SUBORDINATE_ID: u32 = 458_752;

/// `programs` selects the test programs in the archive, `tests` the tests in them.
pub(super) fn run(programs: &str, tests: &str, variables: &Variables) -> Result<()> {
    let user = User::ensure()?;
    let directory = user.directory("suites")?;
    let result = run_in(&directory, &user, programs, tests, variables);
    let removed = fs::remove_dir_all(&directory)
        .with_context(|| format!("`{}` could not be removed", directory.display()));
    result.and(removed)
}

fn run_in(
    directory: &Path,
    user: &User,
    programs: &str,
    tests: &str,
    variables: &Variables,
) -> Result<()> {
    let archive = directory.join("tests.tar.zst");
    check(
        suites::nextest("archive")
            .args(["--zstd-level", "1", "-E", programs, "--archive-file"])
            .arg(&archive),
    )?;
    let nextest = directory.join("cargo-nextest");
    fs::copy(
        find("cargo-nextest").context("`cargo-nextest` is not installed")?,
        &nextest,
    )?;
    // The archive contains the metadata of the workspace. Nextest reads its configuration from this copy.
    let workspace = directory.join("workspace");
    copy_workspace_outline(&workspace)?;
    user.own(directory)?;

    let mut run = user.command(&nextest);
    run.args(["nextest", "run", "--profile", "rootless"])
        .arg("--archive-file")
        .arg(&archive)
        .arg("--extract-to")
        .arg(directory)
        .args(["--extract-overwrite", "-E", tests])
        .arg("--workspace-remap")
        .arg(&workspace)
        .env(suites::MATRIX, directory.join("matrix"))
        .envs(variables)
        .current_dir(&workspace);
    let result = check(form::pass_on(&mut run));
    let copied = copy_matrix(&directory.join("matrix"));
    result.and(copied)
}

/// Copies the results of the suites to those of the other tiers.
fn copy_matrix(from: &Path) -> Result<()> {
    if !from.is_dir() {
        return Ok(());
    }
    let to = backends::matrix_dir();
    fs::create_dir_all(&to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        // The user's own directory: a link in it could lead anywhere.
        if entry.file_type()?.is_file() {
            fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

/// Copies the manifests, test data and nextest's configuration, which are read at run time.
fn copy_workspace_outline(to: &Path) -> Result<()> {
    let root = workspace_root();
    for name in ["Cargo.toml", "Cargo.lock", ".config", "crates"] {
        fs::create_dir_all(to)?;
        check(
            Command::new("cp")
                .arg("-r")
                .arg(root.join(name))
                .arg(to.join(name)),
        )?;
    }
    Ok(())
}

/// An ordinary user of this machine, with subordinate ids as any Debian user has them.
pub(crate) struct User {
    uid: u32,
    gid: u32,
    home: PathBuf,
}

impl User {
    pub(crate) fn ensure() -> Result<Self> {
        if lookup()?.is_none() {
            println!("creating user {USER}");
            check(
                Command::new("useradd")
                    .args(["--create-home", "--shell", "/bin/sh", USER])
                    // Debian's useradd adds the subordinate ids where login.defs says so.
                    .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"),
            )?;
        }
        let user = lookup()?.with_context(|| format!("user `{USER}` was not created"))?;
        for file in ["/etc/subuid", "/etc/subgid"] {
            ensure_subordinate_ids(Path::new(file))?;
        }
        open_tunnel_device()?;
        // The runtime directory, which a login would create.
        let run = user.home.join(".run");
        fs::create_dir_all(&run)?;
        fs::set_permissions(&run, fs::Permissions::from_mode(0o700))?;
        chown(&run, Some(user.uid), Some(user.gid))?;
        Ok(user)
    }

    /// An empty directory of the user, outside of home directories.
    pub(crate) fn directory(&self, name: &str) -> Result<PathBuf> {
        let path = PathBuf::from(format!("/var/tmp/{USER}-{name}-{}", std::process::id()));
        fs::create_dir(&path)
            .with_context(|| format!("`{}` could not be created", path.display()))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        chown(&path, Some(self.uid), Some(self.gid))?;
        Ok(path)
    }

    /// Hands everything below `path` to the user.
    pub(crate) fn own(&self, path: &Path) -> Result<()> {
        check(
            Command::new("chown")
                .arg("-R")
                .arg(format!("{}:{}", self.uid, self.gid))
                .arg(path),
        )
    }

    /// A command that runs as the user, with nothing of ours in its environment.
    pub(crate) fn command(&self, program: &Path) -> Command {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid", &self.uid.to_string()])
            .args(["--regid", &self.gid.to_string()])
            // The bounding set is kept, because `newuidmap` needs a capability from it.
            .args(["--init-groups", "--inh-caps=-all"])
            .arg("--")
            .arg(program)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
            .env("HOME", &self.home)
            .env("XDG_RUNTIME_DIR", self.home.join(".run"))
            .env("USER", USER)
            .env("LOGNAME", USER)
            .env("LANG", "C.UTF-8")
            .current_dir(&self.home);
        for name in ["CI", "RUST_BACKTRACE", "RUST_LOG"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        command
    }
}

/// Debian's udev lets all users open the tunnel device; a machine without udev keeps it for root, and
/// `pasta` could not give a rootless box its network.
fn open_tunnel_device() -> Result<()> {
    let device = Path::new("/dev/net/tun");
    if device.exists() {
        fs::set_permissions(device, fs::Permissions::from_mode(0o666))?;
    }
    Ok(())
}

fn lookup() -> Result<Option<User>> {
    let passwd = fs::read_to_string("/etc/passwd")?;
    for line in passwd.lines() {
        let fields: Vec<_> = line.split(':').collect();
        if let [name, _, uid, gid, _, home, ..] = fields[..]
            && name == USER
        {
            return Ok(Some(User {
                uid: uid.parse()?,
                gid: gid.parse()?,
                home: PathBuf::from(home),
            }));
        }
    }
    Ok(None)
}

fn ensure_subordinate_ids(file: &Path) -> Result<()> {
    let text = match fs::read_to_string(file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error.into()),
    };
    if text
        .lines()
        .any(|line| line.starts_with(&format!("{USER}:")))
    {
        return Ok(());
    }
    let end = FIRST_SUBORDINATE_ID + SUBORDINATE_IDS;
    for line in text.lines() {
        let mut fields = line.split(':').skip(1).map(str::parse::<u32>);
        if let (Some(Ok(start)), Some(Ok(count))) = (fields.next(), fields.next())
            && start < end
            && FIRST_SUBORDINATE_ID < start.saturating_add(count)
        {
            bail!(
                "`{}` has no entry for {USER} and the range {FIRST_SUBORDINATE_ID}:{SUBORDINATE_IDS} is taken by `{line}`\n\
                 hint: add a line `{USER}:START:{SUBORDINATE_IDS}` with a free range",
                file.display()
            );
        }
    }
    let separator = if text.is_empty() || text.ends_with('\n') {
        ""
    } else {
        "\n"
    };
    fs::write(
        file,
        format!("{text}{separator}{USER}:{FIRST_SUBORDINATE_ID}:{SUBORDINATE_IDS}\n"),
    )?;
    Ok(())
}
