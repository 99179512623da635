//! Lets everybody in the box stand still for a moment, where no cgroup can freeze them.
//!
//! Comes in: who is to be spared. Goes out: whether the others stand still, and that they go on. Never
//! here: for how long; whoever asked says when, and init lets go when nobody is there to say it.
//!
//! `SIGSTOP` to everybody is one sweep that no fork slips through: the kernel gives a signal to many to
//! the child that is being born as well. Whoever was stopped before, by the box's own doing, does not
//! take that signal and has it pending, which is how they are told apart and left as they were.
//!
//! It is not the last word. A program can have the kernel send it `SIGCONT`, by a timer for one, and a
//! thread that nothing interrupts keeps the signal from the others. So there are looks for as long as a
//! hold lasts: threads that run are told one by one, and who goes on all the same is ended.

mod seen;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use self::seen::Posture;

/// Longer than any daemon holds a box. One that forgot must not stop it for good.
const AT_MOST: Duration = Duration::from_secs(15);

/// Between two looks whether everybody stands still.
const SOON: Duration = Duration::from_millis(1);

/// By then whoever could stand does.
const HURRY: Duration = Duration::from_millis(50);

/// To stop shells in their order. Everybody else goes on meanwhile.
const SHELLS_AT_MOST: Duration = Duration::from_millis(5);
const MOMENT: Duration = Duration::from_micros(50);

/// So often one program may go on by itself. The first time may be somebody's who does not know of the
/// hold: a terminal that is closed, a caller who sends a signal.
const ESCAPES: usize = 3;

/// And so often all of them together. Whoever leaves it to a child each time is not found out by the
/// other number.
const ESCAPES_OF_ALL: usize = 32;

/// Looks for the late-born after a hold, each after twice as long as the one before: a second.
const LAST_LOOKS: u32 = 10;

pub(crate) struct Hold {
    until: Instant,
    next_look: Instant,
    /// Who was seen to run and told to stop alone. They may have the signal for all pending too, and
    /// were not stopped before.
    told_alone: BTreeSet<i32>,
    /// What was begun since, with its descendants. It was not told to stop.
    begun: BTreeSet<i32>,
    /// Who went on by himself, and how often.
    escapes: BTreeMap<i32, usize>,
    /// Whether the daemon knows that everybody stands still.
    told: bool,
}

/// What a look at everybody shows.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Look {
    /// For the first time since somebody asked.
    Still,
    Nothing,
    /// They do not let themselves be stopped, and there is one signal left.
    Unruly,
}

impl Hold {
    /// `spared` are processes of ours: what the daemon asks of a box goes on.
    pub(crate) fn begin(spared: &[i32]) -> Self {
        let told_alone = stop_shells(spared);
        // SAFETY: integers only. Everybody but us.
        unsafe { libc::kill(-1, libc::SIGSTOP) };
        for &pid in spared {
            send(pid, Signal::CONT);
        }
        let now = Instant::now();
        Self {
            until: now + AT_MOST,
            next_look: now,
            told_alone,
            begun: BTreeSet::new(),
            escapes: BTreeMap::new(),
            told: false,
        }
    }

    /// Asked again, told again. Who began in between stops too.
    pub(crate) fn renew(&mut self) {
        self.until = Instant::now() + AT_MOST;
        self.told = false;
        self.begun.clear();
        self.escapes.clear();
    }

    /// A process of ours under which somebody begins now.
    pub(crate) fn lets_begin(&mut self, pid: i32) {
        self.begun.insert(pid);
    }

    /// How long until there is something to do; zero when it is over.
    pub(crate) fn pause(&self) -> Duration {
        let now = Instant::now();
        let left = self.until.saturating_duration_since(now);
        left.min(self.next_look.saturating_duration_since(now))
    }

