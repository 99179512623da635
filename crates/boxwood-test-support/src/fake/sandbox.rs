//! The sandbox object of a daemon for a fake box.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use boxwood_api::{IsolationLabel, Mechanism, MissingMechanism, NetworkIsolation};
use boxwood_backend::{
    Adopted, BoxFuture, ControlError, FileAnswer, FileCall, FileError, KeptProcess, MountError,
    Process, Sandbox, SpawnError, SpawnRequest, StopError,
};
use boxwood_policy::AdmittedMount;

use super::boxes::FakeBox;
use super::life::Point;
use super::link::Link;
use super::{Mounting, control, files, launch, lock, pipes};

pub(super) struct FakeSandbox {
    link: Arc<Link>,
    label: IsolationLabel,
    /// `None` if mounts cannot be added to the running box.
    mounting: Option<Arc<Mounting>>,
    freezes: bool,
}

impl FakeSandbox {
    pub(super) fn new(link: Arc<Link>, mounting: Option<Arc<Mounting>>, freezes: bool) -> Self {
        Self {
            link,
            label: label(),
            mounting,
            freezes,
        }
    }

    /// Takes over the programs that an earlier daemon kept, and kills the others.
    pub(super) fn adopted(self, record: Vec<u8>) -> io::Result<Adopted> {
        let mut processes = Vec::new();
        for program in self.link.fake_box.all() {
            match program.copies()? {
                Some(copies) => processes.push(KeptProcess {
                    note: copies.note,
                    files: copies.files,
                    process: pipes::process(&self.link, &program, copies.ends)?,
                }),
                None => program.kill(),
            }
        }
        Ok(Adopted {
            sandbox: Arc::new(self),
            record,
            processes,
        })
    }

    async fn reach(&self, point: Point) -> io::Result<()> {
        let Link {
            host,
            life,
            fake_box,
            ..
        } = &*self.link;
        host.faults.reach(point, life, Some(fake_box)).await
    }

    /// Runs `work` on a blocking thread, because it scans `/proc`.
    async fn run_blocking(&self, work: fn(&FakeBox)) -> Result<(), ControlError> {
        let fake_box = Arc::clone(&self.link.fake_box);
        let done = tokio::task::spawn_blocking(move || work(&fake_box)).await;
        done.map_err(|error| ControlError::Io(io::Error::other(error)))
    }

    async fn start_program(&self, request: SpawnRequest) -> Result<Process, SpawnError> {
        let failed = |source| SpawnError::Step {
            step: "the test asked for it".to_owned(),
            source,
        };
        self.reach(Point::BeforeSpawn).await.map_err(failed)?;
        if !self.is_alive() {
            return Err(SpawnError::Gone);
        }
        let (program, ends) = launch::start(&self.link.fake_box, request)?;
        let process = pipes::process(&self.link, &program, ends).map_err(failed)?;
        if let Err(error) = self.reach(Point::Spawned).await {
            program.kill();
            return Err(failed(error));
        }
        control::until_on_terminal(&program).await;
        Ok(process)
    }

    async fn join(&self, mount: &AdmittedMount) -> Result<(), MountError> {
        let Some(mounting) = &self.mounting else {
            return Err(MountError::Unsupported);
        };
        let delay = *lock(&mounting.delay);
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        if !self.is_alive() {
            return Err(MountError::Gone);
        }
        if let Some(why) = lock(&mounting.failure).take() {
            return Err(MountError::Step {
                mount_path: mount.mount_path().to_owned(),
                step: "the test asked for it".to_owned(),
                source: io::Error::other(why),
            });
        }
        mounting.count.fetch_add(1, Ordering::AcqRel);
        self.link.fake_box.mount(mount);
        Ok(())
    }

    async fn tear_down(&self) -> Result<(), StopError> {
        let failed = |source| StopError {
            step: "removing the box's directory".to_owned(),
            source,
        };
        self.reach(Point::BeforeStop).await.map_err(failed)?;
        let (host, fake_box) = (Arc::clone(&self.link.host), Arc::clone(&self.link.fake_box));
        let removing = tokio::task::spawn_blocking(move || {
            let removed = fake_box.remove();
            host.forget(fake_box.id());
            removed
        });
        match removing.await {
            Ok(outcome) => outcome.map_err(failed)?,
            Err(error) => return Err(failed(io::Error::other(error))),
        }
        self.reach(Point::Stopped).await.map_err(failed)
    }

