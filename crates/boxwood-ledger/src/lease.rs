//! Identifies the daemon that holds a box, and the boot of the machine.

use std::sync::LazyLock;

use data_encoding::HEXLOWER;

/// One process in one boot of the machine. Unlike a pid, it is unique.
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
    /// The lease of this process.
    pub fn here() -> Self {
        HERE.clone()
    }
}

fn life() -> String {
    let mut bytes = [0_u8; 8];
    // Without randomness the pid is enough: a lease is only informational.
    let _ = getrandom::fill(&mut bytes);
    format!("{}-{}", std::process::id(), HEXLOWER.encode(&bytes))
}

/// Empty if unknown. Then no box counts as one of an earlier boot.
fn boot() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    text.map(|text| text.trim().to_owned()).unwrap_or_default()
}
