//! Validates an uploaded archive before anything is written to disk.
//!
//! The result lists members with relative, distinct paths. All are files or directories. Their contents are inflated
//! to check the limits, because declared sizes cannot be trusted.

mod export;
mod install;

use std::collections::{BTreeMap, HashMap};
use std::io::{self, Cursor, Read};

use unicode_normalization::UnicodeNormalization as _;
use zip::read::ZipReadOptions;
use zip::{CompressionMethod, ZipArchive};

use crate::loading::discovery::ENTRY_FILES;
use crate::{Limits, Oversize, SkillError, package_path};

/// Signature of an entry in the central directory.
const DIRECTORY_ENTRY: &[u8] = b"PK\x01\x02";
const NAME_IS_UTF8: u16 = 0x800;
const FILE_TYPE: u32 = 0o170_000;
const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;

#[derive(Debug)]
pub(crate) struct Archive<'a> {
    zip: ZipArchive<Cursor<&'a [u8]>>,
    /// Sorted by path. Includes parent directories without an entry of their own.
    members: BTreeMap<String, Member>,
    /// Contents of the entry files.
    entries: HashMap<String, Vec<u8>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Member {
    Directory,
    File {
        index: usize,
        size: u64,
        executable: bool,
    },
}

impl<'a> Archive<'a> {
    /// Checks every name and inflates every file once, discarding the output.
    pub(crate) fn open(bytes: &'a [u8], limits: &Limits) -> Result<Self, SkillError> {
        if bytes.is_empty() {
            return Err(SkillError::UploadEmpty);
        }
        Oversize::ZipBytes.check(bytes.len(), limits.max_zip_bytes)?;
        // Checked before the reader allocates a record for each entry.
        let entries = memchr::memmem::find_iter(bytes, DIRECTORY_ENTRY);
        let entries = entries.take(limits.max_entries.saturating_add(1));
        Oversize::Entries.check(entries.count(), limits.max_entries)?;
        let zip = ZipArchive::new(Cursor::new(bytes)).map_err(|_| SkillError::UploadNotZip)?;
        let mut archive = Self {
            zip,
            members: BTreeMap::new(),
            entries: HashMap::new(),
        };
        archive.check_names(limits)?;
        archive.check_layout()?;
        archive.check_contents(bytes.len() as u64, limits)?;
        Ok(archive)
    }

    pub(crate) fn members(&self) -> &BTreeMap<String, Member> {
        &self.members
    }

    pub(crate) fn entry_text(&self, path: &str) -> Option<&[u8]> {
        self.entries.get(path).map(Vec::as_slice)
    }

    /// Inflates one file. The output is never longer than the size counted before.
    pub(crate) fn copy(
        &mut self,
        index: usize,
        size: u64,
        out: &mut impl io::Write,
    ) -> Result<(), SkillError> {
        let options = ZipReadOptions::new().enforce_header_consistency(true);
        let file = self
            .zip
            .by_index_with_options(index, options)
            .map_err(|_| SkillError::UploadNotZip)?;
        let mut bounded = file.take(size.saturating_add(1));
        let copied = io::copy(&mut bounded, out)
            .map_err(|error| SkillError::io("unpack", "the uploaded archive", error))?;
        if copied == size {
            Ok(())
        } else {
            Err(SkillError::UploadNotZip)
        }
    }

    fn check_names(&mut self, limits: &Limits) -> Result<(), SkillError> {
        let mut seen = Folded::default();
        let mut declared: u64 = 0;
        for index in 0..self.zip.len() {
            let entry = self
                .zip
                .by_index_data(index)
                .map_err(|_| SkillError::UploadNotZip)?;
            // Without the UTF-8 flag, a name is in code page 437 unless it is valid UTF-8.
            let marked = entry.flags().as_u16() & NAME_IS_UTF8 != 0;
            let has_invalid_utf8 = marked && std::str::from_utf8(entry.name_raw()).is_err();
            let name = entry.name().ok().filter(|_| !has_invalid_utf8);
            let member = name.as_deref().map_or_else(
                || printable(&String::from_utf8_lossy(entry.name_raw())),
                printable,
            );
            let unsafe_member = || SkillError::UnsafeMember(member.clone());
            let name = name.ok_or_else(unsafe_member)?;
            let is_directory = name.ends_with('/');
            // A mode that names a refused kind counts, whichever system the archive claims to come from.
            match (entry.external_attributes() >> 16) & FILE_TYPE {
                0 => {}
                DIRECTORY if is_directory => {}
                REGULAR if !is_directory => {}
                _ => return Err(unsafe_member()),
            }
            if entry.encrypted() {
                return Err(SkillError::EncryptedMember(member));
            }
            if !matches!(
                entry.compression(),
                CompressionMethod::Stored | CompressionMethod::Deflated
            ) {
                return Err(SkillError::UnsupportedMember(member));
            }
            let path = safe_path(&name).ok_or_else(unsafe_member)?;
            if path.is_empty() {
                // `./`: the root of the archive.
                continue;
            }
            package_path::check_size(&path, limits)?;
            let size = entry.size();
            declared = declared.saturating_add(size);
            Oversize::FileBytes.check(size, limits.max_file_bytes)?;
            Oversize::UnpackedBytes.check(declared, limits.max_unpacked_bytes)?;
            let member = if is_directory {
                // A directory entry with contents could hide data.
                if size > 0 || entry.compressed_size() > 16 {
                    return Err(unsafe_member());
                }
                Member::Directory
            } else {
                Member::File {
                    index,
                    size,
                    executable: entry.unix_mode().is_some_and(|mode| mode & 0o111 != 0),
                }
            };
            self.insert(&mut seen, path, member, limits)?;
        }
        Ok(())
    }

