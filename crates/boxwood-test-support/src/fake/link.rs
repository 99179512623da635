//! What ties a daemon to a box, and to each program in it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::boxes::FakeBox;
use super::host::FakeHost;
use super::life::Life;
use super::program::Program;

pub(super) struct Link {
    pub(super) host: Arc<FakeHost>,
    pub(super) life: Arc<Life>,
    pub(super) fake_box: Arc<FakeBox>,
    is_detached: AtomicBool,
}

impl Link {
    pub(super) fn new(host: &Arc<FakeHost>, life: &Arc<Life>, fake_box: Arc<FakeBox>) -> Arc<Self> {
        fake_box.set_owner(life);
        Arc::new(Self {
            host: Arc::clone(host),
            life: Arc::clone(life),
            fake_box,
            is_detached: AtomicBool::new(false),
        })
    }

    pub(super) fn detach(&self) {
        self.is_detached.store(true, Ordering::Release);
    }

    /// The daemon was killed.
    pub(super) fn is_killed(&self) -> bool {
        self.life.is_killed()
    }

    /// Whether what is dropped has an effect on the box.
    pub(super) fn is_active(&self) -> bool {
        !self.is_killed() && !self.is_detached.load(Ordering::Acquire)
    }
}

/// Held by every part of a process. Dropping the last one releases the program.
pub(super) struct Token {
    pub(super) link: Arc<Link>,
    pub(super) program: Arc<Program>,
}

impl Token {
    pub(super) fn new(link: Arc<Link>, program: Arc<Program>) -> Self {
        Self { link, program }
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        if self.link.is_active() {
            self.link.fake_box.release(&self.program);
        }
    }
}
