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
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, open, openat2};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::ActionError;
use crate::models::{MountProof, ValidSpec};
use crate::params::is_lower_hex;

const MAX_MANIFEST_BYTES: u64 = 4 * 1024 * 1024;
const MAX_FILES: usize = 2048;
const MAX_TOTAL_BYTES: u64 = 256 * 1024 * 1024;

/// Digest and manifest of an extra mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Artifact {
    /// Index of the extra mount.
    pub(crate) mount: usize,
    pub(crate) proof: MountProof,
}

impl Artifact {
    /// The digests and manifests of a request.
    pub(crate) fn of(spec: &ValidSpec) -> Vec<Self> {
        spec.mount_proofs
            .iter()
            .enumerate()
            .filter(|(_, proof)| proof.content_digest.is_some() || proof.manifest_path.is_some())
            .map(|(mount, proof)| Self {
                mount,
                proof: proof.clone(),
            })
            .collect()
    }

    /// Verifies packages whose path contains their digest. Those that are already mounted were verified before.
    pub(crate) fn verify_unless_mounted(
        &self,
        request: &SpecRequest,
        sessions: &Sessions,
    ) -> Result<(), ActionError> {
        let Some(mount) = request.extra_mounts.get(self.mount) else {
            return Ok(());
        };
        if !self.proof.addresses(mount) {
            return Ok(());
        }
        let existing = request.session_id.as_ref().map(|id| sessions.detail(id));
        let mounted = existing.is_some_and(|existing| {
            existing.is_ok_and(|existing| existing.session.extra_mounts.contains(mount))
        });
        if mounted { Ok(()) } else { self.verify(mount) }
    }

    /// Blocks: reads every file of the package.
    pub(crate) fn verify(&self, mount: &MountSpec) -> Result<(), ActionError> {
        let failed = |why: &str| {
            ActionError::new(
                "BoxError",
                format!("Immutable artifact preparation failed: {why}"),
            )
        };
        let (Some(expected), Some(manifest)) = (self.proof.hex(), &self.proof.manifest_path) else {
            return Err(failed("Artifact has no manifest"));
        };
        let manifest = Manifest::load(Path::new(manifest)).map_err(|why| failed(&why))?;
        if manifest.digest() != expected {
            return Err(failed("Artifact manifest does not match content_digest"));
        }
        let root = open(
            mount.host_path.as_str(),
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map_err(|error| failed(&format!("Artifact directory is unavailable: {error}")))?;
        for file in &manifest.files {
            let same = file.is_in(&root).map_err(|error| {
                tracing::debug!(path = file.path, %error, "failed to read a file of an artifact");
                failed(&format!("Artifact source changed: {}", file.path))
            })?;
            if !same {
                return Err(failed(&format!("Artifact source changed: {}", file.path)));
            }
        }
        Ok(())
    }
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
        let total = files.try_fold(0_u64, |total, file| total.checked_add(file.size));
        let safe = |file: &Listed| is_safe(&file.path);
        let hashed = |file: &Listed| file.sha256.len() == 64 && is_lower_hex(&file.sha256);
        let rules = [
            (
                self.algorithm == "sha256-tree-v1",
                "uses an unsupported algorithm",
            ),
            (self.files.len() <= MAX_FILES, "contains too many files"),
            (
                self.files
                    .iter()
                    .all(|file| safe(file) && paths.insert(&file.path)),
                "contains an unsafe path",
            ),
            (
                self.files.iter().all(hashed),
                "contains an invalid file digest",
            ),
            (
                total == Some(self.total_bytes) && self.total_bytes <= MAX_TOTAL_BYTES,
                "contains an invalid total size",
            ),
        ];
        rules
            .into_iter()
            .find(|(holds, _)| !holds)
            .map(|(_, fault)| fault)
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
        let stat = fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile
            || u64::try_from(stat.st_size) != Ok(self.size)
        {
            return Ok(false);
        }
        let mut digest = Sha256::new();
        let mut rest = File::from(file).take(self.size + 1);
        let mut piece = vec![0; 256 * 1024];
        let mut length = 0;
        loop {
            match rest.read(&mut piece)? {
                0 => break,
                read => {
                    digest.update(&piece[..read]);
                    length += read as u64;
                }
            }
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
            let artifact = Artifact {
                mount: 0,
                proof: MountProof {
                    content_digest: Some(format!("sha256:{digest}")),
                    manifest_path: Some(manifest.display().to_string()),
                },
            };
            let mount = MountSpec {
                host_path: self.tree().display().to_string(),
                mount_path: format!("{ARTIFACT_ROOT}/{digest}"),
                mode: MountMode::Ro,
            };
            assert!(artifact.proof.addresses(&mount));
            artifact.verify(&mount).map_err(|error| error.to_string())
        }
    }

    fn refused(outcome: Result<(), String>, words: &str) {
        let text = outcome.expect_err("refused");
        assert!(text.starts_with("BoxError: Immutable artifact preparation failed: "));
        assert!(text.contains(words), "{text}");
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
        let refused = |value: Value, words: &str| {
            let why = match serde_json::from_value::<Manifest>(value) {
                Ok(manifest) => manifest.fault().expect("refused").to_owned(),
                Err(error) => error.to_string(),
            };
            assert!(why.contains(words), "{why}");
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
        let place = format!("{ARTIFACT_ROOT}/{}", "a".repeat(64));
        let good = proof(Some(&digest), Some("/m"));
        assert!(good.addresses(&mount(&place, MountMode::Ro)));
        assert!(!good.addresses(&mount(&place, MountMode::Rw)));
        assert!(!good.addresses(&mount("/workspace/x", MountMode::Ro)));
        assert!(!proof(Some(&digest), None).addresses(&mount(&place, MountMode::Ro)));
        assert!(!proof(None, Some("/m")).addresses(&mount(&place, MountMode::Ro)));
    }
}