    async fn store_record(&self, record: &[u8]) -> Result<(), ControlError> {
        let reached = self.reach(Point::BeforeRemember).await;
        reached.map_err(ControlError::Io)?;
        if !self.is_alive() {
            return Err(ControlError::Gone);
        }
        self.link.fake_box.remember(record);
        let reached = self.reach(Point::AfterRemember).await;
        reached.map_err(ControlError::Io)
    }
}

impl Drop for FakeSandbox {
    fn drop(&mut self) {
        if self.link.is_active() {
            self.link.fake_box.die();
            self.link.host.forget(self.link.fake_box.id());
        }
    }
}

fn label() -> IsolationLabel {
    let missing = Mechanism::ALL
        .into_iter()
        .map(|mechanism| MissingMechanism {
            mechanism,
            why: "the fake backend has no isolation; it exists for tests".to_owned(),
        })
        .collect();
    IsolationLabel {
        backend: "fake (no isolation)".to_owned(),
        runtime: None,
        network: NetworkIsolation::Host,
        in_force: Vec::new(),
        missing,
    }
}

impl Sandbox for FakeSandbox {
    fn id(&self) -> &str {
        self.link.fake_box.id()
    }

    fn label(&self) -> &IsolationLabel {
        &self.label
    }

    fn spawn(&self, request: SpawnRequest) -> BoxFuture<'_, Result<Process, SpawnError>> {
        Box::pin(self.link.life.live(self.start_program(request)))
    }

    fn file(&self, call: FileCall) -> BoxFuture<'_, Result<FileAnswer, FileError>> {
        Box::pin(self.link.life.live(async move {
            if !self.is_alive() {
                return Err(FileError::Gone);
            }
            files::answer(&self.link.fake_box, call)
        }))
    }

    fn mount<'a>(&'a self, mount: &'a AdmittedMount) -> BoxFuture<'a, Result<(), MountError>> {
        Box::pin(self.link.life.live(self.join(mount)))
    }

    fn is_alive(&self) -> bool {
        self.link.fake_box.is_alive()
    }

    fn gone(&self) -> BoxFuture<'_, ()> {
        let mut alive = self.link.fake_box.alive();
        Box::pin(self.link.life.live(async move {
            // The sender is part of the box.
            let _ = alive.wait_for(|alive| !alive).await;
        }))
    }

    fn remember<'a>(&'a self, record: &'a [u8]) -> BoxFuture<'a, Result<(), ControlError>> {
        Box::pin(self.link.life.live(self.store_record(record)))
    }

    fn detach(&self) {
        self.link.detach();
    }

    fn freeze(&self) -> BoxFuture<'_, Result<bool, ControlError>> {
        Box::pin(self.link.life.live(async move {
            if !self.freezes {
                return Ok(false);
            }
            if !self.is_alive() {
                return Err(ControlError::Gone);
            }
            self.link.fake_box.set_frozen(true);
            self.run_blocking(FakeBox::settle).await.map(|()| true)
        }))
    }

    fn thaw(&self) -> BoxFuture<'_, Result<(), ControlError>> {
        Box::pin(self.link.life.live(async move {
            let reached = self.reach(Point::BeforeThaw).await;
            reached.map_err(ControlError::Io)?;
            if !self.is_alive() {
                return Err(ControlError::Gone);
            }
            self.link.fake_box.set_frozen(false);
            self.run_blocking(FakeBox::settle).await
        }))
    }

    fn kill_all(&self) -> BoxFuture<'_, Result<(), ControlError>> {
        Box::pin(self.link.life.live(async move {
            if !self.is_alive() {
                return Err(ControlError::Gone);
            }
            self.run_blocking(FakeBox::kill_all).await
        }))
    }

    fn stop(&self) -> BoxFuture<'_, Result<(), StopError>> {
        Box::pin(self.link.life.live(self.tear_down()))
    }
}
