//! Malicious archives: path traversal, links, and resource exhaustion.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use boxwood_backend::ImageError;
use tar::EntryType;

use super::archives_for_tests::{Archive, header};
use super::unpack::Limits;
use super::unpack::{Owners, Sizes, unpack};

/// A root to unpack into, and a file beside it that must stay untouched.
struct UnpackDir {
    root: PathBuf,
    secret: PathBuf,
    temp: tempfile::TempDir,
}

impl UnpackDir {
    fn new() -> Self {
        let temp = tempfile::tempdir().unwrap();
        let (root, secret) = (temp.path().join("root"), temp.path().join("secret"));
        fs::create_dir(&root).unwrap();
        fs::write(&secret, "secret").unwrap();
        Self { root, secret, temp }
    }

    fn unpack_with(&self, archive: &[u8], limits: Limits) -> Result<Sizes, ImageError> {
        let root = fs::File::open(&self.root).unwrap();
        let owners = Owners::of_this_process();
        unpack(archive, std::os::fd::AsFd::as_fd(&root), owners, &limits)
    }

    fn unpack(&self, archive: &[u8]) -> Result<Sizes, ImageError> {
        let outcome = self.unpack_with(archive, Limits::default());
        assert_eq!(fs::read_to_string(&self.secret).unwrap(), "secret");
        let entries: Vec<_> = fs::read_dir(self.temp.path()).unwrap().collect();
        assert_eq!(entries.len(), 2, "created outside of the root: {entries:?}");
        outcome
    }

    fn refuses(&self, archive: &[u8], because: &str) {
        match self.unpack(archive) {
            Err(ImageError::BadArchive { why }) => {
                assert!(why.contains(because), "`{why}` does not say `{because}`");
            }
            other => panic!("expected a refusal that says `{because}`, not {other:?}"),
        }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }
}

fn is_link(path: &Path) -> bool {
    fs::symlink_metadata(path).unwrap().is_symlink()
}

#[test]
fn a_valid_archive_becomes_a_tree() {
    let dir = UnpackDir::new();
    let archive = Archive::default()
        .directory("./")
        .directory("./bin/")
        .file("./bin/tool", b"#!/bin/sh\n")
        .hard_link("./bin/same", "./bin/tool")
        .symlink("./lib", "usr/lib")
        .symlink("./absolute", "/etc/passwd")
        .file("deep/down/file", b"x");
    let sizes = dir.unpack(&archive.end()).unwrap();
    assert_eq!(
        sizes,
        Sizes {
            bytes: 11,
            entries: 7
        }
    );
    assert_eq!(fs::read(dir.at("bin/same")).unwrap(), b"#!/bin/sh\n");
    let tool = fs::metadata(dir.at("bin/tool")).unwrap();
    assert_eq!((tool.nlink(), tool.mode() & 0o7777), (2, 0o755));
    assert_eq!(tool.mtime(), 1_700_000_000);
    assert!(is_link(&dir.at("lib")) && is_link(&dir.at("absolute")));
    assert_eq!(fs::read(dir.at("deep/down/file")).unwrap(), b"x");
}

#[test]
fn gzip_is_decompressed_and_other_formats_are_named() {
    let dir = UnpackDir::new();
    let packed = Archive::default()
        .file("bin/tool", &vec![7; 100_000])
        .gzip();
    assert_eq!(dir.unpack(&packed).unwrap().bytes, 100_000);
    dir.refuses(&packed[..packed.len() - 4], "ends too early");
    dir.refuses(b"\x28\xb5\x2f\xfd....", "zstd -dc");
    dir.refuses(b"\xfd7zXZ\0....", "xz -dc");
    dir.refuses(b"BZh9....", "bzip2 -dc");
}

#[test]
fn paths_outside_of_the_image_are_refused() {
    let dir = UnpackDir::new();
    for path in ["../secret", "a/../../secret", "..", "a/.."] {
        let archive = Archive::default().file(path, b"owned");
        dir.refuses(&archive.end(), "points outside");
    }
    let archive = Archive::default().file("/etc/cron.d/x", b"owned");
    dir.refuses(&archive.end(), "is absolute");
}

#[test]
fn long_names_are_checked_like_short_ones() {
    let dir = UnpackDir::new();
    let long = format!("{}../../secret\0", "a/../".repeat(60));
    let gnu = header(EntryType::GNULongName, b"././@LongLink", long.len() as u64);
    let archive = Archive::default()
        .raw(gnu, long.as_bytes())
        .file("innocent", b"owned");
    dir.refuses(&archive.end(), "points outside");
    let record = b"21 path=../../secret\n";
    let pax = header(EntryType::XHeader, b"x", record.len() as u64);
    let archive = Archive::default()
        .raw(pax, record)
        .file("innocent", b"owned");
    dir.refuses(&archive.end(), "points outside");
}