    /// Adds a member and its parent directories.
    fn insert(
        &mut self,
        seen: &mut Folded,
        path: String,
        member: Member,
        limits: &Limits,
    ) -> Result<(), SkillError> {
        for (slash, _) in path.match_indices('/') {
            // Case folding is slow, and thousands of members may share their directories.
            if self.members.get(&path[..slash]) == Some(&Member::Directory) {
                continue;
            }
            seen.add(&path[..slash], true)?;
            self.members
                .insert(path[..slash].to_owned(), Member::Directory);
        }
        seen.add(&path, member == Member::Directory)?;
        self.members.insert(path, member);
        Oversize::Entries.check(self.members.len(), limits.max_entries)
    }

    /// Refuses entries that share bytes, which allow zip bombs, and duplicate names, of which programs read different
    /// entries.
    fn check_layout(&mut self) -> Result<(), SkillError> {
        if self.zip.has_duplicate_names() {
            return Err(SkillError::DuplicateMember("unknown name".to_owned()));
        }
        match self.zip.has_overlapping_entries() {
            Ok(false) => Ok(()),
            Ok(true) => Err(SkillError::OverlappingMembers),
            Err(_) => Err(SkillError::UploadNotZip),
        }
    }

    /// Declared sizes can be wrong, so every file is inflated and counted.
    fn check_contents(&mut self, zip_bytes: u64, limits: &Limits) -> Result<(), SkillError> {
        let files: Vec<(String, usize, u64)> = self
            .members
            .iter()
            .filter_map(|(path, member)| match member {
                Member::File { index, size, .. } => Some((path.clone(), *index, *size)),
                Member::Directory => None,
            })
            .collect();
        let ratio_bytes = zip_bytes
            .saturating_mul(limits.max_ratio)
            .max(Limits::RATIO_FLOOR_BYTES);
        let mut total: u64 = 0;
        for (path, index, size) in files {
            total = total.saturating_add(size);
            if total > ratio_bytes {
                return Err(SkillError::too_large(Oversize::Ratio, limits.max_ratio));
            }
            let last = path.rsplit('/').next().unwrap_or(&path);
            if ENTRY_FILES.contains(&last) && size <= limits.max_skill_md_bytes {
                let mut content = Vec::new();
                self.copy(index, size, &mut content).map_err(unreadable)?;
                self.entries.insert(path, content);
            } else {
                self.copy(index, size, &mut io::sink())
                    .map_err(unreadable)?;
            }
        }
        Ok(())
    }
}

/// Nothing is written here, so a failed copy means an invalid archive.
fn unreadable(_: SkillError) -> SkillError {
    SkillError::UploadNotZip
}

/// Paths that a case-insensitive or normalizing file system treats as equal.
#[derive(Default)]
struct Folded {
    /// The path as first seen, and whether it is a directory.
    seen: HashMap<String, (String, bool)>,
}

impl Folded {
    /// Only a directory may occur again, with exactly the same path.
    fn add(&mut self, path: &str, is_directory: bool) -> Result<(), SkillError> {
        let folded: String = path.nfkc().flat_map(char::to_lowercase).nfc().collect();
        match self.seen.get(&folded) {
            None => {
                self.seen.insert(folded, (path.to_owned(), is_directory));
                Ok(())
            }
            Some((first, true)) if is_directory && first == path => Ok(()),
            Some(_) => Err(SkillError::DuplicateMember(printable(path))),
        }
    }
}

/// The path without `.` and empty parts. `None` if it could point outside the package.
fn safe_path(name: &str) -> Option<String> {
    let bytes = name.as_bytes();
    let drive = bytes.len() >= 2 && bytes[0].is_ascii_alphabetic() && bytes[1] == b':';
    if name.is_empty()
        || drive
        || name.starts_with('/')
        || name.contains('\\')
        || name.chars().any(char::is_control)
    {
        return None;
    }
    let mut parts = Vec::new();
    for part in name.split('/') {
        match part {
            "" | "." => {}
            ".." => return None,
            _ => parts.push(part),
        }
    }
    if parts.is_empty() && !name.ends_with('/') {
        return None;
    }
    Some(parts.join("/"))
}

/// An untrusted name for a message: shortened, with control characters replaced.
fn printable(name: &str) -> String {
    const MAX_CHARS: usize = 200;
    let mut text: String = name
        .chars()
        .take(MAX_CHARS)
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect();
    if name.chars().nth(MAX_CHARS).is_some() {
        text.push('…');
    }
    text
}
