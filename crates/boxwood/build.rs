//! Makes the packaged program smaller: the linker merges identical functions.

use std::env;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|set| set == value);
    // The `dist` profile alone has this level. For this target `rustup`'s compilers link with `lld`,
    // which knows the option; GNU `ld` does not.
    if is("OPT_LEVEL", "z") && is("TARGET", "x86_64-unknown-linux-gnu") {
        println!("cargo:rustc-link-arg-bins=-Wl,--icf=all");
    }
}
