//! Mounts: `-v HOST:/path[:ro]` and `--workspace DIR[:ro]`.

use std::path::absolute;
use std::str::FromStr;

use boxwood_api::{MountMode, MountSpec};

/// A host directory or file to mount in the box.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount(pub(crate) MountSpec);

/// The host directory that becomes the box's workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Workspace {
    pub(crate) host_path: String,
    pub(crate) mode: MountMode,
}

impl FromStr for Mount {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let help = || format!("`{text}` is not a mount; write `HOST:/path` or `HOST:/path:ro`");
        let (rest, mode) = split_mode(text);
        // The last `:/` divides, so that host paths may have colons.
        let separator = rest.rfind(":/").ok_or_else(help)?;
        let (host, box_path) = (&rest[..separator], &rest[separator + 1..]);
        if host.is_empty() {
            return Err(help());
        }
        Ok(Self(MountSpec {
            host_path: absolute_text(host)?,
            mount_path: box_path.to_owned(),
            mode: mode.unwrap_or(MountMode::Rw),
        }))
    }
}

impl FromStr for Workspace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (host, mode) = split_mode(text);
        if host.is_empty() {
            return Err("the workspace needs a directory".to_owned());
        }
        Ok(Self {
            host_path: absolute_text(host)?,
            mode: mode.unwrap_or(MountMode::Rw),
        })
    }
}

fn split_mode(text: &str) -> (&str, Option<MountMode>) {
    if let Some(rest) = text.strip_suffix(":ro") {
        (rest, Some(MountMode::Ro))
    } else if let Some(rest) = text.strip_suffix(":rw") {
        (rest, Some(MountMode::Rw))
    } else {
        (text, None)
    }
}

/// Relative paths start at the working directory. Symlinks and `..` are resolved when the daemon opens the path.
fn absolute_text(path: &str) -> Result<String, String> {
    absolute(path)
        .map_err(|error| format!("`{path}` cannot be made absolute: {error}"))?
        .into_os_string()
        .into_string()
        .map_err(|_| format!("`{path}`: the current directory is not UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<(&str, &str, MountMode)>) {
        let found = text.parse::<Mount>().ok().map(|mount| mount.0);
        let expected = expected.map(|(host, box_path, mode)| MountSpec {
            host_path: host.to_owned(),
            mount_path: box_path.to_owned(),
            mode,
        });
        assert_eq!(found, expected, "{text:?}");
    }

    #[test]
    fn mounts_are_read_like_dockers() {
        check("/data:/data", Some(("/data", "/data", MountMode::Rw)));
        check("/data:/in:ro", Some(("/data", "/in", MountMode::Ro)));
        check("/data:/in:rw", Some(("/data", "/in", MountMode::Rw)));
        check("/a:b:/in", Some(("/a:b", "/in", MountMode::Rw)));
    }

    #[test]
    fn half_a_mount_is_refused() {
        for text in ["", "/data", "/data:", ":/in", "/data:relative", "/data:ro"] {
            check(text, None);
        }
    }

    #[test]
    fn a_relative_host_path_starts_at_the_working_directory() {
        let here = std::env::current_dir().unwrap();
        let mount: Mount = "src:/src".parse().unwrap();
        assert_eq!(mount.0.host_path, here.join("src").to_str().unwrap());
        let workspace: Workspace = ".:ro".parse().unwrap();
        assert_eq!(workspace.host_path, here.to_str().unwrap());
        assert_eq!(workspace.mode, MountMode::Ro);
    }
}