    pub(crate) fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }

    /// Tells again who does not stand, and ends who would not.
    pub(crate) fn look(&mut self, spared: &[i32]) -> Look {
        let began = Instant::now();
        if began < self.next_look {
            return Look::Nothing;
        }
        let mut still = true;
        for pid in self.meant(spared) {
            // Threads stand and go on together, so one file tells of those who stood.
            if self.told && seen::is_stopped(pid) {
                continue;
            }
            match seen::posture(pid) {
                Posture::Still => continue,
                Posture::Leaving => {}
                Posture::Stopping(threads) => {
                    self.told_alone.insert(pid);
                    tell_threads(pid, &threads);
                }
                Posture::Running(threads) => {
                    self.told_alone.insert(pid);
                    let escapes = self.escapes.entry(pid).or_default();
                    *escapes += 1;
                    if *escapes < ESCAPES {
                        tell_threads(pid, &threads);
                    } else {
                        send(pid, Signal::KILL);
                    }
                }
            }
            still = false;
        }
        let now = Instant::now();
        // A box with many programs must not keep init, and a processor, busy for the whole time. Nor one in
        // which somebody waits for another who stands, and so cannot stand before the hold is over.
        let hurries = !self.told && self.until.saturating_duration_since(now) + HURRY > AT_MOST;
        let rest = if hurries { SOON } else { (now - began) * 2 };
        self.next_look = now + rest.max(SOON);
        if self.escapes.values().sum::<usize>() >= ESCAPES_OF_ALL {
            self.escapes.clear();
            return Look::Unruly;
        }
        if still && !self.told {
            self.told = true;
            return Look::Still;
        }
        Look::Nothing
    }

    /// Lets everybody go on who did before. What is left to do then, if anything.
    pub(crate) fn end(mut self, spared: &[i32]) -> Option<LastLooks> {
        // First, so that nobody is born who is not listed below.
        let still = seen::stand_still(&self.meant(spared));
        let others = self.meant(spared);
        let before = others.iter().copied().filter(|pid| seen::was_stopped(*pid));
        let before: BTreeSet<i32> = before
            .filter(|pid| !self.told_alone.contains(pid))
            .collect();
        // The youngest first: a shell that asks would find its job stopped.
        for pid in others.iter().rev().filter(|pid| !before.contains(pid)) {
            send(*pid, Signal::CONT);
        }
        if before.is_empty() {
            // Also to those who are being born with a signal to stop.
            // SAFETY: integers only. Everybody but us.
            unsafe { libc::kill(-1, libc::SIGCONT) };
            return None;
        }
        // They are not reached without waking those who were stopped before, so they are waited for.
        (!still).then(|| LastLooks {
            known: others.into_iter().chain(self.begun).collect(),
            made: 0,
            next_look: Instant::now(),
        })
    }

    /// Everybody who is to stand still.
    fn meant(&mut self, spared: &[i32]) -> Vec<i32> {
        let mut others = seen::others(spared);
        if !self.begun.is_empty() {
            seen::add_descendants(&mut self.begun);
            others.retain(|pid| !self.begun.contains(pid));
        }
        others
    }
}

/// After a hold that did not stop everybody: whoever was in the middle of a fork has a child with the
/// signal, who would stand there for good.
pub(crate) struct LastLooks {
    known: BTreeSet<i32>,
    made: u32,
    next_look: Instant,
}

impl LastLooks {
    pub(crate) fn pause(&self) -> Duration {
        self.next_look.saturating_duration_since(Instant::now())
    }

    /// False when it is enough.
    pub(crate) fn look_if_due(&mut self, spared: &[i32]) -> bool {
        if self.pause().is_zero() {
            self.look(spared);
            self.next_look = Instant::now() + SOON * 2_u32.pow(self.made);
            self.made += 1;
        }
        self.made < LAST_LOOKS
    }

    /// Whoever is seen for the first time is let go, once: later it is their own doing.
    pub(crate) fn look(&mut self, spared: &[i32]) {
        for pid in seen::others(spared) {
            if self.known.insert(pid) && seen::is_to_stop(pid) {
                send(pid, Signal::CONT);
            }
        }
    }
}

