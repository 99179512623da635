//! Archives that want something: out of the directory, or all of the machine.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use boxwood_backend::ImageError;
use tar::EntryType;

use super::limits::Limits;
use super::testing::{Archive, header};
use super::unpack::{Owners, Sizes, unpack};

/// A root to unpack into, and a file beside it that nothing may touch.
struct Ground {
    root: PathBuf,
    secret: PathBuf,
    temp: tempfile::TempDir,
}

impl Ground {
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
        let beside: Vec<_> = fs::read_dir(self.temp.path()).unwrap().collect();
        assert_eq!(beside.len(), 2, "something was made outside: {beside:?}");
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
fn an_honest_archive_becomes_a_tree() {
    let ground = Ground::new();
    let archive = Archive::default()
        .directory("./")
        .directory("./bin/")
        .file("./bin/tool", b"#!/bin/sh\n")
        .hard_link("./bin/same", "./bin/tool")
        .symlink("./lib", "usr/lib")
        .symlink("./absolute", "/etc/passwd")
        .file("deep/down/file", b"x");
    let sizes = ground.unpack(&archive.end()).unwrap();
    assert_eq!(
        sizes,
        Sizes {
            bytes: 11,
            entries: 7
        }
    );
    assert_eq!(fs::read(ground.at("bin/same")).unwrap(), b"#!/bin/sh\n");
    let tool = fs::metadata(ground.at("bin/tool")).unwrap();
    assert_eq!((tool.nlink(), tool.mode() & 0o7777), (2, 0o755));
    assert_eq!(tool.mtime(), 1_700_000_000);
    assert!(is_link(&ground.at("lib")) && is_link(&ground.at("absolute")));
    assert_eq!(fs::read(ground.at("deep/down/file")).unwrap(), b"x");
}

#[test]
fn gzip_is_undone_and_other_compressions_are_named() {
    let ground = Ground::new();
    let packed = Archive::default()
        .file("bin/tool", &vec![7; 100_000])
        .gzip();
    assert_eq!(ground.unpack(&packed).unwrap().bytes, 100_000);
    ground.refuses(&packed[..packed.len() - 4], "ends too early");
    ground.refuses(b"\x28\xb5\x2f\xfd....", "zstd -dc");
    ground.refuses(b"\xfd7zXZ\0....", "xz -dc");
    ground.refuses(b"BZh9....", "bzip2 -dc");
}

#[test]
fn paths_that_lead_out_are_refused() {
    let ground = Ground::new();
    for path in ["../secret", "a/../../secret", "..", "a/.."] {
        let archive = Archive::default().file(path, b"owned");
        ground.refuses(&archive.end(), "leads out");
    }
    let archive = Archive::default().file("/etc/cron.d/x", b"owned");
    ground.refuses(&archive.end(), "is absolute");
}

#[test]
fn long_names_are_checked_like_short_ones() {
    let ground = Ground::new();
    let long = format!("{}../../secret\0", "a/../".repeat(60));
    let gnu = header(EntryType::GNULongName, b"././@LongLink", long.len() as u64);
    let archive = Archive::default()
        .raw(gnu, long.as_bytes())
        .file("innocent", b"owned");
    ground.refuses(&archive.end(), "leads out");
    let record = b"21 path=../../secret\n";
    let pax = header(EntryType::XHeader, b"x", record.len() as u64);
    let archive = Archive::default()
        .raw(pax, record)
        .file("innocent", b"owned");
    ground.refuses(&archive.end(), "leads out");
}

#[test]
fn a_pax_name_reaches_the_entry_after_it_alone() {
    let ground = Ground::new();
    let record = b"18 path=usr/named\n";
    let pax = header(EntryType::XHeader, b"x", record.len() as u64);
    let archive = Archive::default()
        .raw(pax, record)
        .file("short", b"1")
        .file("second", b"2");
    ground.unpack(&archive.end()).unwrap();
    assert_eq!(fs::read(ground.at("usr/named")).unwrap(), b"1");
    assert_eq!(fs::read(ground.at("second")).unwrap(), b"2");
}

#[test]
fn nothing_is_written_through_a_symlink() {
    let ground = Ground::new();
    let outside = ground.temp.path().to_str().unwrap().to_owned();
    for target in ["..", outside.as_str(), "/"] {
        let archive = Archive::default()
            .symlink("way", target)
            .file("way/secret", b"owned");
        ground.refuses(&archive.end(), "no directory");
        let archive = Archive::default()
            .symlink("way", target)
            .directory("way/new/deep");
        ground.refuses(&archive.end(), "no directory");
        let archive = Archive::default()
            .symlink("way", target)
            .hard_link("mine", "way/secret");
        ground.refuses(&archive.end(), "no directory");
    }
    // One that stays inside is no better: it may be swapped for one that does not.
    let archive = Archive::default()
        .directory("real")
        .symlink("way", "real")
        .file("way/f", b"");
    ground.refuses(&archive.end(), "no directory");
}

#[test]
fn a_file_in_a_symlinks_place_replaces_the_link() {
    let ground = Ground::new();
    let secret = ground.secret.to_str().unwrap().to_owned();
    let archive = Archive::default().symlink("f", &secret).file("f", b"mine");
    ground.unpack(&archive.end()).unwrap();
    assert!(!is_link(&ground.at("f")));
    let archive = Archive::default()
        .symlink("d", "..")
        .directory("d")
        .file("d/f", b"mine");
    ground.unpack(&archive.end()).unwrap();
    assert!(!is_link(&ground.at("d")));
}

#[test]
fn a_directory_with_content_is_not_replaced() {
    let ground = Ground::new();
    let archive = Archive::default().file("d/f", b"1").file("d", b"2");
    ground.refuses(&archive.end(), "not empty");
    let archive = Archive::default().directory("e").symlink("e", "f");
    ground.unpack(&archive.end()).unwrap();
}

#[test]
fn hard_links_stay_inside() {
    let ground = Ground::new();
    let secret = ground.secret.to_str().unwrap().to_owned();
    let refuse = |target: &str, because: &str| {
        ground.refuses(&Archive::default().hard_link("mine", target).end(), because);
    };
    refuse("../secret", "leads out");
    refuse(&secret, "is absolute");
    refuse("nobody", "not in the archive");
    refuse("not/here", "not in the archive");
    refuse("mine", "to itself");
    refuse("./", "to a directory");
    let archive = Archive::default().directory("d").hard_link("mine", "d");
    ground.refuses(&archive.end(), "to no file");
    // A link to a symlink is a second symlink, never what it leads to.
    let archive = Archive::default()
        .symlink("way", &secret)
        .hard_link("mine", "way");
    ground.unpack(&archive.end()).unwrap();
    assert!(is_link(&ground.at("mine")));
}

#[test]
fn devices_and_pipes_are_left_out() {
    let ground = Ground::new();
    let archive = Archive::default()
        .special(EntryType::Char, "dev/null")
        .special(EntryType::Block, "dev/sda")
        .special(EntryType::Fifo, "run/pipe")
        .file("etc/issue", b"x");
    ground.unpack(&archive.end()).unwrap();
    for path in ["dev/null", "dev/sda", "run/pipe"] {
        assert!(!ground.at(path).exists(), "{path}");
    }
}

#[test]
fn setuid_bits_are_dropped_and_the_sticky_bit_is_kept() {
    let ground = Ground::new();
    let mut su = header(EntryType::Regular, b"bin/su", 0);
    su.set_mode(0o6755);
    let mut tmp = header(EntryType::Directory, b"tmp", 0);
    tmp.set_mode(0o3777);
    ground
        .unpack(&Archive::default().raw(su, b"").raw(tmp, b"").end())
        .unwrap();
    let mode = |path: &str| fs::metadata(ground.at(path)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("bin/su"), mode("tmp")), (0o755, 0o1777));
}

