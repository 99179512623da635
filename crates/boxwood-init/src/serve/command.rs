//! Starts a command: from a message to `execve`.
//!
//! All memory is allocated before the fork. The child shares init's memory (`vfork`), so until `execve` it only
//! makes system calls.

use std::ffi::{CStr, CString, c_char, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr;
use std::sync::OnceLock;

use boxwood_init::Identity;
use boxwood_sys::clone::{self, ChildStack, exit_now};
use boxwood_sys::seccomp::Program;

use crate::setup::seccomp_rules;

/// Descriptors of the command.
pub(crate) struct Streams<'a> {
    pub(crate) stdin: BorrowedFd<'a>,
    pub(crate) stdout: BorrowedFd<'a>,
    pub(crate) stderr: BorrowedFd<'a>,
    /// Becomes descriptor 3.
    pub(crate) script: Option<BorrowedFd<'a>>,
    /// Stdin, stdout and stderr are one terminal, which becomes the controlling terminal.
    pub(crate) terminal: bool,
}

/// A command that is ready to start.
pub(crate) struct Prepared {
    /// Candidates for the program, in order of `PATH`.
    programs: Vec<CString>,
    argv: Vec<CString>,
    envp: Vec<CString>,
    /// Every prefix of the working directory, the full path last.
    cwd: Vec<CString>,
    identity: Identity,
    seccomp: Program,
    /// Supplementary group that identifies its descendants; see `group_tags`.
    tag: Option<u32>,
    files: Option<libc::rlimit64>,
}

/// `RLIMIT_NOFILE` of commands: the limit from before init raised its own.
static FILES: OnceLock<libc::rlimit64> = OnceLock::new();

