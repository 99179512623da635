//! Streams the entries of a tar archive without buffering them.
//!
//! Headers are parsed by the `tar` crate. The iteration is our own, so that extended headers are bounded
//! and a missing end mark is detected.

use std::io::{self, Read};

use boxwood_backend::ImageError;
use tar::{EntryType, Header};

use super::tar_fault::{bad, bad_entry, reading};

const BLOCK: u64 = 512;
const BLOCK_BYTES: usize = 512;
/// Bound for long names and extended attributes. Attributes are ignored but have to be skipped.
const MAX_EXTENSION_BYTES: u64 = 1 << 20;
/// Archives are padded to whole tape records.
const MAX_PADDING_BYTES: u64 = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Directory,
    Symlink,
    HardLink,
    /// A device or a pipe. Boxes get their own.
    Special,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) kind: Kind,
    pub(super) path: Vec<u8>,
    pub(super) link: Vec<u8>,
    pub(super) size: u64,
    pub(super) mode: u32,
    pub(super) uid: u64,
    pub(super) gid: u64,
    pub(super) modified: u64,
}

pub(super) struct TarStream<R> {
    input: R,
    /// Unread content of the current entry, and the padding after it.
    unread: u64,
    padding: u64,
    headers: u64,
}

/// Fields of an extended header that override those of the next entry.
#[derive(Default)]
struct Extended {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    uid: Option<u64>,
    gid: Option<u64>,
}

impl<R: Read> TarStream<R> {
    pub(super) fn new(input: R) -> Self {
        Self {
            input,
            unread: 0,
            padding: 0,
            headers: 0,
        }
    }

    /// Number of headers so far, including extended ones.
    pub(super) fn headers(&self) -> u64 {
        self.headers
    }

    /// The next entry, or `None` after the end mark.
    pub(super) fn next(&mut self) -> Result<Option<Entry>, ImageError> {
        let mut extended = Extended::default();
        loop {
            self.skip_content()?;
            let Some(header) = self.header()? else {
                self.skip_end()?;
                return Ok(None);
            };
            let plain_size = || {
                let size = header.entry_size();
                size.map_err(|_| bad_entry(&header.path_bytes(), "has no readable size"))
            };
            match header.entry_type() {
                EntryType::XHeader => {
                    let text = self.extension(plain_size()?)?;
                    extended.take(&text)?;
                }
                EntryType::GNULongName => {
                    extended.path = Some(until_nul(self.extension(plain_size()?)?));
                }
                EntryType::GNULongLink => {
                    extended.link = Some(until_nul(self.extension(plain_size()?)?));
                }
                EntryType::XGlobalHeader => {
                    self.extension(plain_size()?)?;
                }
                _ => {
                    let size = match extended.size {
                        Some(size) => size,
                        None => plain_size()?,
                    };
                    let entry = entry(&header, extended, size)?;
                    if entry.kind == Kind::File || entry.kind == Kind::Special {
                        self.begin_content(size);
                    } else if size != 0 && entry.kind != Kind::HardLink {
                        return Err(bad_entry(&entry.path, "must not have content"));
                    }
                    return Ok(Some(entry));
                }
            }
        }
    }

    fn begin_content(&mut self, size: u64) {
        self.unread = size;
        self.padding = (BLOCK - size % BLOCK) % BLOCK;
    }

    /// `None` is the zero block that starts the end mark.
    fn header(&mut self) -> Result<Option<Header>, ImageError> {
        let mut block = [0; BLOCK_BYTES];
        match self.input.read_exact(&mut block) {
            Ok(()) => {}
            Err(error) if self.headers == 0 && error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(bad("it is not a tar archive"));
            }
            Err(error) => return Err(reading(&error)),
        }
        if block.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        let header = Header::from_byte_slice(&block).clone();
        let mut computed = header.clone();
        computed.set_cksum();
        if header.cksum().ok() != computed.cksum().ok() {
            return Err(match self.headers {
                0 => bad("it is not a tar archive"),
                number => bad(format!("it is damaged after entry {number}")),
            });
        }
        self.headers += 1;
        Ok(Some(header))
    }

    fn extension(&mut self, size: u64) -> Result<Vec<u8>, ImageError> {
        if size > MAX_EXTENSION_BYTES {
            return Err(bad(format!(
                "an extended header has {size} bytes, more than {MAX_EXTENSION_BYTES}"
            )));
        }
        self.begin_content(size);
        let mut text = Vec::new();
        self.read_to_end(&mut text)
            .map_err(|error| reading(&error))?;
        Ok(text)
    }

    fn skip_content(&mut self) -> Result<(), ImageError> {
        let remaining = std::mem::take(&mut self.unread) + std::mem::take(&mut self.padding);
        let skipped = io::copy(&mut self.input.by_ref().take(remaining), &mut io::sink())
            .map_err(|error| reading(&error))?;
        if skipped == remaining {
            Ok(())
        } else {
            Err(reading(&io::ErrorKind::UnexpectedEof.into()))
        }
    }

    /// Reads the padding of the archive, so that the sender can finish and the gzip checksum is verified.
    fn skip_end(&mut self) -> Result<(), ImageError> {
        let mut rest = self.input.by_ref().take(MAX_PADDING_BYTES + 1);
        let skipped = io::copy(&mut rest, &mut io::sink()).map_err(|error| reading(&error))?;
        if skipped > MAX_PADDING_BYTES {
            return Err(bad("it has data after its end"));
        }
        Ok(())
    }
}