#[test]
fn the_root_can_be_entered_whatever_was_packed() {
    let ground = Ground::new();
    let mut root = header(EntryType::Directory, b"./", 0);
    root.set_mode(0o700);
    ground
        .unpack(&Archive::default().raw(root, b"").file("f", b"").end())
        .unwrap();
    assert_eq!(fs::metadata(&ground.root).unwrap().mode() & 0o7777, 0o755);
}

#[test]
fn owners_are_kept_by_root_up_to_what_a_box_has() {
    let ground = Ground::new();
    let mut owned = header(EntryType::Regular, b"mine", 0);
    owned.set_uid(1234);
    owned.set_gid(65_535);
    ground
        .unpack(&Archive::default().raw(owned, b"").end())
        .unwrap();
    let mine = fs::metadata(ground.at("mine")).unwrap();
    let mut far = header(EntryType::Regular, b"far", 0);
    far.set_uid(70_000);
    let far = Archive::default().raw(far, b"").end();
    if rustix::process::geteuid().is_root() {
        assert_eq!((mine.uid(), mine.gid()), (1234, 65_535));
        ground.refuses(&far, "up to 65535");
    } else {
        assert_eq!(mine.uid(), rustix::process::geteuid().as_raw());
        ground.unpack(&far).unwrap();
    }
}

