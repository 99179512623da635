//! Detects Landlock.

/// The highest ABI version of this kernel; `None` if Landlock is missing or disabled.
pub fn abi_version() -> Option<i64> {
    const VERSION: libc::c_uint = 1;
    // SAFETY: with the version flag the kernel reads no memory.
    let version = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            std::ptr::null::<libc::c_void>(),
            0_usize,
            VERSION,
        )
    };
    (version > 0).then_some(version)
}
