//! A hash of the box configuration: 16 hexadecimal digits, stable across versions of Boxwood.
//!
//! Excludes what differs between commands (environment, directory, timeout), the session id, and
//! mounts that can be added to a running box.

use std::fmt::Write as _;

use boxwood_api::MountMode;
use sha2::{Digest as _, Sha256};

use crate::{AdmittedMount, AdmittedSpec, BoxUser, Image, Joining};

/// 64 bits fit into a label and make collisions unlikely.
const BYTES: usize = 8;

impl AdmittedSpec {
    /// Boxes with the same hash are configured alike. A box whose hash differs from that of its
    /// current spec was created under another configuration.
    pub fn config_hash(&self) -> String {
        let digest = Sha256::digest(self.canonical_text().as_bytes());
        data_encoding::HEXLOWER.encode(&digest[..BYTES])
    }

    /// One line per value, each with its length, so that values cannot be confused.
    fn canonical_text(&self) -> String {
        let limits = self.limits();
        let mut lines = Lines::default();
        lines.put("backend", self.backend().unwrap_or_default());
        lines.put("image", self.image_text());
        lines.put("root", &root(self.image()));
        lines.put("network", self.network().as_str());
        // Part of the hash in earlier versions; dropping it would change every box's hash.
        lines.put("host_network", yes_or_no(false));
        lines.put("mount_path", self.mount_path());
        match self.workspace() {
            Some(workspace) => lines.mount("workspace", workspace),
            None => lines.put("workspace", MountMode::None.as_str()),
        }
        for mount in self.extra_mounts() {
            if mount.joining() == Joining::AtStart {
                lines.mount("mount", mount);
            }
        }
        // The shortest text that parses to the same number, so equal numbers have equal text.
        lines.put("cpus", &format!("{:?}", limits.cpus));
        lines.put("memory_mb", &limits.memory_mb.to_string());
        lines.put("pids", &limits.pids.to_string());
        lines.put("tmp_mb", &limits.tmp_mb.to_string());
        lines.put("quota_mb", &limits.workspace_quota_mb.to_string());
        lines.put("read_only_root", yes_or_no(self.read_only_root()));
        let user = match self.user() {
            BoxUser::Box => "box",
            BoxUser::Root => "root",
        };
        lines.put("user", user);
        lines.text
    }
}

fn root(image: &Image) -> String {
    match image {
        Image::Default => "default".to_owned(),
        Image::Directory { path, .. } => format!("directory {}", path.display()),
        Image::Named(name) => format!("named {name}"),
    }
}

fn yes_or_no(value: bool) -> &'static str {
    if value { "yes" } else { "no" }
}

#[derive(Default)]
struct Lines {
    text: String,
}

impl Lines {
    fn put(&mut self, key: &str, value: &str) {
        // Writing into a string cannot fail.
        let _ = writeln!(self.text, "{key} {} {value}", value.len());
    }

    fn mount(&mut self, key: &str, mount: &AdmittedMount) {
        self.put(key, mount.mode().as_str());
        self.put("at", mount.mount_path());
        self.put("from", &mount.source().real_path.to_string_lossy());
    }
}
