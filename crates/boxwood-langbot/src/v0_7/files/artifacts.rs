//! Verifies packages of LangBot against their manifest before they are mounted.
//!
//! Files that the manifest does not list are not checked: the mount is read-only.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use boxwood_api::{MountMode, MountSpec, SpecRequest};
use boxwood_session::Sessions;
use data_encoding::HEXLOWER;
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, open, openat2};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use crate::ActionError;
use crate::models::ValidSpec;

/// Directory of the packages in a box, each under its digest.
const ROOT: &str = "/opt/langbot-artifacts";

const MAX_MANIFEST_BYTES: u64 = 4 * 1024 * 1024;
const MAX_FILES: usize = 2048;
const MAX_TOTAL_BYTES: u64 = 256 * 1024 * 1024;

/// Digest and manifest of an extra mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Artifact {
    /// Index of the extra mount.
    pub(crate) mount: usize,
    /// `sha256:` and 64 hex digits.
    pub(crate) digest: Option<String>,
    pub(crate) manifest: Option<String>,
}

impl Artifact {
    /// Returns true if the path of the mount contains its digest.
    pub(crate) fn is_addressed(&self, mount: &MountSpec) -> bool {
        let Some(hex) = self.hex() else {
            return false;
        };
        let named = mount.mount_path.strip_prefix(ROOT);
        mount.mode == MountMode::Ro
            && self.manifest.is_some()
            && named.and_then(|rest| rest.strip_prefix('/')) == Some(hex)
    }

    /// The digests and manifests of a request.
    pub(crate) fn of(spec: &ValidSpec) -> Vec<Self> {
        spec.mount_proofs
            .iter()
            .enumerate()
            .filter(|(_, proof)| proof.content_digest.is_some() || proof.manifest_path.is_some())
            .map(|(mount, proof)| Self {
                mount,
                digest: proof.content_digest.clone(),
                manifest: proof.manifest_path.clone(),
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
        if !self.is_addressed(mount) {
            return Ok(());
        }
        let existing = request.session_id.as_ref().map(|id| sessions.detail(id));
        let mounted = existing.is_some_and(|existing| {
            existing.is_ok_and(|existing| existing.session.extra_mounts.contains(mount))
        });
        if mounted { Ok(()) } else { self.verify(mount) }
    }

    fn hex(&self) -> Option<&str> {
        self.digest.as_deref()?.strip_prefix("sha256:")
    }

    /// Blocks: reads every file of the package.
    pub(crate) fn verify(&self, mount: &MountSpec) -> Result<(), ActionError> {
        let failed = |why: &str| {
            ActionError::new(
                "BoxError",
                format!("Immutable artifact preparation failed: {why}"),
            )
        };
        let (Some(expected), Some(manifest)) = (self.hex(), &self.manifest) else {
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

/// The files of a package.
struct Manifest {
    files: Vec<Listed>,
    total_bytes: u64,
}

struct Listed {
    path: String,
    size: u64,
    sha256: String,
    executable: bool,
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
        let value: Value = serde_json::from_slice(&body)
            .map_err(|_| "Artifact manifest is invalid JSON".to_owned())?;
        Self::read(&value).map_err(|why| format!("Artifact manifest {why}"))
    }

    fn read(value: &Value) -> Result<Self, &'static str> {
        let map =
            exactly(value, &["algorithm", "files", "total_bytes"]).ok_or("has an invalid shape")?;
        if map["algorithm"] != "sha256-tree-v1" {
            return Err("uses an unsupported algorithm");
        }
        let files = map["files"]
            .as_array()
            .filter(|files| files.len() <= MAX_FILES)
            .ok_or("contains too many files")?;
        let files: Vec<_> = files.iter().map(Listed::read).collect::<Result<_, _>>()?;
        let mut seen = HashSet::new();
        if !files.iter().all(|file| seen.insert(&file.path)) {
            return Err("contains an unsafe path");
        }
        let total = files
            .iter()
            .try_fold(0_u64, |total, file| total.checked_add(file.size));
        let total_bytes = map["total_bytes"]
            .as_u64()
            .filter(|bytes| Some(*bytes) == total && *bytes <= MAX_TOTAL_BYTES)
            .ok_or("contains an invalid total size")?;
        Ok(Self { files, total_bytes })
    }

    /// Digest of the canonical JSON: sorted keys, no spaces.
    fn digest(&self) -> String {
        let mut text = String::from("{\"algorithm\":\"sha256-tree-v1\",\"files\":[");
        for (index, file) in self.files.iter().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            // Writing to a string cannot fail.
            let _ = write!(
                text,
                "{comma}{{\"executable\":{},\"path\":{},\"sha256\":\"{}\",\"size\":{}}}",
                file.executable,
                Value::from(file.path.as_str()),
                file.sha256,
                file.size,
            );
        }
        let _ = write!(text, "],\"total_bytes\":{}}}", self.total_bytes);
        HEXLOWER.encode(&Sha256::digest(text.as_bytes()))
    }
}

impl Listed {
    fn read(value: &Value) -> Result<Self, &'static str> {
        let map = exactly(value, &["path", "size", "sha256", "executable"])
            .ok_or("contains an invalid file entry")?;
        let path = map["path"]
            .as_str()
            .filter(|path| is_safe(path))
            .ok_or("contains an unsafe path")?;
        let is_hex = |text: &&str| {
            text.len() == 64
                && text
                    .bytes()
                    .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
        };
        Ok(Self {
            path: path.to_owned(),
            size: map["size"]
                .as_u64()
                .ok_or("contains an invalid file size")?,
            sha256: map["sha256"]
                .as_str()
                .filter(is_hex)
                .ok_or("contains an invalid file digest")?
                .to_owned(),
            executable: map["executable"]
                .as_bool()
                .ok_or("contains an invalid file mode")?,
        })
    }

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

fn exactly<'a>(value: &'a Value, keys: &[&str]) -> Option<&'a Map<String, Value>> {
    let map = value.as_object()?;
    (map.len() == keys.len() && keys.iter().all(|key| map.contains_key(*key))).then_some(map)
}

