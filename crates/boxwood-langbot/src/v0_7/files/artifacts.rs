//! Verifies packages of LangBot against their manifest before they are mounted.
//!
//! Files that the manifest does not list are not checked: the mount is read-only.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use boxwood_api::{MountSpec, SpecRequest};
use boxwood_session::Sessions;
use data_encoding::HEXLOWER;
use rustix::fs::{Mode, OFlags, ResolveFlags, open, openat2};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::ActionError;
use crate::error::internal;
use crate::models::MountProof;
use crate::params::is_lower_hex;

const MAX_MANIFEST_BYTES: u64 = 4 * 1024 * 1024;
const MAX_FILES: usize = 2048;
const MAX_TOTAL_BYTES: u64 = 256 * 1024 * 1024;

/// Verifies the packages of a request whose mount path contains their digest. Those that are already mounted were
/// verified before. Blocks: reads every file of the packages.
pub(crate) fn verify_all(
    request: &SpecRequest,
    proofs: &[MountProof],
    sessions: &Sessions,
) -> Result<(), ActionError> {
    let is_mounted = |mount| {
        let existing = request.session_id.as_ref().map(|id| sessions.detail(id));
        existing.is_some_and(|existing| {
            existing.is_ok_and(|existing| existing.session.extra_mounts.contains(mount))
        })
    };
    for (mount, proof) in request.extra_mounts.iter().zip(proofs) {
        if proof.addresses(mount) && !is_mounted(mount) {
            verify(mount, proof)?;
        }
    }
    Ok(())
}

fn verify(mount: &MountSpec, proof: &MountProof) -> Result<(), ActionError> {
    check(mount, proof)
        .map_err(|why| internal(format!("Immutable artifact preparation failed: {why}")))
}

fn check(mount: &MountSpec, proof: &MountProof) -> Result<(), String> {
    let (Some(expected), Some(manifest)) = (proof.hex(), &proof.manifest_path) else {
        return Err("Artifact has no manifest".to_owned());
    };
    let manifest = Manifest::load(Path::new(manifest))?;
    if manifest.digest() != expected {
        return Err("Artifact manifest does not match content_digest".to_owned());
    }
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = open(mount.host_path.as_str(), flags, Mode::empty())
        .map_err(|error| format!("Artifact directory is unavailable: {error}"))?;
    for file in &manifest.files {
        let same = file.is_in(&root).unwrap_or_else(|error| {
            tracing::debug!(path = file.path, %error, "failed to read a file of an artifact");
            false
        });
        if !same {
            return Err(format!("Artifact source changed: {}", file.path));
        }
    }
    Ok(())
}

/// The files of a package. Its digest is that of its JSON, which requires the fields in alphabetical order.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    algorithm: String,
    files: Vec<Listed>,
    total_bytes: u64,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Listed {
    executable: bool,
    path: String,
    sha256: String,
    size: u64,
}

impl Manifest {
    fn load(path: &Path) -> Result<Self, String> {
        let unavailable = |error: io::Error| format!("Artifact manifest is unavailable: {error}");
        // Non-blocking, in case it is a FIFO.
        let file = open(
            path,
            OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map_err(|error| unavailable(error.into()))?;
        let mut body = Vec::new();
        File::from(file)
            .take(MAX_MANIFEST_BYTES + 1)
            .read_to_end(&mut body)
            .map_err(unavailable)?;
        if body.len() as u64 > MAX_MANIFEST_BYTES {
            return Err("Artifact manifest is too large".to_owned());
        }
        let manifest: Self = serde_json::from_slice(&body)
            .map_err(|error| format!("Artifact manifest is invalid JSON: {error}"))?;
        match manifest.fault() {
            None => Ok(manifest),
            Some(fault) => Err(format!("Artifact manifest {fault}")),
        }
    }

    fn fault(&self) -> Option<&'static str> {
        let mut paths = HashSet::new();
        let mut files = self.files.iter();
        let mut sizes = self.files.iter().map(|file| file.size);
        let total = sizes.try_fold(0_u64, u64::checked_add);
        let is_hashed = |file: &Listed| file.sha256.len() == 64 && is_lower_hex(&file.sha256);
        if self.algorithm != "sha256-tree-v1" {
            Some("uses an unsupported algorithm")
        } else if self.files.len() > MAX_FILES {
            Some("contains too many files")
        } else if !files.all(|file| is_safe(&file.path) && paths.insert(&file.path)) {
            Some("contains an unsafe path")
        } else if !self.files.iter().all(is_hashed) {
            Some("contains an invalid file digest")
        } else if total != Some(self.total_bytes) || self.total_bytes > MAX_TOTAL_BYTES {
            Some("contains an invalid total size")
        } else {
            None
        }
    }

