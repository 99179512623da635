//! Builds the static init program that the library embeds.
//!
//! With the feature `embedded` this runs a second Cargo for the `boxwood-init` binary, statically linked. It uses
//! its own target directory, because the outer Cargo holds the lock of the usual one. It runs offline: the
//! library has the same dependencies, so they have been fetched.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if env::var_os("CARGO_FEATURE_EMBEDDED").is_none() {
        return;
    }
    let manifest_dir = PathBuf::from(var("CARGO_MANIFEST_DIR"));
    for source in [
        "src",
        "Cargo.toml",
        "../boxwood-sys/src",
        "../boxwood-sys/Cargo.toml",
    ] {
        println!(
            "cargo:rerun-if-changed={}",
            manifest_dir.join(source).display()
        );
    }
    let target = var("TARGET");
    let target_dir = Path::new(&var("OUT_DIR")).join("init");
    // Only the `dist` profile has this level. Other profiles favour build time.
    let dist = var("OPT_LEVEL") == "z";
    let mut build = Command::new(var("CARGO"));
    build
        .args([
            "build",
            "--release",
            "--quiet",
            "--offline",
            "--bin",
            "boxwood-init",
        ])
        .args(["--target", &target, "--manifest-path"])
        .arg(manifest_dir.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&target_dir)
        // Flags of the outer build (coverage, sanitizers, lints) must not apply to the static program.
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        // Under `cargo clippy` the inner build would be linted too, and fail on a warning.
        .env_remove("RUSTC_WORKSPACE_WRAPPER")
        .env_remove("CLIPPY_ARGS")
        // Inherited by the inner build, it would embed the program again, recursively.
        .env_remove("CARGO_FEATURE_EMBEDDED")
        .env(
            "RUSTFLAGS",
            "-C target-feature=+crt-static -C relocation-model=static -C panic=abort",
        )
        .env("CARGO_PROFILE_RELEASE_STRIP", "symbols");
    if dist {
        build
            .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "s")
            .env("CARGO_PROFILE_RELEASE_LTO", "fat")
            .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1")
            .args(SEARCHERS.iter().flat_map(|name| {
                let faster = format!("profile.release.package.{name}.opt-level=3");
                ["--config".to_owned(), faster]
            }));
    }
    let status = build
        .status()
        .unwrap_or_else(|error| panic!("cargo could not be run for boxwood-init: {error}"));
    assert!(status.success(), "building boxwood-init failed: {status}");
    let program = target_dir.join(&target).join("release/boxwood-init");
    assert!(program.is_file(), "{} was not built", program.display());
    println!("cargo:rustc-env=BOXWOOD_INIT={}", program.display());
}

/// Crates that search file contents: optimised for speed, not size.
const SEARCHERS: [&str; 7] = [
    "aho-corasick",
    "bstr",
    "globset",
    "grep-regex",
    "grep-searcher",
    "memchr",
    "regex-automata",
];

fn var(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("{name} is not set"))
}
