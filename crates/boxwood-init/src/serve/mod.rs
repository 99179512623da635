//! The main loop of init: starts, signals and reaps programs, and answers denied system calls.
//!
//! Input and output of programs do not pass through init: pipes connect them directly to the daemon.

pub(crate) mod command;
pub(crate) mod daemon_connection;
pub(crate) mod file_operation;
mod file_tool;
pub(crate) mod group_tags;
pub(crate) mod owner;
mod retained;
mod signal_all;
pub(crate) mod supervisor;
mod terminal;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use boxwood_init::{
    ALL_PROGRAMS, Channel, ChannelError, Ended, FromInit, KillScope, Plan, Program, Spawn,
    StdioPlan, ToInit,
};
use boxwood_sys::clone::{ChildStack, exit_now};
use boxwood_sys::{mount, procfs, seccomp, signals};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait};

use self::command::{Prepared, Streams};
use self::daemon_connection::{DaemonConnection, DaemonListener};
use self::group_tags::TaggedTrees;
use self::retained::{BoxRecord, EndedProgram, Retained};
use self::supervisor::Supervisor;
use crate::setup::lockdown::Locked;
use crate::setup::{fd_at, seccomp_rules};
use crate::step::{Step, StepError};

struct Running {
    id: u64,
    pid: i32,
    /// Parent of the command where no cgroup tracks its process tree.
    supervisor: Option<Supervisor>,
    denied: Option<String>,
    /// For the next daemon. Programs without it are killed when their daemon disconnects.
    retained: Option<Retained>,
}

impl Running {
    /// A fork of init that does one file operation.
    fn helper(id: u64, pid: i32) -> Self {
        Self {
            id,
            pid,
            supervisor: None,
            denied: None,
            retained: None,
        }
    }
}

struct Init<'a> {
    daemon: DaemonConnection,
    record: Option<BoxRecord>,
    ended: Vec<EndedProgram>,
    landlock: bool,
    plan: &'a Plan,
    null: OwnedFd,
    stack: ChildStack,
    running: Vec<Running>,
    /// Used where the kernel has no subreapers.
    tagged: Option<TaggedTrees>,
    relayed: bool,
}

/// Reports the outcome of the setup to the daemon, and serves it if the setup succeeded.
pub(crate) fn start(
    channel: Channel,
    plan: &Plan,
    prepared: Result<(Locked, Option<DaemonListener>), StepError>,
) -> ! {
    match prepared {
        Ok((locked, listener)) => {
            if channel.send(&locked.ready(), &[]).is_err() {
                // The daemon is gone and has not recorded the box yet.
                exit_now(0);
            }
            run(DaemonConnection::new(channel, listener), plan, &locked)
        }
        Err(StepError { step, errno }) => {
            let _ = channel.send(&FromInit::PlanFailed { step, errno }, &[]);
            exit_now(1)
        }
    }
}

pub(crate) fn run(daemon: DaemonConnection, plan: &Plan, locked: &Locked) -> ! {
    let Ok(null) = reserve_low_descriptors() else {
        exit_now(1)
    };
    if command::raise_own_limit().is_err() {
        exit_now(1);
    }
    let Ok(children) = signals::child_signals() else {
        exit_now(1)
    };
    let stack = ChildStack::new();
    let mut init = Init {
        daemon,
        record: None,
        ended: Vec::new(),
        landlock: locked.landlock,
        plan,
        null,
        stack,
        running: Vec::new(),
        tagged: locked.group_tags.then(TaggedTrees::default),
        relayed: locked.relayed,
    };
    loop {
        let ready = init.wait(children.as_fd(), locked.listener.as_ref());
        // Denied calls first: a process that waits for one cannot exit.
        if let Some(listener) = &locked.listener
            && ready.contains(&Source::Seccomp)
        {
            init.deny_syscall(listener.as_fd());
        }
        if ready.contains(&Source::Child) {
            signals::drain(children.as_fd());
            init.reap();
        }
        if ready.contains(&Source::Daemon) {
            init.handle_message();
        }
        if ready.contains(&Source::Listener) {
            init.accept_daemon();
        }
        if let Some(tagged) = &mut init.tagged {
            let running = &init.running;
            tagged.kill_pending(|tag| {
                running
                    .iter()
                    .any(|running| group_tags::tag(running.id) == tag)
            });
        }
    }
}

