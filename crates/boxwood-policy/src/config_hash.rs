//! A short name for everything that makes a box what it is.
//!
//! Comes in: an admitted spec. Goes out: 16 hexadecimal digits, the same in every version of Boxwood
//! that writes the same text below. Never here: what differs from command to command (environment,
//! directory, timeout), the session's name, and mounts that come and go while the box lives.

use std::fmt::Write as _;

use boxwood_api::MountMode;
use sha2::{Digest as _, Sha256};

use crate::{AdmittedMount, AdmittedSpec, BoxUser, Image, Joining};

/// Half of it would do; 64 bits are what a label holds comfortably and nobody hits by chance.
const BYTES: usize = 8;

impl AdmittedSpec {
    /// Two boxes with the same one are alike. A box whose own differs from what its spec comes to
    /// today was made under another configuration.
    pub fn config_hash(&self) -> String {
        let digest = Sha256::digest(self.canonical_text().as_bytes());
        digest[..BYTES]
            .iter()
            .fold(String::new(), |mut text, byte| {
                // Writing into a string cannot fail.
                let _ = write!(text, "{byte:02x}");
                text
            })
    }

    /// One line per fact, each with its length, so that no value can pass for two.
    fn canonical_text(&self) -> String {
        let limits = self.limits();
        let mut lines = Lines::default();
        lines.put("backend", self.backend().unwrap_or_default());
        lines.put("image", self.image_text());
        lines.put("root", &root(self.image()));
        lines.put("network", self.network().as_str());
        lines.put("host_network", word(self.host_network_allowed()));
        lines.put("mount_path", self.mount_path());
        match self.workspace() {
            Some(workspace) => lines.mount("workspace", workspace),
            None => lines.put("workspace", MountMode::None.as_str()),
        }
        for mount in self.extra_mounts() {
            if mount.joining() == Joining::WhenMade {
                lines.mount("mount", mount);
            }
        }
        // The shortest text that reads back as the same number: equal numbers, equal text.
        lines.put("cpus", &format!("{:?}", limits.cpus));
        lines.put("memory_mb", &limits.memory_mb.to_string());
        lines.put("pids", &limits.pids.to_string());
        lines.put("tmp_mb", &limits.tmp_mb.to_string());
        lines.put("quota_mb", &limits.workspace_quota_mb.to_string());
        lines.put("read_only_root", word(self.read_only_root()));
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

fn word(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
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
