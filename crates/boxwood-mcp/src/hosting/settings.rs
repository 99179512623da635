//! Limits and timeouts of hosting.

use std::path::PathBuf;
use std::time::Duration;

#[derive(Clone, Debug)]
pub struct HostingSettings {
    /// Parent of everything that hosting stores.
    pub directory: PathBuf,
    /// Servers that may start at the same time.
    pub starts_at_once: usize,
    pub max_servers: usize,
    /// Tests that may run at the same time.
    pub max_tests: usize,
    /// Processes of one server besides its main one.
    pub max_children: usize,
    /// Idle time after which a child process is stopped.
    pub idle_child: Duration,
    /// Timeout of a call through [`super::Hosting::call`].
    pub call_timeout: Duration,
    pub ping_every: Duration,
    pub ping_timeout: Duration,
    /// Consecutive unanswered pings after which a server counts as hung.
    pub lost_pings: u32,
    /// How long a server with a pending call may leave pings unanswered. At least the longest call timeout, so that
    /// the call ends first and calls of other clients survive.
    pub busy_timeout: Duration,
    /// How long a server must be connected before its earlier failures no longer count.
    pub healthy_after: Duration,
    /// Delays before the second, third and fourth attempt.
    pub retry_delays: [Duration; 3],
    /// More exits than this within `crash_window` count as a crash loop.
    pub crash_limit: usize,
    pub crash_window: Duration,
    /// How often the runtime is polled while it cannot create boxes.
    pub await_boxes: Duration,
    /// Timeout of runtime calls outside a start, such as the removal of a box.
    pub runtime_timeout: Duration,
    /// Disk limit of one install.
    pub install_bytes: u64,
    /// Disk limit of all installs together, checked before each install.
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
            busy_timeout: Duration::from_mins(65),
            healthy_after: Duration::from_mins(1),
            retry_delays: [2, 4, 8].map(Duration::from_secs),
            crash_limit: 5,
            crash_window: Duration::from_mins(5),
            await_boxes: Duration::from_secs(5),
            runtime_timeout: Duration::from_mins(1),
            install_bytes: 16 << 30,
            cache_bytes: 64 << 30,
        }
    }
}