/// A shell on a terminal that finds its job stopped takes the terminal back. So whoever has a terminal is
/// stopped one after the other, and parents are older than their children. Those who were stopped by that.
fn stop_shells(spared: &[i32]) -> BTreeSet<i32> {
    let enough = Instant::now() + SHELLS_AT_MOST;
    let mut stopped = BTreeSet::new();
    for pid in seen::others(spared) {
        let stat = seen::stat(pid);
        if seen::has_terminal(&stat) && !seen::stands(&stat) {
            send(pid, Signal::STOP);
            stopped.insert(pid);
            while !seen::stand_still(&[pid]) && Instant::now() < enough {
                std::thread::sleep(MOMENT);
            }
        }
        if Instant::now() >= enough {
            break;
        }
    }
    stopped
}

/// One by one: the signal to all of them waits for one that the kernel chose, and that one may be where
/// nothing interrupts it.
fn tell_threads(pid: i32, threads: &[i32]) {
    for thread in threads {
        // SAFETY: integers only.
        unsafe { libc::syscall(libc::SYS_tgkill, pid, *thread, libc::SIGSTOP) };
    }
}

fn send(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = kill_process(pid, signal);
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command};

    use super::*;

    struct Sleeper(Child);

    impl Sleeper {
        fn start() -> Self {
            let sleeping = Command::new("sleep").arg("600").spawn();
            Self(sleeping.expect("a program that sleeps"))
        }

        fn pid(&self) -> i32 {
            i32::try_from(self.0.id()).expect("a pid")
        }

        fn is(&self, stopped: bool) {
            for _ in 0..5000 {
                if seen::stand_still(&[self.pid()]) == stopped {
                    return;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            panic!("it is never so: stopped {stopped}");
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn who_was_stopped_before_is_known_by_the_second_signal() {
        let sleeper = Sleeper::start();
        sleeper.is(false);
        assert!(!seen::was_stopped(sleeper.pid()), "it runs");
        send(sleeper.pid(), Signal::STOP);
        sleeper.is(true);
        assert!(
            !seen::was_stopped(sleeper.pid()),
            "it stands for the first time"
        );
        send(sleeper.pid(), Signal::STOP);
        assert!(seen::was_stopped(sleeper.pid()));
        // The second one does not stay behind.
        send(sleeper.pid(), Signal::CONT);
        sleeper.is(false);
        send(sleeper.pid(), Signal::STOP);
        sleeper.is(true);
        assert!(!seen::was_stopped(sleeper.pid()));
    }

    #[test]
    fn who_has_the_signal_is_told_from_who_goes_on_without() {
        let mut sleeper = Sleeper::start();
        let pid = sleeper.pid();
        let threads = vec![pid];
        assert_eq!(seen::posture(pid), Posture::Running(threads.clone()));
        tell_threads(pid, &threads);
        sleeper.is(true);
        assert_eq!(seen::posture(pid), Posture::Still);
        assert!(seen::is_to_stop(pid));
        tell_threads(pid, &threads);
        send(pid, Signal::CONT);
        assert_eq!(seen::posture(pid), Posture::Running(threads));
        assert!(!seen::is_to_stop(pid));
        sleeper.0.kill().expect("killed");
        sleeper.0.wait().expect("gone");
        assert_eq!(seen::posture(pid), Posture::Still, "gone");
    }

    #[test]
    fn descendants_are_found_below_their_roots() {
        let sleeper = Sleeper::start();
        let own = i32::try_from(std::process::id()).expect("a pid");
        let mut found = BTreeSet::from([own]);
        seen::add_descendants(&mut found);
        assert!(found.contains(&sleeper.pid()));
        let mut found = BTreeSet::from([sleeper.pid()]);
        seen::add_descendants(&mut found);
        assert_eq!(found, BTreeSet::from([sleeper.pid()]));
    }

    #[test]
    fn a_name_is_no_state() {
        assert!(seen::stands("7 (a) T) T 1 7"));
        assert!(!seen::stands("7 (a) T) R 1 7"));
        assert!(seen::stands(""), "gone");
        assert!(seen::has_terminal("7 (a) T) S 1 7 7 34816 7"));
        assert!(!seen::has_terminal("7 (a 1 2 3 4) S 1 7 7 0 -1"));
    }
}