/// Event sources of the main loop.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Child,
    Seccomp,
    Daemon,
    Listener,
}

/// Commands get descriptors 0 to 3. Received descriptors must be higher, or `dup3` could overwrite one that is
/// still needed, so the low numbers are filled with `/dev/null`.
fn reserve_low_descriptors() -> rustix::io::Result<OwnedFd> {
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    loop {
        let fd = rustix::io::fcntl_dupfd_cloexec(&null, 3)?;
        if std::os::fd::AsRawFd::as_raw_fd(&fd) >= 10 {
            return Ok(fd);
        }
        // Stays open until init exits.
        std::mem::forget(fd);
    }
}

impl Init<'_> {
    fn wait(&self, children: BorrowedFd<'_>, seccomp: Option<&OwnedFd>) -> Vec<Source> {
        let watched: Vec<(Source, BorrowedFd<'_>)> = [
            Some((Source::Child, children)),
            seccomp.map(|fd| (Source::Seccomp, fd.as_fd())),
            self.daemon.channel().map(|fd| (Source::Daemon, fd.as_fd())),
            self.daemon.listener().map(|fd| (Source::Listener, fd)),
        ]
        .into_iter()
        .flatten()
        .collect();
        let mut polled: Vec<PollFd<'_>> = watched
            .iter()
            .map(|&(_, fd)| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        let timeouts = [
            self.tagged.as_ref().and_then(TaggedTrees::poll_timeout),
            self.daemon.reconnect_timeout(),
        ];
        let shortest = |timeout: &Timespec| (timeout.tv_sec, timeout.tv_nsec);
        let timeout = timeouts.into_iter().flatten().min_by_key(shortest);
        match poll(&mut polled, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => exit_now(1),
        }
        let found = watched.iter().zip(&polled);
        found
            .filter(|(_, polled)| !polled.revents().is_empty())
            .map(|((source, _), _)| *source)
            .collect()
    }

    fn handle_message(&mut self) {
        let Some(channel) = self.daemon.channel() else {
            return;
        };
        let (message, fds) = match channel.receive::<ToInit>() {
            Ok(received) => received,
            Err(ChannelError::WouldBlock) => return,
            Err(_) => {
                self.daemon.disconnected();
                self.kill_unretained();
                return;
            }
        };
        match message {
            ToInit::Plan(_) => {}
            ToInit::Spawn(spawn) => {
                let id = spawn.id;
                match self.spawn(spawn, fds) {
                    Ok(terminal) => {
                        let master = terminal.as_ref().map(AsFd::as_fd);
                        self.daemon
                            .send(&FromInit::Spawned { id }, master.as_slice());
                    }
                    Err(StepError { step, errno }) => {
                        self.daemon
                            .send(&FromInit::SpawnFailed { id, step, errno }, &[]);
                    }
                }
            }
            ToInit::Signal { id, signal, scope } => self.signal(id, signal, scope),
            ToInit::SetRecord { record } => self.record = Some(BoxRecord { record, fds }),
            ToInit::CloseRetained { id, place: index } => {
                if let Some(retained) = self.retained(id) {
                    retained.close(index);
                }
            }
            ToInit::Release { id } => {
                self.ended.retain(|program| program.id != id);
                if let Some(running) = self.running.iter_mut().find(|running| running.id == id) {
                    running.retained = None;
                }
            }
        }
    }

    fn retained(&mut self, id: u64) -> Option<&mut Retained> {
        let running = self.running.iter_mut().find(|running| running.id == id);
        if let Some(running) = running {
            return running.retained.as_mut();
        }
        let program = self.ended.iter_mut().find(|program| program.id == id);
        program.map(|program| &mut program.retained)
    }

    /// Accepts the next daemon and sends it the state of the box. Pending requests of the previous daemon are
    /// handled first.
    fn accept_daemon(&mut self) {
        let Some(next) = self.daemon.accept() else {
            return;
        };
        while self.daemon.is_readable() {
            self.handle_message();
        }
        self.daemon.replace(next);
        self.kill_unretained();
        let running = self
            .running
            .iter()
            .filter(|running| running.retained.is_some())
            .count();
        let fds: Vec<BorrowedFd<'_>> = self
            .record
            .iter()
            .flat_map(|record| record.fds.iter().map(AsFd::as_fd))
            .collect();
        let hello = FromInit::Hello {
            record: self.record.as_ref().map(|record| record.record.clone()),
            landlock: self.landlock,
            retained: running + self.ended.len(),
        };
        self.daemon.send(&hello, &fds);
        for running in &self.running {
            if let Some(retained) = &running.retained {
                retained.send_to(&self.daemon, running.id, None);
            }
        }
        for program in &self.ended {
            program
                .retained
                .send_to(&self.daemon, program.id, Some(program.ended.clone()));
        }
    }

    /// Kills the programs that only the previous daemon could use.
    fn kill_unretained(&mut self) {
        let ids: Vec<u64> = self
            .running
            .iter()
            .filter(|running| running.retained.is_none())
            .map(|running| running.id)
            .collect();
        for id in ids {
            self.signal(id, libc::SIGKILL, KillScope::Tree);
        }
    }

    /// Starts a program. Returns the terminal's master if one was requested.
    fn spawn(&mut self, spawn: Spawn, fds: Vec<OwnedFd>) -> Result<Option<OwnedFd>, StepError> {
        let fd = |index: usize| fd_at(&fds, index);
        let cgroup = spawn.cgroup.and_then(|index| fds.get(index));
        let (argv, env, cwd, stdio, script) = match spawn.program {
            Program::File { request, reply } => {
                let pid = file_operation::start(&request, fd(reply)?, self.plan.identity)
                    .step("start a file operation")?;
                self.running.push(Running::helper(spawn.id, pid));
                return Ok(None);
            }
            Program::FileTool { request, response } => {
                let pid = file_tool::start(fd(request)?, fd(response)?, self.plan.identity)
                    .step("start a file tool")?;
                self.running.push(Running::helper(spawn.id, pid));
                return Ok(None);
            }
            Program::Command {
                argv,
                env,
                cwd,
                stdio,
                script,
            } => (argv, env, cwd, stdio, script),
        };
        if let Some(retain) = &spawn.retain {
            Retained::check(retain, &fds)?;
        }
        let plan = self.plan;
        let prepared = Prepared::new(&argv, &plan.environment, &env, &cwd, plan.identity)
            .step("prepare the command")?
            .tagged(self.tagged.as_ref().map(|_| group_tags::tag(spawn.id)));
        let script = script.map(fd).transpose()?;
        let terminal = match stdio {
            StdioPlan::Terminal { rows, cols } => Some(terminal::open(rows, cols, &plan.identity)?),
            StdioPlan::Streams { .. } => None,
        };
        let streams = match (&terminal, stdio) {
            (Some((_, slave)), _) => {
                let slave = slave.as_fd();
                Streams {
                    stdin: slave,
                    stdout: slave,
                    stderr: slave,
                    script,
                    terminal: true,
                }
            }
            (
                None,
                StdioPlan::Streams {
                    stdin,
                    stdout,
                    stderr,
                },
            ) => Streams {
                stdin: stdin.map(fd).transpose()?.unwrap_or(self.null.as_fd()),
                stdout: fd(stdout)?,
                stderr: fd(stderr)?,
                script,
                terminal: false,
            },
            (None, StdioPlan::Terminal { .. }) => return Ok(None),
        };
        let master = match (&spawn.retain, &terminal) {
            (Some(_), Some((master, _))) => {
                Some(master.try_clone().step("duplicate the terminal")?)
            }
            _ => None,
        };
        let (pid, supervisor) = if let Some(cgroup) = cgroup {
            let pid = prepared.start(&mut self.stack, &streams, Some(cgroup));
            (pid.step("fork")?, None)
        } else {
            self.check_room().step("fork")?;
            let (pid, supervisor) = supervisor::start(&prepared, &streams).step("fork")?;
            (pid, Some(supervisor))
        };
        self.running.push(Running {
            id: spawn.id,
            pid,
            supervisor,
            denied: None,
            retained: spawn
                .retain
                .map(|retain| Retained::take(retain, fds, master)),
        });
        Ok(terminal.map(|(master, _)| master))
    }

    /// With `RLIMIT_NPROC`, a supervisor could take the last free process and its command would fail to
    /// start. Checks that there is room for both.
    fn check_room(&self) -> rustix::io::Result<()> {
        let Some(limit) = self.plan.process_rlimit else {
            return Ok(());
        };
        // Init, the new supervisor, and its command before it changes its uid.
        let needed = self.running.len() as u64 + 3;
        if needed > limit {
            return Err(rustix::io::Errno::AGAIN);
        }
        Ok(())
    }

    fn signal(&mut self, id: u64, signal: i32, scope: KillScope) {
        if id == ALL_PROGRAMS {
            self.signal_all(signal);
            return;
        }
        if let (KillScope::Tree, Some(tagged)) = (scope, &mut self.tagged) {
            tagged.signal(id, signal);
            return;
        }
        let Some(running) = self.running.iter().find(|running| running.id == id) else {
            return;
        };
        match &running.supervisor {
            Some(supervisor) => supervisor.forward(signal, scope),
            None => {
                // The daemon signals the tree of a command that has a cgroup.
                if let (Some(pid), Some(signal)) =
                    (Pid::from_raw(running.pid), Signal::from_named_raw(signal))
                {
                    let _ = kill_process(pid, signal);
                }
            }
        }
    }

    fn reap(&mut self) {
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            let pid = pid.as_raw_nonzero().get();
            // Orphans of finished commands are reaped here too, without an event.
            let Some(index) = self.running.iter().position(|running| running.pid == pid) else {
                continue;
            };
            let running = self.running.swap_remove(index);
            let status = match running.supervisor {
                Some(supervisor) => supervisor.status(),
                None => status.as_raw(),
            };
            let ended = Ended {
                status,
                denied_syscall: running.denied,
                disk_full: status != 0 && self.disk_full(),
            };
            if let Some(retained) = running.retained {
                self.ended.push(EndedProgram {
                    id: running.id,
                    retained,
                    ended: ended.clone(),
                });
            }
            let event = FromInit::Exited {
                id: running.id,
                ended,
            };
            self.daemon.send(&event, &[]);
        }
    }

    fn disk_full(&self) -> bool {
        ["/tmp", "/home", "/dev/shm", &self.plan.workspace_path]
            .iter()
            .any(|path| {
                rustix::fs::statfs(*path).is_ok_and(|stat| {
                    #[allow(
                        clippy::unnecessary_cast,
                        reason = "the field's width varies by machine"
                    )]
                    let kind = stat.f_type as i64;
                    // `f_files` is 0 where inodes are not limited.
                    let no_inode_left = stat.f_files > 0 && stat.f_ffree == 0;
                    kind == mount::TMPFS && (stat.f_bavail == 0 || no_inode_left)
                })
            })
    }

    /// Denies a system call and records its name for the program that made it.
    fn deny_syscall(&mut self, listener: BorrowedFd<'_>) {
        let Ok(Some(call)) = seccomp::receive(listener) else {
            return;
        };
        let name = seccomp_rules::name(call.syscall);
        if let Some(running) = self.program_of(call.pid) {
            running.denied = Some(name);
        }
        let _ = seccomp::refuse(listener, &call, libc::EPERM);
    }

    /// The program that a process descends from. `None` if one of its ancestors has exited.
    fn program_of(&mut self, pid: i32) -> Option<&mut Running> {
        let mut ancestor: i32 = procfs::status_field(pid, "Tgid:").ok()?.parse().ok()?;
        // Bounds the loop: no chain of parents is longer than the process limit.
        for _ in 0..4096 {
            if let Some(found) = self
                .running
                .iter()
                .position(|running| running.pid == ancestor)
            {
                return self.running.get_mut(found);
            }
            ancestor = procfs::parent(ancestor).filter(|&parent| parent > 1)?;
        }
        None
    }
}