fn is_safe(path: &str) -> bool {
    !path.is_empty()
        && !path.contains(['\0', '\\'])
        && path.split('/').all(|part| !matches!(part, "" | "." | ".."))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use serde_json::json;

    use super::*;

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
                digest: Some(format!("sha256:{digest}")),
                manifest: Some(manifest.display().to_string()),
            };
            let mount = MountSpec {
                host_path: self.tree().display().to_string(),
                mount_path: format!("{ROOT}/{digest}"),
                mode: MountMode::Ro,
            };
            assert!(artifact.is_addressed(&mount));
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
            let why = Manifest::read(&value).err().expect("refused");
            assert!(why.contains(words), "{why}");
        };
        for path in [
            "", "/x", "../x", "a/../b", "a//b", "a/", ".", "a\\b", "a\0b",
        ] {
            refused(list(vec![entry(path)], 1), "unsafe path");
        }
        refused(list(vec![entry("a"), entry("a")], 2), "unsafe path");
        refused(list(vec![entry("a")], 2), "total size");
        refused(json!([]), "shape");
        refused(
            json!({"algorithm": "x", "files": [], "total_bytes": 0}),
            "algorithm",
        );
        refused(list(vec![json!({"path": "a"})], 0), "file entry");
        let mut large = entry("a");
        large["size"] = (MAX_TOTAL_BYTES + 1).into();
        refused(list(vec![large], MAX_TOTAL_BYTES + 1), "total size");
    }

    #[test]
    fn only_a_read_only_mount_at_its_own_digest_is_addressed() {
        let artifact = |digest: Option<&str>, manifest: Option<&str>| Artifact {
            mount: 0,
            digest: digest.map(str::to_owned),
            manifest: manifest.map(str::to_owned),
        };
        let mount = |path: &str, mode| MountSpec {
            host_path: "/x".to_owned(),
            mount_path: path.to_owned(),
            mode,
        };
        let digest = format!("sha256:{}", "a".repeat(64));
        let place = format!("{ROOT}/{}", "a".repeat(64));
        let good = artifact(Some(&digest), Some("/m"));
        assert!(good.is_addressed(&mount(&place, MountMode::Ro)));
        assert!(!good.is_addressed(&mount(&place, MountMode::Rw)));
        assert!(!good.is_addressed(&mount("/workspace/x", MountMode::Ro)));
        assert!(!artifact(Some(&digest), None).is_addressed(&mount(&place, MountMode::Ro)));
        assert!(!artifact(None, Some("/m")).is_addressed(&mount(&place, MountMode::Ro)));
    }
}
