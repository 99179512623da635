//! Init's life: spawn, signal, reap, refuse.
//!
//! Comes in: requests on the channel, ended children, refused system calls. Goes out: events. Never
//! here: the bytes that programs read and write; those go through pipes straight to the daemon.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use boxwood_init::{
    Channel, ChannelError, Ended, FromInit, Identity, KillScope, Plan, Program, Spawn, StdioPlan,
    ToInit,
};
use boxwood_sys::clone::{ChildStack, exit_now};
use boxwood_sys::{seccomp, signals};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, wait};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::command::{Prepared, Streams};
use crate::lockdown::Locked;
use crate::marks::{self, Marked};
use crate::step::{Step, StepError};
use crate::supervise::{self, Supervisor};
use crate::{denials, files, owner};

struct Running {
    id: u64,
    pid: i32,
    /// Stands between us and the command where no cgroup can hold its tree.
    supervisor: Option<Supervisor>,
    denied: Option<String>,
}

struct Init<'a> {
    channel: &'a Channel,
    plan: &'a Plan,
    null: OwnedFd,
    stack: ChildStack,
    running: Vec<Running>,
    /// Where there are no supervisors; see [`Marked`].
    marked: Option<Marked>,
}

pub(crate) fn run(channel: &Channel, plan: &Plan, locked: &Locked) -> ! {
    let Ok(null) = reserve_low_descriptors() else {
        exit_now(1)
    };
    let Ok(children) = signals::child_signals() else {
        exit_now(1)
    };
    let stack = ChildStack::new();
    let mut init = Init {
        channel,
        plan,
        null,
        stack,
        running: Vec::new(),
        marked: locked.marks.then(Marked::default),
    };
    loop {
        let mut waiting = vec![
            PollFd::new(channel, PollFlags::IN),
            PollFd::new(&children, PollFlags::IN),
        ];
        if let Some(listener) = &locked.listener {
            waiting.push(PollFd::new(listener, PollFlags::IN));
        }
        let pause = init.marked.as_ref().and_then(Marked::pause);
        match poll(&mut waiting, pause.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => exit_now(1),
        }
        let ready: Vec<PollFlags> = waiting.iter().map(PollFd::revents).collect();
        drop(waiting);
        // Refusals first: whoever waits for one cannot end.
        if let (Some(listener), Some(flags)) = (&locked.listener, ready.get(2))
            && flags.contains(PollFlags::IN)
        {
            init.refuse(listener.as_fd());
        }
        if ready[1].contains(PollFlags::IN) {
            signals::drain(children.as_fd());
            init.reap();
        }
        if !ready[0].is_empty() {
            init.obey();
        }
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
    fn tell(&self, event: &FromInit, fds: &[BorrowedFd<'_>]) {
        // The daemon gone means the end of the box, whatever it was about.
        if self.channel.send(event, fds).is_err() {
            exit_now(0);
        }
    }

    fn obey(&mut self) {
        let (message, fds) = match self.channel.receive::<ToInit>() {
            Ok(received) => received,
            Err(ChannelError::WouldBlock) => return,
            Err(_) => exit_now(0),
        };
        match message {
            ToInit::Plan(_) => {}
            ToInit::Spawn(spawn) => {
                let id = spawn.id;
                match self.spawn(spawn, &fds) {
                    Ok(terminal) => {
                        let master = terminal.as_ref().map(AsFd::as_fd);
                        self.tell(&FromInit::Spawned { id }, master.as_slice());
                    }
                    Err(StepError { step, errno }) => {
                        self.tell(&FromInit::SpawnFailed { id, step, errno }, &[]);
                    }
                }
            }
            ToInit::Signal { id, signal, scope } => self.signal(id, signal, scope),
            ToInit::Remember { .. } | ToInit::LetGo { .. } | ToInit::Release { .. } => {}
        }
    }

    /// Starts a program; a terminal's master side comes back where one was asked for.
    fn spawn(&mut self, spawn: Spawn, fds: &[OwnedFd]) -> Result<Option<OwnedFd>, StepError> {
        let at = |place: usize| crate::birth::fd_at(fds, place);
        let cgroup = spawn.cgroup.and_then(|place| fds.get(place));
        let (argv, env, cwd, stdio, script) = match spawn.program {
            Program::File { request, reply } => {
                let pid = files::start(&request, at(reply)?, self.plan.identity)
                    .step("start a file operation")?;
                self.running.push(Running {
                    id: spawn.id,
                    pid,
                    supervisor: None,
                    denied: None,
                });
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
        let plan = self.plan;
        let prepared = Prepared::new(&argv, &plan.environment, &env, &cwd, plan.identity)
            .step("prepare the command")?
            .marked(self.marked.as_ref().map(|_| marks::mark(spawn.id)));
        let script = script.map(at).transpose()?;
        let terminal = match stdio {
            StdioPlan::Terminal { rows, cols } => Some(open_terminal(rows, cols, &plan.identity)?),
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
        let running = if let Some(cgroup) = cgroup {
            let pid = prepared
                .start(&mut self.stack, &streams, Some(cgroup))
                .step("fork")?;
            Running {
                id: spawn.id,
                pid,
                supervisor: None,
                denied: None,
            }
        } else {
            self.check_room().step("fork")?;
            let (pid, supervisor) = supervise::start(&prepared, &streams).step("fork")?;
            Running {
                id: spawn.id,
                pid,
                supervisor: Some(supervisor),
                denied: None,
            }
        };
        self.running.push(running);
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
            self.tell(
                &FromInit::Exited {
                    id: running.id,
                    ended: Ended {
                        status,
                        denied_syscall: running.denied,
                        disk_full: status != 0 && self.disk_full(),
                    },
                },
                &[],
            );
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

fn thread_group(pid: i32) -> Option<i32> {
    status_field(pid, "Tgid:")
}

fn status_field(pid: i32, field: &str) -> Option<i32> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status
        .lines()
        .find_map(|line| line.strip_prefix(field))?
        .trim()
        .parse()
        .ok()
}

/// The terminal's node belongs to whoever opens it, and that has to be the commands' uid.
fn open_terminal(
    rows: u16,
    cols: u16,
    identity: &Identity,
) -> Result<(OwnedFd, OwnedFd), StepError> {
    owner::as_command(identity, || open_own_terminal(rows, cols)).step("open a terminal")?
}

fn open_own_terminal(rows: u16, cols: u16) -> Result<(OwnedFd, OwnedFd), StepError> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let open = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
    let master = rustix::fs::open("/dev/pts/ptmx", open, Mode::empty()).step("open a terminal")?;
    rustix::pty::unlockpt(&master).step("unlock the terminal")?;
    let size = Winsize {
        ws_row: rows,
        ws_col: cols,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(&master, size).step("set the terminal's size")?;
    let slave = match ioctl_tiocgptpeer(&master, flags) {
        // A kernel that cannot ask the master is asked for the name; nobody can mount over it here.
        Err(rustix::io::Errno::NOTTY) => {
            let name =
                rustix::pty::ptsname(&master, Vec::new()).step("name the terminal's other side")?;
            rustix::fs::open(name, open, Mode::empty())
        }
        opened => opened,
    }
    .step("open the terminal's other side")?;
    Ok((master, slave))
}
