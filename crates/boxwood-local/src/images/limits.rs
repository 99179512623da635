//! How much one archive may make.

const GIB: u64 = 1 << 30;

/// Far above every real root file system, far below what fills a machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Everything the archive holds, unpacked.
    pub(crate) bytes: u64,
    pub(crate) entries: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            bytes: 20 * GIB,
            entries: 2_000_000,
        }
    }
}