#[test]
fn a_pax_name_applies_only_to_the_next_entry() {
    let dir = UnpackDir::new();
    let record = b"18 path=usr/named\n";
    let pax = header(EntryType::XHeader, b"x", record.len() as u64);
    let archive = Archive::default()
        .raw(pax, record)
        .file("short", b"1")
        .file("second", b"2");
    dir.unpack(&archive.end()).unwrap();
    assert_eq!(fs::read(dir.at("usr/named")).unwrap(), b"1");
    assert_eq!(fs::read(dir.at("second")).unwrap(), b"2");
}

#[test]
fn nothing_is_written_through_a_symlink() {
    let dir = UnpackDir::new();
    let outside = dir.temp.path().to_str().unwrap().to_owned();
    for target in ["..", outside.as_str(), "/"] {
        let archive = Archive::default()
            .symlink("way", target)
            .file("way/secret", b"owned");
        dir.refuses(&archive.end(), "not a directory");
        let archive = Archive::default()
            .symlink("way", target)
            .directory("way/new/deep");
        dir.refuses(&archive.end(), "not a directory");
        let archive = Archive::default()
            .symlink("way", target)
            .hard_link("mine", "way/secret");
        dir.refuses(&archive.end(), "not a directory");
    }
    // A link that stays inside is refused too: it could be replaced later.
    let archive = Archive::default()
        .directory("real")
        .symlink("way", "real")
        .file("way/f", b"");
    dir.refuses(&archive.end(), "not a directory");
}

#[test]
fn a_file_replaces_a_symlink_of_the_same_name() {
    let dir = UnpackDir::new();
    let secret = dir.secret.to_str().unwrap().to_owned();
    let archive = Archive::default().symlink("f", &secret).file("f", b"mine");
    dir.unpack(&archive.end()).unwrap();
    assert!(!is_link(&dir.at("f")));
    let archive = Archive::default()
        .symlink("d", "..")
        .directory("d")
        .file("d/f", b"mine");
    dir.unpack(&archive.end()).unwrap();
    assert!(!is_link(&dir.at("d")));
}

#[test]
fn a_directory_with_content_is_not_replaced() {
    let dir = UnpackDir::new();
    let archive = Archive::default().file("d/f", b"1").file("d", b"2");
    dir.refuses(&archive.end(), "not empty");
    let archive = Archive::default().directory("e").symlink("e", "f");
    dir.unpack(&archive.end()).unwrap();
}

#[test]
fn hard_links_stay_inside() {
    let dir = UnpackDir::new();
    let secret = dir.secret.to_str().unwrap().to_owned();
    let refuse = |target: &str, because: &str| {
        dir.refuses(&Archive::default().hard_link("mine", target).end(), because);
    };
    refuse("../secret", "points outside");
    refuse(&secret, "is absolute");
    refuse("missing", "not in the archive");
    refuse("not/here", "not in the archive");
    refuse("mine", "to itself");
    refuse("./", "to a directory");
    let archive = Archive::default().directory("d").hard_link("mine", "d");
    dir.refuses(&archive.end(), "not a file");
    // A hard link to a symlink is a second symlink, never the target.
    let archive = Archive::default()
        .symlink("way", &secret)
        .hard_link("mine", "way");
    dir.unpack(&archive.end()).unwrap();
    assert!(is_link(&dir.at("mine")));
}

#[test]
fn devices_and_pipes_are_not_unpacked() {
    let dir = UnpackDir::new();
    let archive = Archive::default()
        .special(EntryType::Char, "dev/null")
        .special(EntryType::Block, "dev/sda")
        .special(EntryType::Fifo, "run/pipe")
        .file("etc/issue", b"x");
    dir.unpack(&archive.end()).unwrap();
    for path in ["dev/null", "dev/sda", "run/pipe"] {
        assert!(!dir.at(path).exists(), "{path}");
    }
}

#[test]
fn setuid_bits_are_dropped_and_the_sticky_bit_is_kept() {
    let dir = UnpackDir::new();
    let mut su = header(EntryType::Regular, b"bin/su", 0);
    su.set_mode(0o6755);
    let mut tmp = header(EntryType::Directory, b"tmp", 0);
    tmp.set_mode(0o3777);
    dir.unpack(&Archive::default().raw(su, b"").raw(tmp, b"").end())
        .unwrap();
    let mode = |path: &str| fs::metadata(dir.at(path)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("bin/su"), mode("tmp")), (0o755, 0o1777));
}

#[test]
fn the_root_is_always_accessible() {
    let dir = UnpackDir::new();
    let mut root = header(EntryType::Directory, b"./", 0);
    root.set_mode(0o700);
    dir.unpack(&Archive::default().raw(root, b"").file("f", b"").end())
        .unwrap();
    assert_eq!(fs::metadata(&dir.root).unwrap().mode() & 0o7777, 0o755);
}

