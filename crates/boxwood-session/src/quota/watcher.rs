//! Watches how much room a file system has, for as long as boxes write to it.
//!
//! Comes in: time, and how much is free. Goes out: inspections of what may have grown too much. Never here:
//! walks, or anything else that takes longer than a question to the kernel. A thread of its own, because
//! being late by a few milliseconds is a hundred megabytes.

use std::io;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::thread;
use std::time::{Duration, Instant};

use boxwood_sys::scheduling::run_before_others;
use tokio::runtime::Handle;

use super::inspection::{inspect, protect_host, stop_restless};
use super::rule::{LONGEST_PAUSE, Look, pause};
use super::system::{Member, Room, System};
use crate::activity::lock;

/// While nobody has a quota and the host has room.
const UNHURRIED: Duration = Duration::from_secs(1);
/// Between two looks while an inspection goes on.
const SOON: Duration = Duration::from_millis(5);
/// The same while a box does not stand still.
const AT_ONCE: Duration = Duration::from_millis(1);
/// For walks in this thread, at each look. A thousand files are walked in a millisecond.
const QUICK: Duration = Duration::from_millis(3);
/// From one protection of a host without room to the next, while it loses little.
const FLOOR_PERIOD: Duration = Duration::from_secs(1);
/// The same as a multiple of how long the last one took: boxes stand still meanwhile, also those that
/// write nothing.
const FLOOR_REST: u32 = 10;

/// Before most of what else wants a processor.
const FIRST: i32 = -20;

pub(super) fn start(system: Arc<System>, runtime: Handle) -> io::Result<()> {
    let name = "disk-watch".to_owned();
    thread::Builder::new().name(name).spawn(move || {
        // Whoever drops the last of something here may need a task for it.
        let _inside = runtime.enter();
        go_first();
        let mut watcher = Watcher {
            system,
            runtime,
            protected: None,
        };
        while let Some(pause) = watcher.look() {
            watcher.system.wait(pause);
        }
    })?;
    Ok(())
}

/// Boxes that write keep a machine busy, and this must not wait behind them. Not everybody may, and not
/// everywhere; then it waits its turn like anybody, and boxes come further before they are stopped.
fn go_first() {
    if run_before_others().is_err() {
        let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), FIRST);
    }
}

struct Watcher {
    system: Arc<System>,
    runtime: Handle,
    /// When the host last had too little.
    protected: Option<Protected>,
}

struct Protected {
    began: Instant,
    /// As far as is known by now.
    ended: Instant,
    /// How much there was at its beginning.
    available: u64,
}

impl Protected {
    fn is_due_again(&self, available: u64, floor: u64) -> bool {
        let lost = self.available.saturating_sub(available);
        let rest = FLOOR_PERIOD.max((self.ended - self.began) * FLOOR_REST);
        lost > floor / 8 || self.ended.elapsed() >= rest
    }
}

impl Watcher {
    /// How long until the next look; `None` when there is nobody left.
    fn look(&mut self) -> Option<Duration> {
        let members = self.system.members_or_done()?;
        let room = match self.system.room_now() {
            Ok(room) => room,
            Err(error) => {
                tracing::warn!(%error, "how much room a file system has cannot be told");
                return Some(UNHURRIED);
            }
        };
        let mut next = self.floor(room);
        let now = Instant::now();
        for member in &members {
            next = next.min(self.member(member, room, now));
        }
        Some(next)
    }

    fn member(&self, member: &Member, room: Room, now: Instant) -> Duration {
        let Some(limit) = member.limit else {
            return UNHURRIED;
        };
        let look = {
            let mut account = lock(&member.place.account);
            account.saw(room.free);
            account.look(limit, now)
        };
        let pause = match look {
            // It writes nothing.
            _ if member.session.activity.frost.is_frozen() => LONGEST_PAUSE,
            Look::Again(pause) => pause,
            Look::Close | Look::Due => {
                if member.place.begin_inspection(look) {
                    let (system, place) = (Arc::clone(&self.system), Arc::clone(&member.place));
                    self.begin(inspect(system, place, look, now + QUICK));
                }
                SOON
            }
        };
        if !member.place.is_restless() {
            return pause;
        }
        let (system, place) = (Arc::clone(&self.system), Arc::clone(&member.place));
        self.begin(stop_restless(system, place));
        pause.min(AT_ONCE)
    }

    /// Sees to it that something is left to the host.
    fn floor(&mut self, room: Room) -> Duration {
        let floor = self.system.floor;
        if room.available >= floor {
            self.protected = None;
            return if floor == 0 {
                UNHURRIED
            } else {
                pause(room.available - floor).max(self.unhurried(room))
            };
        }
        if !self.system.begin_protection() {
            if let Some(protected) = &mut self.protected {
                protected.ended = Instant::now();
            }
            return SOON;
        }
        let last = self.protected.as_ref();
        if last.is_none_or(|last| last.is_due_again(room.available, floor)) {
            let began = Instant::now();
            self.protected = Some(Protected {
                began,
                ended: began,
                available: room.available,
            });
            self.begin(protect_host(Arc::clone(&self.system)));
        } else {
            self.system.end_protection();
        }
        SOON
    }

    /// Its first step, in which boxes are told to stand still, is done here and now. On a busy machine a
    /// task waits for tens of milliseconds until it has its turn, and everybody writes meanwhile.
    fn begin(&self, work: impl Future<Output = ()> + Send + 'static) {
        let mut work = Box::pin(work);
        // Whoever polls next, which is at once, is woken from then on.
        let step = work.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        if step.is_pending() {
            self.runtime.spawn(work);
        }
    }

    /// Far from the floor there is no hurry.
    fn unhurried(&self, room: Room) -> Duration {
        if pause(room.available - self.system.floor) >= LONGEST_PAUSE {
            UNHURRIED
        } else {
            Duration::ZERO
        }
    }
}
