//! Default directories and configuration files, following the XDG base directory specification.

use std::path::PathBuf;

use super::load::Environment;

/// Default paths for the user who runs the daemon. A directory is `None` if its environment variables are not set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DefaultPaths {
    pub(super) state_dir: Option<PathBuf>,
    pub(super) run_dir: Option<PathBuf>,
    /// The first that exists is read.
    pub(super) config_files: Vec<PathBuf>,
}

impl DefaultPaths {
    pub(super) fn new(environment: &Environment, root: bool) -> Self {
        let home = absolute(environment, "HOME");
        let xdg = |name: &str, under_home: &str| {
            absolute(environment, name).or_else(|| home.as_ref().map(|home| home.join(under_home)))
        };
        let config_files = xdg("XDG_CONFIG_HOME", ".config")
            .into_iter()
            .chain([PathBuf::from("/etc")])
            .map(|directory| directory.join("boxwood/config.toml"))
            .collect();
        if root {
            return Self {
                state_dir: Some("/var/lib/boxwood".into()),
                run_dir: Some("/run/boxwood".into()),
                config_files,
            };
        }
        Self {
            state_dir: xdg("XDG_STATE_HOME", ".local/state").map(|dir| dir.join("boxwood")),
            run_dir: absolute(environment, "XDG_RUNTIME_DIR").map(|dir| dir.join("boxwood")),
            config_files,
        }
    }
}

/// The XDG specification requires relative paths to be ignored.
fn absolute(environment: &Environment, name: &str) -> Option<PathBuf> {
    environment
        .get(name)
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_uses_the_system_directories() {
        let defaults = DefaultPaths::new(&Environment::from([("HOME", "/root")]), true);
        assert_eq!(defaults.state_dir, Some("/var/lib/boxwood".into()));
        assert_eq!(defaults.run_dir, Some("/run/boxwood".into()));
        assert_eq!(
            defaults.config_files,
            [
                PathBuf::from("/root/.config/boxwood/config.toml"),
                PathBuf::from("/etc/boxwood/config.toml")
            ]
        );
    }

    #[test]
    fn a_user_gets_the_xdg_directories() {
        let environment = Environment::from([
            ("HOME", "/home/a"),
            ("XDG_STATE_HOME", "relative/is/ignored"),
            ("XDG_RUNTIME_DIR", "/run/user/1000"),
            ("XDG_CONFIG_HOME", "/cfg"),
        ]);
        let defaults = DefaultPaths::new(&environment, false);
        assert_eq!(
            defaults.state_dir,
            Some("/home/a/.local/state/boxwood".into())
        );
        assert_eq!(defaults.run_dir, Some("/run/user/1000/boxwood".into()));
        assert_eq!(
            defaults.config_files.first(),
            Some(&"/cfg/boxwood/config.toml".into())
        );
    }
}
