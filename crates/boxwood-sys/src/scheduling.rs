//! When a thread has its turn.

use std::io;

/// From now on this thread has a processor as soon as it wants one, before every ordinary thread.
/// Threads and processes that it begins are ordinary ones.
///
/// Not everybody may. A thread like this must sleep most of the time: nothing else runs meanwhile.
pub fn run_before_others() -> io::Result<()> {
    // The least of the priorities that are above all ordinary ones.
    let parameters = libc::sched_param { sched_priority: 1 };
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the kernel reads `parameters`, which outlives the call; 0 is the calling thread.
    let rc = unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) };
    if rc == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