#[test]
fn owners_are_kept_by_root_up_to_the_last_id_of_a_box() {
    let dir = UnpackDir::new();
    let mut owned = header(EntryType::Regular, b"mine", 0);
    owned.set_uid(1234);
    owned.set_gid(65_535);
    dir.unpack(&Archive::default().raw(owned, b"").end())
        .unwrap();
    let metadata = fs::metadata(dir.at("mine")).unwrap();
    let mut beyond_range = header(EntryType::Regular, b"far", 0);
    beyond_range.set_uid(70_000);
    let beyond_range = Archive::default().raw(beyond_range, b"").end();
    if rustix::process::geteuid().is_root() {
        assert_eq!((metadata.uid(), metadata.gid()), (1234, 65_535));
        dir.refuses(&beyond_range, "up to 65535");
    } else {
        assert_eq!(metadata.uid(), rustix::process::geteuid().as_raw());
        dir.unpack(&beyond_range).unwrap();
    }
}

#[test]
fn a_truncated_archive_is_refused() {
    let dir = UnpackDir::new();
    let archive = || Archive::default().file("f", &[1; 600]);
    let whole = archive().end();
    dir.unpack(&whole).unwrap();
    // Inside the header, the content and its padding, and before the end mark.
    for length in [100, 511, 512, 700, 1112, 1400, archive().cut().len()] {
        let because = if length < 512 {
            "not a tar"
        } else {
            "ends too early"
        };
        dir.refuses(&whole[..length], because);
    }
}

#[test]
fn files_that_are_not_archives_are_refused() {
    let dir = UnpackDir::new();
    dir.refuses(b"", "empty");
    dir.refuses(b"hello", "not a tar");
    dir.refuses(&[b'x'; 4096], "not a tar");
    dir.refuses(&[0; 4096], "empty");
    let mut damaged = Archive::default().file("a", b"").file("b", b"").end();
    damaged[512] ^= 1;
    dir.refuses(&damaged, "damaged after entry 1");
    let followed = [Archive::default().file("a", b"").end(), vec![b'x'; 2 << 20]].concat();
    dir.refuses(&followed, "data after its end");
}

#[test]
fn unsupported_entry_types_are_refused() {
    let dir = UnpackDir::new();
    let sparse = Archive::default().raw(header(EntryType::GNUSparse, b"s", 0), b"");
    dir.refuses(&sparse.end(), "--sparse");
    let odd = Archive::default().raw(header(EntryType::new(b'Z'), b"z", 0), b"");
    dir.refuses(&odd.end(), "unsupported type");
    let fat = Archive::default().raw(header(EntryType::Symlink, b"l", 5), b"12345");
    dir.refuses(&fat.end(), "must not have content");
}

#[test]
fn an_archive_of_image_layers_is_refused() {
    let dir = UnpackDir::new();
    let saved = Archive::default()
        .file("manifest.json", b"[]")
        .file("a/layer.tar", b"");
    dir.refuses(&saved.end(), "docker export");
    let rooted = Archive::default()
        .file("manifest.json", b"[]")
        .file("bin/sh", b"");
    dir.unpack(&rooted.end()).unwrap();
}

#[test]
fn sizes_and_counts_are_bounded() {
    let small = Limits {
        bytes: 1000,
        entries: 10,
    };
    let too_large =
        |archive: Vec<u8>, because: &str| match UnpackDir::new().unpack_with(&archive, small) {
            Err(ImageError::TooLarge { why }) => assert!(why.contains(because), "{why}"),
            other => panic!("{other:?}"),
        };
    let many = (0..11).fold(Archive::default(), |archive, n| {
        archive.file(&format!("f{n}"), b"")
    });
    too_large(many.end(), "more than 10 entries");
    too_large(
        Archive::default().file("f", &[0; 1001]).end(),
        "more than 1000 bytes",
    );
    // The claimed size is checked before anything is written.
    let claimed = header(EntryType::Regular, b"huge", u64::MAX >> 2);
    too_large(
        Archive::default().raw(claimed, b"").end(),
        "more than 1000 bytes",
    );
    // Small when compressed, large when unpacked.
    too_large(
        Archive::default().file("f", &vec![0; 1 << 20]).gzip(),
        "more than 1000 bytes",
    );
}

#[test]
fn an_extended_header_cannot_allocate_memory() {
    let dir = UnpackDir::new();
    for kind in [
        EntryType::XHeader,
        EntryType::GNULongName,
        EntryType::XGlobalHeader,
    ] {
        let archive = Archive::default().raw(header(kind, b"x", 1 << 40), b"");
        dir.refuses(&archive.end(), "an extended header has");
    }
    for text in [
        "nonsense",
        "5 a\n",
        "99 path=x\n",
        "-3 path=x\n",
        "10 noequal\n",
        "0 \n",
    ] {
        let pax = header(EntryType::XHeader, b"x", text.len() as u64);
        let archive = Archive::default().raw(pax, text.as_bytes()).file("f", b"");
        dir.refuses(&archive.end(), "is malformed");
    }
}
