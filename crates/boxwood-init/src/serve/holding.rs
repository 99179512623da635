//! Holding the box still when its daemon asks for it.

use std::time::Duration;

use boxwood_init::FromInit;

use super::Init;
use crate::hold::{Hold, LastLooks, Look};

impl Init<'_> {
    /// The relay of a box that has one would stop too, and with it everything that is asked of the box.
    pub(super) fn begin_hold(&mut self) {
        if self.relayed {
            self.daemon.tell(&FromInit::Held { still: false }, &[]);
        } else if let Some(hold) = &mut self.hold {
            hold.renew();
        } else {
            let own = self.own();
            // Whoever still stands because of the last one would seem to do so of their own.
            if let Some(mut looks) = self.last_looks.take() {
                looks.look(&own);
            }
            self.hold = Some(Hold::begin(&own));
        }
    }

    pub(super) fn look_after_hold(&mut self) {
        if self.hold_pause().is_none() {
            return;
        }
        let own = self.own();
        self.last_looks.take_if(|looks| !looks.look_if_due(&own));
        let Some(hold) = &mut self.hold else {
            return;
        };
        if hold.is_over() {
            self.end_hold();
            return;
        }
        match hold.look(&own) {
            Look::Still => self.daemon.tell(&FromInit::Held { still: true }, &[]),
            Look::Nothing => {}
            Look::Unruly => self.signal_everybody(libc::SIGKILL),
        }
    }

    pub(super) fn end_hold(&mut self) {
        if let Some(hold) = self.hold.take() {
            self.last_looks = hold.end(&self.own());
        }
    }

    /// How long until there is something to look after, if there is.
    pub(super) fn hold_pause(&self) -> Option<Duration> {
        let hold = self.hold.as_ref().map(Hold::pause);
        hold.or_else(|| self.last_looks.as_ref().map(LastLooks::pause))
    }

    /// Our own forks: supervisors, and whoever works for the daemon. Where a box is held no command has
    /// a cgroup, so none of them is a command.
    fn own(&self) -> Vec<i32> {
        self.running.iter().map(|running| running.pid).collect()
    }
}