#[test]
fn what_breaks_off_is_noticed() {
    let ground = Ground::new();
    let archive = || Archive::default().file("f", &[1; 600]);
    let whole = archive().end();
    ground.unpack(&whole).unwrap();
    // At every kind of place: within the header, the content, its padding, and before the end.
    for length in [100, 511, 512, 700, 1112, 1400, archive().cut().len()] {
        let because = if length < 512 {
            "no tar"
        } else {
            "ends too early"
        };
        ground.refuses(&whole[..length], because);
    }
}

#[test]
fn what_is_no_archive_is_refused() {
    let ground = Ground::new();
    ground.refuses(b"", "empty");
    ground.refuses(b"hello", "no tar");
    ground.refuses(&[b'x'; 4096], "no tar");
    ground.refuses(&[0; 4096], "empty");
    let mut damaged = Archive::default().file("a", b"").file("b", b"").end();
    damaged[512] ^= 1;
    ground.refuses(&damaged, "damaged after entry 1");
    let followed = [Archive::default().file("a", b"").end(), vec![b'x'; 2 << 20]].concat();
    ground.refuses(&followed, "follows after its end");
}

#[test]
fn kinds_that_no_file_system_has_are_refused() {
    let ground = Ground::new();
    let sparse = Archive::default().raw(header(EntryType::GNUSparse, b"s", 0), b"");
    ground.refuses(&sparse.end(), "--sparse");
    let odd = Archive::default().raw(header(EntryType::new(b'Z'), b"z", 0), b"");
    ground.refuses(&odd.end(), "no file system has");
    let fat = Archive::default().raw(header(EntryType::Symlink, b"l", 5), b"12345");
    ground.refuses(&fat.end(), "content where there can be none");
}

#[test]
fn an_archive_of_layers_is_told_from_a_root() {
    let ground = Ground::new();
    let saved = Archive::default()
        .file("manifest.json", b"[]")
        .file("a/layer.tar", b"");
    ground.refuses(&saved.end(), "docker export");
    let rooted = Archive::default()
        .file("manifest.json", b"[]")
        .file("bin/sh", b"");
    ground.unpack(&rooted.end()).unwrap();
}

#[test]
fn sizes_and_counts_are_bounded() {
    let small = Limits {
        bytes: 1000,
        entries: 10,
    };
    let too_large =
        |archive: Vec<u8>, because: &str| match Ground::new().unpack_with(&archive, small) {
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
    // A size that is only claimed is believed before anything is written.
    let claimed = header(EntryType::Regular, b"huge", u64::MAX >> 2);
    too_large(
        Archive::default().raw(claimed, b"").end(),
        "more than 1000 bytes",
    );
    // Packed small, unpacked large.
    too_large(
        Archive::default().file("f", &vec![0; 1 << 20]).gzip(),
        "more than 1000 bytes",
    );
}

#[test]
fn an_extended_header_cannot_ask_for_memory() {
    let ground = Ground::new();
    for kind in [
        EntryType::XHeader,
        EntryType::GNULongName,
        EntryType::XGlobalHeader,
    ] {
        let archive = Archive::default().raw(header(kind, b"x", 1 << 40), b"");
        ground.refuses(&archive.end(), "an extended header has");
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
        ground.refuses(&archive.end(), "cannot be read");
    }
}