    fn digest(&self) -> String {
        // Writing these types to memory cannot fail.
        let text = serde_json::to_vec(self).unwrap_or_default();
        HEXLOWER.encode(&Sha256::digest(text))
    }
}

impl Listed {
    /// Returns true if the package has this file with this content. Symlinks in its path are refused.
    fn is_in(&self, root: impl std::os::fd::AsFd) -> io::Result<bool> {
        let file = openat2(
            root,
            self.path.as_str(),
            OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC,
            Mode::empty(),
            ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
        )?;
        let file = File::from(file);
        let metadata = file.metadata()?;
        if !metadata.is_file() || metadata.len() != self.size {
            return Ok(false);
        }
        let mut digest = Sha256::new();
        let mut content = file.take(self.size + 1);
        let (mut buffer, mut length) = (vec![0; 256 * 1024], 0);
        loop {
            let read = content.read(&mut buffer)?;
            if read == 0 {
                break;
            }
            digest.update(&buffer[..read]);
            length += read as u64;
        }
        Ok(length == self.size && HEXLOWER.encode(&digest.finalize()) == self.sha256)
    }
}

fn is_safe(path: &str) -> bool {
    !path.is_empty()
        && !path.contains(['\0', '\\'])
        && path.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use boxwood_api::MountMode;
    use serde_json::{Value, json};

    use super::*;
    use crate::models::ARTIFACT_ROOT;

    /// Generated with the published package from the files below.
    const DIGEST: &str = "f629d6a71e69b8a87f71a7adb8efcfc246525f0cdaf95e93a3ed97e4028b7e40";

    struct Package {
        dir: tempfile::TempDir,
    }

    impl Package {
        fn new() -> Self {
            let dir = tempfile::tempdir().expect("directory");
            let tree = dir.path().join("tree");
            std::fs::create_dir_all(tree.join("sub")).expect("tree");
            std::fs::write(tree.join("SKILL.md"), "# hi\n").expect("file");
            std::fs::write(tree.join("sub/\"ä\".sh"), "echo\n").expect("file");
            let manifest = json!({
                "algorithm": "sha256-tree-v1",
                "files": [
                    {"path": "SKILL.md", "size": 5, "executable": false, "sha256":
                     HEXLOWER.encode(&Sha256::digest(b"# hi\n"))},
                    {"path": "sub/\"ä\".sh", "size": 5, "executable": true, "sha256":
                     HEXLOWER.encode(&Sha256::digest(b"echo\n"))},
                ],
                "total_bytes": 10,
            });
            std::fs::write(dir.path().join("manifest.json"), manifest.to_string()).expect("file");
            Self { dir }
        }

        fn tree(&self) -> PathBuf {
            self.dir.path().join("tree")
        }

        fn verify(&self, digest: &str) -> Result<(), String> {
            let manifest = self.dir.path().join("manifest.json");
            let proof = MountProof {
                content_digest: Some(format!("sha256:{digest}")),
                manifest_path: Some(manifest.display().to_string()),
            };
            let mount = MountSpec {
                host_path: self.tree().display().to_string(),
                mount_path: format!("{ARTIFACT_ROOT}/{digest}"),
                mode: MountMode::Ro,
            };
            assert!(proof.addresses(&mount));
            verify(&mount, &proof).map_err(|error| error.to_string())
        }
    }

    fn refused(outcome: Result<(), String>, expected: &str) {
        let text = outcome.expect_err("refused");
        assert!(text.starts_with("BoxError: Immutable artifact preparation failed: "));
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn an_unchanged_package_is_accepted() {
        assert_eq!(Package::new().verify(DIGEST), Ok(()));
    }

    #[test]
    fn every_change_is_detected() {
        let package = Package::new();
        refused(
            package.verify(&"0".repeat(64)),
            "does not match content_digest",
        );
        std::fs::write(package.tree().join("SKILL.md"), "# ho\n").expect("file");
        refused(package.verify(DIGEST), "source changed: SKILL.md");

        let package = Package::new();
        std::fs::write(package.tree().join("SKILL.md"), "# hi\nmore").expect("file");
        refused(package.verify(DIGEST), "source changed");

        let package = Package::new();
        std::fs::rename(package.tree().join("sub"), package.dir.path().join("sub")).expect("moved");
        std::os::unix::fs::symlink("../sub", package.tree().join("sub")).expect("link");
        refused(package.verify(DIGEST), "source changed: sub/");

        let package = Package::new();
        std::fs::write(package.dir.path().join("manifest.json"), "{").expect("file");
        refused(package.verify(DIGEST), "invalid JSON");
    }

    #[test]
    fn invalid_manifests_are_refused() {
        let entry = |path: &str| json!({"path": path, "size": 1, "executable": false, "sha256": "0".repeat(64)});
        let list = |files: Vec<Value>, total: u64| json!({"algorithm": "sha256-tree-v1", "files": files, "total_bytes": total});
        let refused = |value: Value, expected: &str| {
            let why = match serde_json::from_value::<Manifest>(value) {
                Ok(manifest) => manifest.fault().expect("refused").to_owned(),
                Err(error) => error.to_string(),
            };
            assert!(why.contains(expected), "{why}");
        };
        for path in [
            "", "/x", "../x", "a/../b", "a//b", "a/", ".", "a\\b", "a\0b",
        ] {
            refused(list(vec![entry(path)], 1), "unsafe path");
        }
        refused(list(vec![entry("a"), entry("a")], 2), "unsafe path");
        refused(list(vec![entry("a")], 2), "total size");
        refused(json!([]), "Manifest");
        refused(
            json!({"algorithm": "x", "files": [], "total_bytes": 0}),
            "algorithm",
        );
        refused(list(vec![json!({"path": "a"})], 0), "missing field");
        let mut large = entry("a");
        large["size"] = (MAX_TOTAL_BYTES + 1).into();
        refused(list(vec![large], MAX_TOTAL_BYTES + 1), "total size");
    }

    #[test]
    fn only_a_read_only_mount_at_its_own_digest_is_addressed() {
        let proof = |digest: Option<&str>, manifest: Option<&str>| MountProof {
            content_digest: digest.map(str::to_owned),
            manifest_path: manifest.map(str::to_owned),
        };
        let mount = |path: &str, mode| MountSpec {
            host_path: "/x".to_owned(),
            mount_path: path.to_owned(),
            mode,
        };
        let digest = format!("sha256:{}", "a".repeat(64));
        let mount_path = format!("{ARTIFACT_ROOT}/{}", "a".repeat(64));
        let good = proof(Some(&digest), Some("/m"));
        assert!(good.addresses(&mount(&mount_path, MountMode::Ro)));
        assert!(!good.addresses(&mount(&mount_path, MountMode::Rw)));
        assert!(!good.addresses(&mount("/workspace/x", MountMode::Ro)));
        assert!(!proof(Some(&digest), None).addresses(&mount(&mount_path, MountMode::Ro)));
        assert!(!proof(None, Some("/m")).addresses(&mount(&mount_path, MountMode::Ro)));
    }
}
