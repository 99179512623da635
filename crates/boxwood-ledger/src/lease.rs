//! Which daemon holds a box, and since which start of the machine.

use std::fmt::Write as _;
use std::sync::LazyLock;

/// The life of one process on one start of its machine. Pids repeat, these do not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    pub life: String,
    pub boot: String,
}

static HERE: LazyLock<Lease> = LazyLock::new(|| Lease {
    life: life(),
    boot: boot(),
});

impl Lease {
    /// Of this process.
    pub fn here() -> Self {
        HERE.clone()
    }
}

fn life() -> String {
    let mut bytes = [0_u8; 8];
    // Without randomness the pid has to do: a lease tells people who holds a box, nothing hangs on it.
    let _ = getrandom::fill(&mut bytes);
    bytes
        .iter()
        .fold(format!("{}-", std::process::id()), |mut text, byte| {
            // Writing into a string cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
}

/// Empty where the kernel does not tell: then no box is taken for one of another start.
fn boot() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    text.map(|text| text.trim().to_owned()).unwrap_or_default()
}
