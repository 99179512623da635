//! What hosting may take and how patient it is.

use std::path::PathBuf;
use std::time::Duration;

#[derive(Clone, Debug)]
pub struct HostingSettings {
    /// Everything hosting keeps is below it.
    pub directory: PathBuf,
    /// How many servers may be starting at the same time. The others wait for their turn.
    pub starts_at_once: usize,
    pub max_servers: usize,
    /// How many transient tests may be going on at the same time.
    pub max_tests: usize,
    /// Processes of one server beside its main one.
    pub max_children: usize,
    /// A child that nobody spoke to for so long is stopped.
    pub idle_child: Duration,
    /// For a call by hand.
    pub call_timeout: Duration,
    pub ping_every: Duration,
    pub ping_timeout: Duration,
    /// Pings in a row without an answer that make a server count as broken.
    pub lost_pings: u32,
    /// A server that works on a call may leave pings unanswered for so long. No shorter than the longest
    /// call: then it is the call that ends, and not the server with everybody else's calls.
    pub busy_patience: Duration,
    /// After so long without trouble, earlier failures are forgotten.
    pub healthy_after: Duration,
    /// Before the second, third and fourth attempt.
    pub retry_delays: [Duration; 3],
    /// More ends than this within `crash_window` are a crash loop.
    pub crash_limit: usize,
    pub crash_window: Duration,
    /// How often a runtime that cannot make boxes is asked again.
    pub look_again: Duration,
    /// For calls to the runtime that belong to no start, such as the removal of a box.
    pub runtime_patience: Duration,
    /// What copies of directories leave free of the disk. `None`: 256 MiB, or a hundredth of a small one.
    pub min_free_bytes: Option<u64>,
    /// The most that one install may take on the disk.
    pub install_bytes: u64,
    /// The most that all installs together may take, before another is made.
    pub cache_bytes: u64,
}

impl HostingSettings {
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            starts_at_once: 4,
            max_servers: 500,
            max_tests: 4,
            max_children: 16,
            idle_child: Duration::from_mins(5),
            call_timeout: Duration::from_mins(5),
            ping_every: Duration::from_secs(30),
            ping_timeout: Duration::from_secs(10),
            lost_pings: 3,
            busy_patience: Duration::from_mins(65),
            healthy_after: Duration::from_mins(1),
            retry_delays: [2, 4, 8].map(Duration::from_secs),
            crash_limit: 5,
            crash_window: Duration::from_mins(5),
            look_again: Duration::from_secs(5),
            runtime_patience: Duration::from_mins(1),
            min_free_bytes: None,
            install_bytes: 16 << 30,
            cache_bytes: 64 << 30,
        }
    }
}
