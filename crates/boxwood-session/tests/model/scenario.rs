//! Runs one plan.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use boxwood_api::ExecState;
use boxwood_session::{SessionError, ShutdownBoxes, Since};
use boxwood_test_support::FakeHost;

use crate::daemon::{Daemon, Killed, ledger_path};
use crate::model::{DIED, Model, State};
use crate::observe;
use crate::perform::{admitted, end_process, id, kill_box, perform, process_id};
use crate::plan::{Cut, Meanwhile, Op, PROCESSES, Step};

pub(crate) type Outcome = Result<(), String>;

pub(crate) struct Scenario<'a> {
    pub(crate) host: Arc<FakeHost>,
    pub(crate) directory: &'a Path,
    /// `None` between two daemons.
    pub(crate) daemon: Option<Daemon>,
    pub(crate) model: Model,
}

pub(crate) fn run(steps: &[Step]) -> Outcome {
    // In memory. Disk failures are tested in `boxwood-ledger`.
    let directory = tempfile::tempdir_in("/dev/shm").map_err(|error| error.to_string())?;
    // The first runtime of a process opens descriptors that all later ones share.
    Daemon::warm_up();
    let before = observe::descriptors();
    {
        let host = FakeHost::new();
        let mut scenario = Scenario {
            daemon: Daemon::start(&host, directory.path(), None).ok(),
            host,
            directory: directory.path(),
            model: Model::default(),
        };
        for (number, step) in steps.iter().enumerate() {
            let outcome = scenario.step(step).and_then(|()| scenario.compare());
            outcome.map_err(|error| format!("step {number} ({step:?}): {error}"))?;
        }
        scenario.finish()?;
    }
    let until = Instant::now() + Duration::from_secs(5);
    while observe::descriptors() > before {
        if Instant::now() > until {
            return Err(format!(
                "{} descriptors, before {before}",
                observe::descriptors()
            ));
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    Ok(())
}

impl Scenario<'_> {
    fn daemon(&mut self) -> Result<&mut Daemon, String> {
        self.daemon.as_mut().ok_or_else(|| "no daemon".to_owned())
    }

    fn compare(&mut self) -> Outcome {
        let daemon = self.daemon.as_mut().ok_or("no daemon")?;
        observe::compare(daemon, &self.host, &self.model)
    }

    fn step(&mut self, step: &Step) -> Outcome {
        match step {
            Step::Calm(op) => {
                if self.apply_if_event(op) {
                    return Ok(());
                }
                let acting = perform(self.daemon()?.sessions.clone(), &self.model, op.clone());
                let response = self.daemon()?.run("acting", acting);
                self.check_response(op, &response)
            }
            Step::Killed {
                during,
                cut,
                meanwhile,
                second_cut,
            } => self.killed(during.as_ref(), *cut, meanwhile, *second_cut),
            Step::KilledWithExec {
                session,
                cut,
                code,
                early,
            } => self.killed_with_exec(*session, *cut, *code, *early),
            Step::HandedOver => {
                self.daemon
                    .take()
                    .ok_or("no daemon")?
                    .end(ShutdownBoxes::Keep);
                self.next_daemon(None)
            }
        }
    }

    /// Applies an event. Returns false if `op` is a request to the daemon.
    fn apply_if_event(&mut self, op: &Op) -> bool {
        match op {
            Op::Ends {
                session,
                process,
                code,
            } => {
                if end_process(&self.host, *session, *process, *code) {
                    self.model.ended(*session, *process, i32::from(*code));
                }
                true
            }
            Op::Dies { session } => {
                if kill_box(&self.host, *session) {
                    self.model.end_session(*session, Some(DIED));
                }
                true
            }
            _ => false,
        }
    }

    fn killed(
        &mut self,
        during: Option<&Op>,
        cut: Cut,
        meanwhile: &[Meanwhile],
        second_cut: Option<Cut>,
    ) -> Outcome {
        let daemon = self.daemon.take().ok_or("no daemon")?;
        let mut unanswered = None;
        match during {
            Some(op) if self.apply_if_event(op) => {
                daemon.kill("dying", async {}, cut);
            }
            Some(op) => {
                let acting = perform(daemon.sessions.clone(), &self.model, op.clone());
                match daemon.kill("acting", acting, cut) {
                    // The response does not tell which sessions have expired.
                    Some(_) if matches!(op, Op::Expire) => unanswered = Some(op),
                    Some(response) => self.check_response(op, &response)?,
                    None => unanswered = Some(op),
                }
            }
            None => {
                daemon.kill("dying", async {}, cut);
            }
        }
        // These events take effect whatever the daemon was doing.
        let mut died = Vec::new();
        let mut ended = Vec::new();
        for event in meanwhile {
            match event {
                Meanwhile::Ends {
                    session,
                    process,
                    code,
                } => {
                    if end_process(&self.host, *session, *process, *code) {
                        ended.push((*session, *process, *code));
                    }
                }
                Meanwhile::Dies { session } => {
                    if kill_box(&self.host, *session) {
                        died.push(*session);
                    }
                }
                Meanwhile::LedgerLost => self.lose_ledger(),
                Meanwhile::LedgerDamaged => self.damage_ledger(),
            }
        }
        if let Some(cut) = second_cut {
            let started = Daemon::start(&self.host, self.directory, Some(cut));
            if let Ok(daemon) = started {
                daemon.kill("dying", async {}, Cut::Turns(0));
            }
            self.host.crash();
            self.host.mend();
        }
        for session in &died {
            self.model.end_session(*session, None);
        }
        self.next_daemon(unanswered)?;
        let observed = observe::sessions(self.daemon()?);
        if let Some(session) = died.iter().find(|session| observed.contains_key(*session)) {
            return Err(format!("session {session} is there, and its box had died"));
        }
        for (session, process, code) in ended {
            if self.model.is_running(session, process) {
                self.model.ended(session, process, i32::from(code));
            }
        }
        Ok(())
    }

    fn next_daemon(&mut self, unanswered: Option<&Op>) -> Outcome {
        let daemon = Daemon::start(&self.host, self.directory, None);
        self.daemon = Some(daemon.map_err(|Killed| "killed without a request")?);
        if let Some(op) = unanswered {
            let observed = observe::sessions(self.daemon()?);
            self.model.settle(op, &observed)?;
            self.end_stopped_processes(op)?;
            if let Op::Send {
                session,
                process,
                bytes,
            } = op
            {
                self.settle_input(*session, *process, *bytes)?;
            }
        }
        Ok(())
    }

    /// Ends processes whose stop was interrupted after their input was closed and before a signal was sent. They
    /// would end at an unknown time.
    fn end_stopped_processes(&mut self, op: &Op) -> Outcome {
        let (session, only) = match op {
            Op::Stop { session, process }
            | Op::Start {
                session,
                process,
                replace: true,
            } => (*session, Some(*process)),
            Op::Delete { session } => (*session, None),
            _ => return Ok(()),
        };
        for process in (0..PROCESSES).filter(|process| only.is_none_or(|only| only == *process)) {
            let until = Instant::now() + Duration::from_secs(5);
            while self.model.is_running(session, process) {
                // It may have ended by itself.
                end_process(&self.host, session, process, 77);
                self.daemon()?.run("waiting for a process", async {
                    tokio::task::yield_now().await;
                    std::thread::sleep(Duration::from_micros(200));
                });
                let observed = observe::sessions(self.daemon()?);
                let found = observed
                    .get(&session)
                    .and_then(|found| found.processes.get(&process));
                if let Some(State::Ended(Some(code))) = found.map(|found| &found.state) {
                    self.model.ended(session, process, *code);
                }
                if Instant::now() > until {
                    return Err(format!("process {process} in {session} does not end"));
                }
            }
        }
        Ok(())
    }

    /// Asks the daemon how much of the input was accepted before it was killed.
    fn settle_input(&mut self, session: u8, process: u8, bytes: u16) -> Outcome {
        if !self.model.is_running(session, process) {
            return Ok(());
        }
        let input_bytes = self.model.input_bytes(session, process);
        let sessions = self.daemon()?.sessions.clone();
        let asking = async move {
            let (id, process) = (id(session), process_id(process));
            let found = sessions.check_attachable_at(&id, &process, Since::Now)?;
            let attachment = found.attach_at(Since::Now).await?;
            Ok::<_, SessionError>(attachment.stdin_accepted())
        };
        let accepted = self.daemon()?.run("asking for its input", asking);
        let accepted = match accepted {
            Ok(accepted) => accepted,
            // The process has ended; `compare` checks that.
            Err(SessionError::ProcessNotRunning { .. }) => return Ok(()),
            Err(error) => return Err(format!("a running process is not attachable: {error}")),
        };
        if accepted < input_bytes || accepted > input_bytes + u64::from(bytes) {
            return Err(format!(
                "{accepted} bytes were accepted, of {input_bytes} + {bytes}"
            ));
        }
        self.model.input_bytes.insert((session, process), accepted);
        Ok(())
    }

    fn killed_with_exec(&mut self, session: u8, cut: u8, code: u8, early: bool) -> Outcome {
        let daemon = self.daemon.take().ok_or("no daemon")?;
        let kind = self
            .model
            .sessions
            .get(&session)
            .map_or(0, |found| found.kind);
        let sessions = daemon.sessions.clone();
        let admission = admitted(session, kind, "@ name x; say hello; stay");
        let running = async move { sessions.exec(admission).await };
        if let Some(ended) = daemon.kill("executing", running, Cut::Turns(cut)) {
            return Err(format!("a command that stays has ended: {ended:?}"));
        }
        let end = |host: &FakeHost| {
            let found = host.box_of(&id(session));
            found.is_some_and(|found| found.end_program("x", i32::from(code)))
        };
        let ended_early = early && end(&self.host);
        let during = Op::Exec {
            session,
            kind,
            code,
        };
        self.next_daemon(Some(&during))?;
        let ran = ended_early || end(&self.host);
        if !self.model.sessions.contains_key(&session) {
            return if ran {
                Err("a command ran in a session that is not there".to_owned())
            } else {
                Ok(())
            };
        }
        self.check_exec(session, code, ran)
    }

    fn check_exec(&mut self, session: u8, code: u8, ran: bool) -> Outcome {
        let until = Instant::now() + Duration::from_secs(5);
        loop {
            let sessions = self.daemon()?.sessions.clone();
            let execs = sessions
                .execs(&id(session))
                .map_err(|error| error.to_string())?;
            let found = execs.iter().filter(|exec| exec.command.contains("name x"));
            let found = found.max_by_key(|exec| exec.started_at);
            let Some(found) = found else {
                return if ran {
                    Err("the command that ran is not listed".to_owned())
                } else {
                    Ok(())
                };
            };
            if !ran {
                return Err("a command is known that never ran".to_owned());
            }
            if found.state == ExecState::Ended {
                let detail = sessions.exec_detail(&id(session), found.exec_id);
                let detail = detail.map_err(|error| error.to_string())?;
                let result = detail.result.ok_or("an ended command has no result")?;
                if result.exit_code != Some(i32::from(code)) || result.stdout != "hello\n" {
                    return Err(format!(
                        "the command ended with {code}, but its result is {result:?}"
                    ));
                }
                return Ok(());
            }
            if Instant::now() > until {
                return Err(format!("the command has ended, but is listed as {found:?}"));
            }
            self.daemon()?.run("waiting for a command", async {
                tokio::task::yield_now().await;
                std::thread::sleep(Duration::from_micros(200));
            });
        }
    }

    fn lose_ledger(&mut self) {
        for ending in ["", "-wal", "-shm"] {
            let mut path = ledger_path(self.directory).into_os_string();
            path.push(ending);
            // It need not be there.
            let _ = fs::remove_file(path);
        }
        self.forget_reasons();
    }

    fn damage_ledger(&mut self) {
        self.lose_ledger();
        // The ledger thread of the killed daemon may still write; the file is damaged in any case.
        let written = fs::write(ledger_path(self.directory), [b'?'; 8192]);
        written.expect("the ledger is writable");
    }

    /// Only the ledger stores the reasons.
    fn forget_reasons(&mut self) {
        for past in &mut self.model.past {
            past.why = None;
        }
    }

    fn finish(mut self) -> Outcome {
        let mut daemon = self.daemon.take().ok_or("no daemon")?;
        let sessions = daemon.sessions.clone();
        let ids: Vec<_> = self.model.sessions.keys().copied().collect();
        daemon.run("deleting everything", async move {
            for session in ids {
                // What has died is gone already.
                let _ = sessions.delete(&id(session), "the end").await;
            }
        });
        self.model.sessions.clear();
        observe::compare(&mut daemon, &self.host, &self.model)?;
        daemon.end(ShutdownBoxes::Stop);
        Ok(())
    }
}