/// The content of the current entry.
impl<R: Read> Read for TarStream<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.unread == 0 || buffer.is_empty() {
            return Ok(0);
        }
        let length =
            usize::try_from(self.unread).map_or(buffer.len(), |left| left.min(buffer.len()));
        let read = self.input.read(&mut buffer[..length])?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.unread -= read as u64;
        Ok(read)
    }
}

fn entry(header: &Header, extended: Extended, size: u64) -> Result<Entry, ImageError> {
    let path = match extended.path {
        Some(path) => path,
        None => header.path_bytes().into_owned(),
    };
    let kind = match header.entry_type() {
        EntryType::Regular | EntryType::Continuous if path.ends_with(b"/") => Kind::Directory,
        EntryType::Regular | EntryType::Continuous => Kind::File,
        EntryType::Directory => Kind::Directory,
        EntryType::Symlink => Kind::Symlink,
        EntryType::Link => Kind::HardLink,
        EntryType::Char | EntryType::Block | EntryType::Fifo => Kind::Special,
        EntryType::GNUSparse => {
            return Err(bad_entry(
                &path,
                "is a sparse file; make the archive without `--sparse`",
            ));
        }
        _ => return Err(bad_entry(&path, "has an unsupported type")),
    };
    let link = match extended.link {
        Some(link) => link,
        None => header.link_name_bytes().unwrap_or_default().into_owned(),
    };
    let unreadable = |_error: io::Error| bad_entry(&path, "has an unreadable header");
    let entry = Entry {
        kind,
        size,
        mode: header.mode().map_err(unreadable)?,
        uid: extended
            .uid
            .map_or_else(|| header.uid(), Ok)
            .map_err(unreadable)?,
        gid: extended
            .gid
            .map_or_else(|| header.gid(), Ok)
            .map_err(unreadable)?,
        // Dates before 1970 and damaged ones are not worth an error.
        modified: header.mtime().unwrap_or(0),
        link,
        path: Vec::new(),
    };
    Ok(Entry { path, ..entry })
}

impl Extended {
    /// Parses lines of `length key=value`; the length includes itself and the newline.
    fn take(&mut self, mut text: &[u8]) -> Result<(), ImageError> {
        let broken = || bad("an extended header is malformed");
        while !text.is_empty() {
            let space = text
                .iter()
                .position(|byte| *byte == b' ')
                .ok_or_else(broken)?;
            let length: usize = number(&text[..space])
                .and_then(|length| length.try_into().ok())
                .ok_or_else(broken)?;
            if length <= space + 1 || length > text.len() || text[length - 1] != b'\n' {
                return Err(broken());
            }
            let (line, rest) = (&text[space + 1..length - 1], &text[length..]);
            let equals = line
                .iter()
                .position(|byte| *byte == b'=')
                .ok_or_else(broken)?;
            let (key, value) = (&line[..equals], &line[equals + 1..]);
            match key {
                b"path" => self.path = Some(value.to_owned()),
                b"linkpath" => self.link = Some(value.to_owned()),
                b"size" => self.size = Some(number(value).ok_or_else(broken)?),
                b"uid" => self.uid = Some(number(value).ok_or_else(broken)?),
                b"gid" => self.gid = Some(number(value).ok_or_else(broken)?),
                key if key.starts_with(b"GNU.sparse.") => {
                    return Err(bad("it has sparse files; make it without `--sparse`"));
                }
                _ => {}
            }
            text = rest;
        }
        Ok(())
    }
}

fn number(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

fn until_nul(mut text: Vec<u8>) -> Vec<u8> {
    if let Some(nul) = text.iter().position(|byte| *byte == 0) {
        text.truncate(nul);
    }
    text
}
