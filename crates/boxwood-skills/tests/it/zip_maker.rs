//! Archives as no honest tool makes them, byte by byte.

/// One member, with every field open to lies.
#[derive(Clone)]
pub(crate) struct Raw {
    pub(crate) name: Vec<u8>,
    /// As it stands in the archive.
    pub(crate) data: Vec<u8>,
    pub(crate) method: u16,
    pub(crate) flags: u16,
    /// Upper byte of "made by": 3 is Unix.
    pub(crate) system: u8,
    pub(crate) mode: u32,
    pub(crate) crc: u32,
    pub(crate) size: u32,
    /// A name in the local header that differs from the directory's.
    pub(crate) local_name: Option<Vec<u8>>,
    /// Points at another member's local header instead of having its own.
    pub(crate) shares: Option<usize>,
    pub(crate) extra: Vec<u8>,
}

pub(crate) fn stored(name: impl AsRef<[u8]>, data: impl AsRef<[u8]>) -> Raw {
    let data = data.as_ref().to_vec();
    Raw {
        name: name.as_ref().to_vec(),
        method: 0,
        // Names are UTF-8.
        flags: 0x800,
        system: 3,
        mode: 0o100_644,
        crc: crc32fast::hash(&data),
        size: u32::try_from(data.len()).expect("small"),
        data,
        local_name: None,
        shares: None,
        extra: Vec::new(),
    }
}

/// Zeroes that deflate to a thousandth of their size.
pub(crate) fn deflated_zeroes(name: &str, size: usize) -> Raw {
    use std::io::Write as _;
    let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default()
        .compression_method(zip::CompressionMethod::Deflated);
    writer.start_file("z", options).expect("started");
    let block = vec![0; 1 << 20];
    let mut left = size;
    while left > 0 {
        let now = left.min(block.len());
        writer.write_all(&block[..now]).expect("written");
        left -= now;
    }
    let whole = writer.finish().expect("finished").into_inner();
    let mut archive = zip::ZipArchive::new(std::io::Cursor::new(&whole)).expect("read");
    let file = archive.by_index(0).expect("member");
    let start = usize::try_from(file.data_start().expect("start")).expect("small");
    let length = usize::try_from(file.compressed_size()).expect("small");
    Raw {
        method: 8,
        crc: file.crc32(),
        size: u32::try_from(size).expect("small"),
        data: whole[start..start + length].to_vec(),
        ..stored(name, "")
    }
}

pub(crate) fn skill(name: &str) -> Raw {
    stored("SKILL.md", crate::fixture::skill_md(name))
}

pub(crate) fn archive(members: &[Raw]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut offsets: Vec<u32> = Vec::new();
    for member in members {
        if let Some(shared) = member.shares {
            offsets.push(offsets[shared]);
            continue;
        }
        offsets.push(length(&bytes));
        let name = member.local_name.as_ref().unwrap_or(&member.name);
        bytes.extend(b"PK\x03\x04");
        bytes.extend(20_u16.to_le_bytes());
        common(&mut bytes, member, name);
        bytes.extend(name);
        bytes.extend(&member.extra);
        bytes.extend(&member.data);
    }
    let start = length(&bytes);
    for (member, offset) in members.iter().zip(&offsets) {
        bytes.extend(b"PK\x01\x02");
        bytes.extend([20, member.system]);
        bytes.extend(20_u16.to_le_bytes());
        common(&mut bytes, member, &member.name);
        // Comment, disk, internal attributes.
        bytes.extend([0; 6]);
        bytes.extend((member.mode << 16).to_le_bytes());
        bytes.extend(offset.to_le_bytes());
        bytes.extend(&member.name);
        bytes.extend(&member.extra);
    }
    let size = length(&bytes) - start;
    let count = u16::try_from(members.len()).expect("few").to_le_bytes();
    bytes.extend(b"PK\x05\x06");
    bytes.extend([0; 4]);
    bytes.extend(count);
    bytes.extend(count);
    bytes.extend(size.to_le_bytes());
    bytes.extend(start.to_le_bytes());
    bytes.extend([0; 2]);
    bytes
}

fn common(bytes: &mut Vec<u8>, member: &Raw, name: &[u8]) {
    bytes.extend(member.flags.to_le_bytes());
    bytes.extend(member.method.to_le_bytes());
    // A time and a date that exist.
    bytes.extend([0, 0, 0x21, 0]);
    bytes.extend(member.crc.to_le_bytes());
    bytes.extend(length(&member.data).to_le_bytes());
    bytes.extend(member.size.to_le_bytes());
    bytes.extend(u16::try_from(name.len()).expect("short").to_le_bytes());
    bytes.extend(
        u16::try_from(member.extra.len())
            .expect("short")
            .to_le_bytes(),
    );
}

fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).expect("small")
}
