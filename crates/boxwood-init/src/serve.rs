//! Init's life: spawn, signal, reap, refuse.
//!
//! Comes in: requests on the channel, ended children, refused system calls. Goes out: events. Never
//! here: the bytes that programs read and write; those go through pipes straight to the daemon.

mod everybody;
mod holding;

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use boxwood_init::{
    ChannelError, EVERYBODY, Ended, FromInit, KillScope, Plan, Program, Spawn, StdioPlan, ToInit,
};
use boxwood_sys::clone::{ChildStack, exit_now};
use boxwood_sys::{seccomp, signals};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait};

use crate::command::{Prepared, Streams};
use crate::door::Daemon;
use crate::hold::{Hold, LastLooks};
use crate::kept::{Kept, Memory, Over};
use crate::lockdown::Locked;
use crate::marks::{self, Marked};
use crate::step::{Step, StepError};
use crate::supervise::{self, Supervisor};
use crate::{command, denials, files, terminal, tool};

struct Running {
    id: u64,
    pid: i32,
    /// Stands between us and the command where no cgroup can hold its tree.
    supervisor: Option<Supervisor>,
    denied: Option<String>,
    /// For the next daemon. Whatever nobody would ask for again dies with the one that started it.
    kept: Option<Kept>,
}

impl Running {
    /// A fork of ours that works for the daemon.
    fn helper(id: u64, pid: i32) -> Self {
        Self {
            id,
            pid,
            supervisor: None,
            denied: None,
            kept: None,
        }
    }
}

struct Init<'a> {
    daemon: Daemon,
    memory: Option<Memory>,
    over: Vec<Over>,
    landlock: bool,
    plan: &'a Plan,
    null: OwnedFd,
    stack: ChildStack,
    running: Vec<Running>,
    /// Where there are no supervisors; see [`Marked`].
    marked: Option<Marked>,
    relayed: bool,
    /// While everybody stands still for the daemon.
    hold: Option<Hold>,
    last_looks: Option<LastLooks>,
}

pub(crate) fn run(daemon: Daemon, plan: &Plan, locked: &Locked) -> ! {
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
        memory: None,
        over: Vec::new(),
        landlock: locked.landlock,
        plan,
        null,
        stack,
        running: Vec::new(),
        marked: locked.marks.then(Marked::default),
        relayed: locked.relayed,
        hold: None,
        last_looks: None,
    };
    loop {
        let ready = init.wait(children.as_fd(), locked.listener.as_ref());
        // Refusals first: whoever waits for one cannot end.
        if let Some(listener) = &locked.listener
            && ready.is(Who::Refused)
        {
            init.refuse(listener.as_fd());
        }
        if ready.is(Who::Child) {
            signals::drain(children.as_fd());
            init.reap();
        }
        if ready.is(Who::Daemon) {
            init.obey();
        }
        if ready.is(Who::Caller) {
            init.meet();
        }
        init.look_after_hold();
        if let Some(marked) = &mut init.marked {
            let running = &init.running;
            marked.hunt(|mark| {
                running
                    .iter()
                    .any(|running| marks::mark(running.id) == mark)
            });
        }
    }
}

/// Who may want something.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Who {
    Child,
    Refused,
    Daemon,
    Caller,
}

struct Ready(Vec<Who>);

impl Ready {
    fn is(&self, who: Who) -> bool {
        self.0.contains(&who)
    }
}

/// Commands get descriptors 0 to 3; what we receive must land above, or one would overwrite
/// another. The box's own `/dev/null` takes the low numbers.
fn reserve_low_descriptors() -> rustix::io::Result<OwnedFd> {
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    loop {
        let fd = rustix::io::fcntl_dupfd_cloexec(&null, 3)?;
        if std::os::fd::AsRawFd::as_raw_fd(&fd) >= 10 {
            return Ok(fd);
        }
        // Kept open for good.
        std::mem::forget(fd);
    }
}