/// Init holds descriptors of every retained program, which can exceed the usual soft limit of 1,024. Commands
/// keep the original limit.
pub(crate) fn raise_own_limit() -> io::Result<()> {
    let mut limit = libc::rlimit64 {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the pointer refers to one value that outlives the call.
    if unsafe { libc::getrlimit64(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let raised = libc::rlimit64 {
        rlim_cur: limit.rlim_max,
        ..limit
    };
    // SAFETY: as above.
    if unsafe { libc::setrlimit64(libc::RLIMIT_NOFILE, &raw const raised) } != 0 {
        return Err(io::Error::last_os_error());
    }
    FILES.get_or_init(|| limit);
    Ok(())
}

/// No larger descriptor exists, and some kernels reject a larger end of a range.
pub(crate) const LAST_DESCRIPTOR: u32 = i32::MAX.cast_unsigned();

fn c_string(text: &str) -> io::Result<CString> {
    CString::new(text).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

impl Prepared {
    pub(crate) fn new(
        argv: &[String],
        base: &[(String, String)],
        added: &[(String, String)],
        cwd: &str,
        identity: Identity,
    ) -> io::Result<Self> {
        let mut env: Vec<(&str, &str)> = Vec::with_capacity(base.len() + added.len());
        for (key, value) in base.iter().chain(added) {
            env.retain(|(existing, _)| existing != key);
            env.push((key, value));
        }
        let path = env
            .iter()
            .find(|(key, _)| *key == "PATH")
            .map_or("", |(_, value)| value);
        let program = argv.first().map_or("", String::as_str);
        let programs = if program.contains('/') {
            vec![c_string(program)?]
        } else {
            let directories = path.split(':').filter(|directory| !directory.is_empty());
            directories
                .map(|directory| c_string(&format!("{directory}/{program}")))
                .collect::<Result<_, _>>()?
        };
        let mut prefixes = Vec::new();
        for (index, _) in cwd.match_indices('/').skip(1) {
            prefixes.push(c_string(&cwd[..index])?);
        }
        prefixes.push(c_string(cwd)?);
        Ok(Self {
            programs,
            argv: argv
                .iter()
                .map(|arg| c_string(arg))
                .collect::<Result<_, _>>()?,
            envp: env
                .iter()
                .map(|(key, value)| c_string(&format!("{key}={value}")))
                .collect::<Result<_, _>>()?,
            cwd: prefixes,
            identity,
            seccomp: seccomp_rules::command_filter(),
            tag: None,
            files: FILES.get().copied(),
        })
    }

    pub(crate) fn tagged(mut self, tag: Option<u32>) -> Self {
        self.tag = tag;
        self
    }

    pub(crate) fn is_tagged(&self) -> bool {
        self.tag.is_some()
    }

    /// Starts the command, in `cgroup` if there is one.
    pub(crate) fn start(
        &self,
        stack: &mut ChildStack,
        streams: &Streams<'_>,
        cgroup: Option<&OwnedFd>,
    ) -> io::Result<i32> {
        let pointers = |strings: &[CString]| -> Vec<*const c_char> {
            strings
                .iter()
                .map(|text| text.as_ptr())
                .chain([ptr::null()])
                .collect()
        };
        let (argv, envp) = (pointers(&self.argv), pointers(&self.envp));
        let mut child = Child {
            prepared: self,
            argv: argv.as_ptr(),
            envp: envp.as_ptr(),
            streams: [
                streams.stdin.as_raw_fd(),
                streams.stdout.as_raw_fd(),
                streams.stderr.as_raw_fd(),
                streams.script.map_or(-1, |fd| fd.as_raw_fd()),
            ],
            terminal: streams.terminal,
        };
        let cgroup = cgroup.map(std::os::fd::AsFd::as_fd);
        // SAFETY: `enter` makes system calls only and never returns; `child` and what it points to
        // live until this call is over; init has one thread.
        unsafe { clone::vfork(stack, cgroup, enter, (&raw mut child).cast()) }
    }
}

struct Child<'a> {
    prepared: &'a Prepared,
    argv: *const *const c_char,
    envp: *const *const c_char,
    streams: [RawFd; 4],
    terminal: bool,
}

extern "C" fn enter(arg: *mut c_void) -> ! {
    // SAFETY: `start` passes a `Child` that outlives this process's use of it.
    let child = unsafe { &*arg.cast::<Child<'_>>() };
    let (failure, errno) = become_command(child);
    report(child, failure, errno);
    exit_now(match (failure, errno) {
        (Failed::Program, libc::ENOENT | libc::ENOTDIR) => 127,
        _ => 126,
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Failed {
    Setup(&'static CStr),
    Directory,
    Program,
}

/// Raw system calls: libc's wrappers for uid changes take locks and signal threads.
macro_rules! call {
    ($failure:expr, $number:expr $(, $arg:expr)*) => {{
        // SAFETY: plain integers, and pointers to memory that outlives this process's use of it.
        let rc = unsafe { libc::syscall($number $(, $arg)*) };
        if rc < 0 {
            return ($failure, last_errno());
        }
        rc
    }};
}

fn last_errno() -> i32 {
    // SAFETY: errno belongs to this thread; the parent is suspended while the child runs.
    unsafe { *libc::__errno_location() }
}

fn become_command(child: &Child<'_>) -> (Failed, i32) {
    let identity = child.prepared.identity;
    call!(Failed::Setup(c"setsid"), libc::SYS_setsid);
    for (number, fd) in (0_i32..).zip(child.streams) {
        if fd >= 0 {
            // Source descriptors are 10 or higher, so no target overwrites one.
            call!(Failed::Setup(c"dup"), libc::SYS_dup3, fd, number, 0);
        }
    }
    let first_closed = if child.streams[3] >= 0 { 4 } else { 3 };
    call!(
        Failed::Setup(c"close"),
        libc::SYS_close_range,
        first_closed,
        LAST_DESCRIPTOR,
        0
    );
    if child.terminal {
        call!(
            Failed::Setup(c"terminal"),
            libc::SYS_ioctl,
            0,
            libc::TIOCSCTTY,
            0
        );
    }
    if !identity.single_uid {
        let (uid, gid) = (identity.command_uid, identity.command_gid);
        let tag = child.prepared.tag.as_slice();
        call!(
            Failed::Setup(c"setgroups"),
            libc::SYS_setgroups,
            tag.len(),
            tag.as_ptr()
        );
        call!(Failed::Setup(c"setgid"), libc::SYS_setresgid, gid, gid, gid);
        call!(Failed::Setup(c"setuid"), libc::SYS_setresuid, uid, uid, uid);
    }
    // The memory is still init's. Changing the uid resets the flag to the host's `fs.suid_dumpable`, and
    // other processes of the box have the same uid.
    call!(
        Failed::Setup(c"dumpable"),
        libc::SYS_prctl,
        libc::PR_SET_DUMPABLE,
        0,
        0,
        0,
        0
    );
    let empty: u64 = 0;
    call!(
        Failed::Setup(c"sigmask"),
        libc::SYS_rt_sigprocmask,
        libc::SIG_SETMASK,
        &raw const empty,
        ptr::null::<u64>(),
        size_of::<u64>()
    );
    call!(Failed::Setup(c"umask"), libc::SYS_umask, 0o022);
    if let Some(files) = &child.prepared.files {
        call!(
            Failed::Setup(c"rlimit"),
            libc::SYS_prlimit64,
            0,
            libc::RLIMIT_NOFILE,
            ptr::from_ref(files),
            ptr::null::<libc::rlimit64>()
        );
    }
    if let Err(error) = child.prepared.seccomp.install() {
        return (
            Failed::Setup(c"seccomp"),
            error.raw_os_error().unwrap_or(libc::EPERM),
        );
    }
    if let Err(errno) = enter_directory(child.prepared) {
        return (Failed::Directory, errno);
    }
    let mut errno = libc::ENOENT;
    for program in &child.prepared.programs {
        // SAFETY: NUL-terminated strings and null-terminated arrays, as `start` made them.
        unsafe { libc::syscall(libc::SYS_execve, program.as_ptr(), child.argv, child.envp) };
        match last_errno() {
            // Try the next directory of PATH, but report an error other than "not found".
            libc::ENOENT | libc::ENOTDIR => {}
            other => errno = other,
        }
    }
    (Failed::Program, errno)
}

/// Changes to the working directory and creates missing directories.
fn enter_directory(prepared: &Prepared) -> Result<(), i32> {
    let Some(cwd) = prepared.cwd.last() else {
        return Err(libc::EINVAL);
    };
    // SAFETY: NUL-terminated strings.
    let chdir = || unsafe { libc::chdir(cwd.as_ptr()) };
    if chdir() == 0 {
        return Ok(());
    }
    if last_errno() != libc::ENOENT {
        return Err(last_errno());
    }
    for prefix in &prepared.cwd {
        // SAFETY: a NUL-terminated string.
        let rc = unsafe { libc::mkdir(prefix.as_ptr(), 0o755) };
        if rc != 0 && !matches!(last_errno(), libc::EEXIST | libc::EROFS | libc::EACCES) {
            return Err(last_errno());
        }
    }
    if chdir() == 0 {
        Ok(())
    } else {
        Err(last_errno())
    }
}

/// Writes one line to the command's stderr, like a shell.
fn report(child: &Child<'_>, failure: Failed, errno: i32) {
    let write = |text: &CStr| {
        // SAFETY: the pointer and length of one C string.
        unsafe { libc::write(2, text.as_ptr().cast(), text.to_bytes().len()) };
    };
    write(c"boxwood: ");
    match failure {
        Failed::Setup(step) => {
            write(c"failed to start the program: ");
            write(step);
        }
        Failed::Directory => {
            if let Some(cwd) = child.prepared.cwd.last() {
                write(c"working directory ");
                write(cwd);
            }
        }
        Failed::Program => {
            if let Some(program) = child.prepared.argv.first() {
                write(program);
            }
        }
    }
    write(match errno {
        libc::ENOENT if failure == Failed::Program => c": not found\n",
        libc::ENOENT | libc::ENOTDIR => c": no such directory\n",
        libc::EACCES => c": permission denied\n",
        libc::EROFS => c": read-only file system\n",
        libc::ENOSPC => c": no space left\n",
        libc::E2BIG => c": argument list too long\n",
        libc::ENOEXEC => c": not an executable\n",
        libc::EAGAIN => c": the box has reached its process limit\n",
        _ if failure == Failed::Program => c": cannot be executed\n",
        _ => c": failed\n",
    });
}
