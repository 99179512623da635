//! A JSON header followed by opaque bytes from the layer above.
//!
//! The header is JSON because the daemon that reads it may be another version than the one that wrote it.

use std::io;

use serde::Serialize;
use serde::de::DeserializeOwned;

const LENGTH: usize = size_of::<u32>();

pub(crate) fn pack(header: &impl Serialize, rest: &[u8]) -> io::Result<Vec<u8>> {
    let header = serde_json::to_vec(header)?;
    let length = u32::try_from(header.len()).map_err(io::Error::other)?;
    let mut bytes = Vec::with_capacity(LENGTH + header.len() + rest.len());
    bytes.extend_from_slice(&length.to_le_bytes());
    bytes.extend_from_slice(&header);
    bytes.extend_from_slice(rest);
    Ok(bytes)
}

pub(crate) fn unpack<H: DeserializeOwned>(bytes: &[u8]) -> io::Result<(H, &[u8])> {
    let short = || io::Error::other("the record is truncated");
    let (length, bytes) = bytes.split_first_chunk::<LENGTH>().ok_or_else(short)?;
    let length = usize::try_from(u32::from_le_bytes(*length)).map_err(io::Error::other)?;
    let (header, rest) = bytes.split_at_checked(length).ok_or_else(short)?;
    Ok((serde_json::from_slice(header)?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_and_payload_are_restored_and_damage_is_an_error() {
        let packed = pack(&("header", 7), b"\x00rest\xff").expect("pack");
        let (header, rest) = unpack::<(String, u32)>(&packed).expect("unpack");
        assert_eq!(header, ("header".to_owned(), 7));
        assert_eq!(rest, b"\x00rest\xff");
        for damaged in [&packed[..3], &packed[..6], b"", b"\xff\xff\xff\xffx"] {
            assert!(unpack::<(String, u32)>(damaged).is_err());
        }
    }
}