impl Init<'_> {
    fn wait(&self, children: BorrowedFd<'_>, refusals: Option<&OwnedFd>) -> Ready {
        let watched: Vec<(Who, BorrowedFd<'_>)> = [
            Some((Who::Child, children)),
            refusals.map(|fd| (Who::Refused, fd.as_fd())),
            self.daemon.channel().map(|fd| (Who::Daemon, fd.as_fd())),
            self.daemon.listener().map(|fd| (Who::Caller, fd)),
        ]
        .into_iter()
        .flatten()
        .collect();
        let mut polled: Vec<PollFd<'_>> = watched
            .iter()
            .map(|&(_, fd)| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        let pauses = [
            self.marked.as_ref().and_then(Marked::pause),
            self.daemon.patience(),
            self.hold_pause().and_then(timespec),
        ];
        let shortest = |pause: &Timespec| (pause.tv_sec, pause.tv_nsec);
        let pause = pauses.into_iter().flatten().min_by_key(shortest);
        match poll(&mut polled, pause.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => exit_now(1),
        }
        let found = watched.iter().zip(&polled);
        Ready(
            found
                .filter(|(_, polled)| !polled.revents().is_empty())
                .map(|((who, _), _)| *who)
                .collect(),
        )
    }

    fn obey(&mut self) {
        let Some(channel) = self.daemon.channel() else {
            return;
        };
        let (message, fds) = match channel.receive::<ToInit>() {
            Ok(received) => received,
            Err(ChannelError::WouldBlock) => return,
            Err(_) => {
                self.daemon.lost();
                self.end_hold();
                self.end_unkept();
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
                            .tell(&FromInit::Spawned { id }, master.as_slice());
                    }
                    Err(StepError { step, errno }) => {
                        self.daemon
                            .tell(&FromInit::SpawnFailed { id, step, errno }, &[]);
                    }
                }
            }
            ToInit::Signal { id, signal, scope } => self.signal(id, signal, scope),
            ToInit::Remember { record } => self.memory = Some(Memory { record, fds }),
            ToInit::LetGo { id, place } => {
                if let Some(kept) = self.kept(id) {
                    kept.let_go(place);
                }
            }
            ToInit::Release { id } => {
                self.over.retain(|over| over.id != id);
                if let Some(running) = self.running.iter_mut().find(|running| running.id == id) {
                    running.kept = None;
                }
            }
        }
    }

    fn kept(&mut self, id: u64) -> Option<&mut Kept> {
        let running = self.running.iter_mut().find(|running| running.id == id);
        if let Some(running) = running {
            return running.kept.as_mut();
        }
        let over = self.over.iter_mut().find(|over| over.id == id);
        over.map(|over| &mut over.kept)
    }

    /// Takes the next daemon in and tells it everything. What the last one asked for before it went
    /// comes first.
    fn meet(&mut self) {
        let Some(next) = self.daemon.next() else {
            return;
        };
        while self.daemon.has_spoken() {
            self.obey();
        }
        self.daemon.replace(next);
        self.end_hold();
        self.end_unkept();
        let running = self.running.iter().filter(|it| it.kept.is_some()).count();
        let fds: Vec<BorrowedFd<'_>> = self
            .memory
            .iter()
            .flat_map(|memory| memory.fds.iter().map(AsFd::as_fd))
            .collect();
        let hello = FromInit::Hello {
            record: self.memory.as_ref().map(|memory| memory.record.clone()),
            landlock: self.landlock,
            kept: running + self.over.len(),
        };
        self.daemon.tell(&hello, &fds);
        for running in &self.running {
            if let Some(kept) = &running.kept {
                kept.show(&self.daemon, running.id, None);
            }
        }
        for over in &self.over {
            over.kept
                .show(&self.daemon, over.id, Some(over.ended.clone()));
        }
    }

    /// Programs that were started for nobody but the daemon that is gone.
    fn end_unkept(&mut self) {
        let ids: Vec<u64> = self
            .running
            .iter()
            .filter(|running| running.kept.is_none())
            .map(|running| running.id)
            .collect();
        for id in ids {
            self.signal(id, libc::SIGKILL, KillScope::Tree);
        }
    }

    /// Starts a program; a terminal's master side comes back where one was asked for.
    fn spawn(&mut self, spawn: Spawn, fds: Vec<OwnedFd>) -> Result<Option<OwnedFd>, StepError> {
        let at = |place: usize| crate::birth::fd_at(&fds, place);
        let cgroup = spawn.cgroup.and_then(|place| fds.get(place));
        let (argv, env, cwd, stdio, script) = match spawn.program {
            Program::File { request, reply } => {
                let pid = files::start(&request, at(reply)?, self.plan.identity)
                    .step("start a file operation")?;
                self.running.push(Running::helper(spawn.id, pid));
                return Ok(None);
            }
            Program::FileTool { order, answer } => {
                let pid = tool::start(at(order)?, at(answer)?, self.plan.identity)
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
        if let Some(keep) = &spawn.keep {
            Kept::check(keep, &fds)?;
        }
        let plan = self.plan;
        let prepared = Prepared::new(&argv, &plan.environment, &env, &cwd, plan.identity)
            .step("prepare the command")?
            .marked(self.marked.as_ref().map(|_| marks::mark(spawn.id)));
        let script = script.map(at).transpose()?;
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
                stdin: stdin.map(at).transpose()?.unwrap_or(self.null.as_fd()),
                stdout: at(stdout)?,
                stderr: at(stderr)?,
                script,
                terminal: false,
            },
            (None, StdioPlan::Terminal { .. }) => return Ok(None),
        };
        let master = match (&spawn.keep, &terminal) {
            (Some(_), Some((master, _))) => Some(master.try_clone().step("keep its terminal")?),
            _ => None,
        };
        let (pid, supervisor) = if let Some(cgroup) = cgroup {
            let pid = prepared.start(&mut self.stack, &streams, Some(cgroup));
            (pid.step("fork")?, None)
        } else {
            self.check_room().step("fork")?;
            let (pid, supervisor) = supervise::start(&prepared, &streams).step("fork")?;
            if let Some(hold) = &mut self.hold {
                hold.lets_begin(pid);
            }
            (pid, Some(supervisor))
        };
        self.running.push(Running {
            id: spawn.id,
            pid,
            supervisor,
            denied: None,
            kept: spawn.keep.map(|keep| Kept::take(keep, fds, master)),
        });
        Ok(terminal.map(|(master, _)| master))
    }

    /// Where the kernel counts processes by uid, a supervisor may be the last one that is let in: it
    /// would start, and its command would not. There has to be room for both.
    fn check_room(&self) -> rustix::io::Result<()> {
        let Some(limit) = self.plan.process_rlimit else {
            return Ok(());
        };
        // Init, the supervisors, and a command before it has its own uid.
        let taken = self.running.len() as u64 + 3;
        if taken > limit {
            return Err(rustix::io::Errno::AGAIN);
        }
        Ok(())
    }

    fn signal(&mut self, id: u64, signal: i32, scope: KillScope) {
        if id == EVERYBODY {
            match signal {
                libc::SIGSTOP => self.begin_hold(),
                libc::SIGCONT => self.end_hold(),
                _ => self.signal_everybody(signal),
            }
            return;
        }
        if let (KillScope::Tree, Some(marked)) = (scope, &mut self.marked) {
            marked.signal(id, signal);
            return;
        }
        let Some(running) = self.running.iter().find(|running| running.id == id) else {
            return;
        };
        match &running.supervisor {
            Some(supervisor) => supervisor.pass_on(signal, scope),
            None => {
                // The tree of a command with a cgroup is the daemon's to signal.
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
            // Orphans of finished commands end here too; nobody asks for them.
            let Some(at) = self.running.iter().position(|running| running.pid == pid) else {
                continue;
            };
            let running = self.running.swap_remove(at);
            let status = match running.supervisor {
                Some(supervisor) => supervisor.status(),
                None => status.as_raw(),
            };
            let ended = Ended {
                status,
                denied_syscall: running.denied,
                disk_full: status != 0 && self.disk_full(),
            };
            if let Some(kept) = running.kept {
                self.over.push(Over {
                    id: running.id,
                    kept,
                    ended: ended.clone(),
                });
            }
            let event = FromInit::Exited {
                id: running.id,
                ended,
            };
            self.daemon.tell(&event, &[]);
        }
    }

    fn disk_full(&self) -> bool {
        const TMPFS: i64 = 0x0102_1994;
        ["/tmp", "/home", "/dev/shm", &self.plan.workspace_path]
            .iter()
            .any(|path| {
                rustix::fs::statfs(*path).is_ok_and(|stat| {
                    #[allow(
                        clippy::unnecessary_cast,
                        reason = "the field's width varies by machine"
                    )]
                    let kind = stat.f_type as i64;
                    // Without any files there is nothing that counts them.
                    let no_file_left = stat.f_files > 0 && stat.f_ffree == 0;
                    kind == TMPFS && (stat.f_bavail == 0 || no_file_left)
                })
            })
    }

    /// Answers a refused call and remembers whose it was.
    fn refuse(&mut self, listener: BorrowedFd<'_>) {
        let Ok(Some(asked)) = seccomp::receive(listener) else {
            return;
        };
        let name = denials::name(asked.syscall);
        if let Some(running) = self.owner_of(asked.pid) {
            running.denied = Some(name);
        }
        let _ = seccomp::refuse(listener, &asked, libc::EPERM);
    }

    /// The command that a process descends from, as far as its parents still tell.
    fn owner_of(&mut self, pid: i32) -> Option<&mut Running> {
        let mut at = thread_group(pid)?;
        // No chain of parents is longer than the limit of processes.
        for _ in 0..4096 {
            if let Some(found) = self.running.iter().position(|running| running.pid == at) {
                return self.running.get_mut(found);
            }
            at = status_field(at, "PPid:").filter(|&parent| parent > 1)?;
        }
        None
    }
}

fn timespec(pause: Duration) -> Option<Timespec> {
    Timespec::try_from(pause).ok()
}

fn thread_group(pid: i32) -> Option<i32> {
    status_field(pid, "Tgid:")
}

fn status_field(pid: i32, field: &str) -> Option<i32> {
    let status = boxwood_sys::procfs::text(format!("/proc/{pid}/status")).ok()?;
    status
        .lines()
        .find_map(|line| line.strip_prefix(field))?
        .trim()
        .parse()
        .ok()
}
