//! Builds and reads netlink messages: a header, a fixed body, attributes with 4-byte alignment.

use std::borrow::Cow;
use std::net::Ipv4Addr;

use super::HEADER;

const NESTED: u16 = 1 << 15;
const NET_BYTE_ORDER: u16 = 1 << 14;

/// One message under construction.
#[derive(Clone, Debug)]
pub struct Message {
    bytes: Vec<u8>,
}

impl Message {
    pub fn new(kind: u16, flags: u16) -> Self {
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&flags.to_ne_bytes());
        Self { bytes }
    }

    /// Appends the fixed part that follows the header (or, inside a nest, precedes the attributes).
    #[must_use]
    pub fn body(mut self, body: &[u8]) -> Self {
        self.bytes.extend_from_slice(body);
        self.pad();
        self
    }

    #[must_use]
    pub fn bytes(mut self, kind: u16, value: &[u8]) -> Self {
        let start = self.open(kind);
        self.bytes.extend_from_slice(value);
        self.close(start);
        self
    }

    /// A string with the terminating zero that the kernel expects.
    #[must_use]
    pub fn text(self, kind: u16, value: &str) -> Self {
        let mut terminated = value.as_bytes().to_vec();
        terminated.push(0);
        self.bytes(kind, &terminated)
    }

    /// A number in host byte order, for the route family.
    #[must_use]
    pub fn number(self, kind: u16, value: u32) -> Self {
        self.bytes(kind, &value.to_ne_bytes())
    }

    /// A number in network byte order, for netfilter.
    #[must_use]
    pub fn number_be(self, kind: u16, value: u32) -> Self {
        self.bytes(kind, &value.to_be_bytes())
    }

    #[must_use]
    pub fn nest(mut self, kind: u16, fill: impl FnOnce(Self) -> Self) -> Self {
        let start = self.open(kind | NESTED);
        let mut filled = fill(self);
        filled.close(start);
        filled
    }

    pub(super) fn finish(mut self, sequence: u32) -> Vec<u8> {
        self.set_sequence(sequence);
        self.bytes
    }

    /// Writes the total length and `sequence` into the header and appends the message to `batch`.
    pub(crate) fn append_to(mut self, batch: &mut Vec<u8>, sequence: u32) {
        self.set_sequence(sequence);
        batch.extend_from_slice(&self.bytes);
    }

    fn set_sequence(&mut self, sequence: u32) {
        let length = u32::try_from(self.bytes.len()).unwrap_or(u32::MAX);
        self.bytes[0..4].copy_from_slice(&length.to_ne_bytes());
        self.bytes[8..12].copy_from_slice(&sequence.to_ne_bytes());
    }

    fn open(&mut self, kind: u16) -> usize {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 2]);
        self.bytes.extend_from_slice(&kind.to_ne_bytes());
        start
    }

    /// The length of a value that is too long is saturated; the kernel then refuses the message as malformed.
    fn close(&mut self, start: usize) {
        let length = u16::try_from(self.bytes.len() - start).unwrap_or(u16::MAX);
        self.bytes[start..start + 2].copy_from_slice(&length.to_ne_bytes());
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

/// The attributes of a received message. Stops at the first malformed one.
#[derive(Clone, Debug)]
pub struct Attributes<'a> {
    rest: &'a [u8],
}

#[derive(Clone, Copy, Debug)]
pub struct Attribute<'a> {
    pub kind: u16,
    pub value: &'a [u8],
}

impl<'a> Attributes<'a> {
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub fn first(&self, kind: u16) -> Option<Attribute<'a>> {
        self.clone().find(|attribute| attribute.kind == kind)
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Attribute<'a>;

    fn next(&mut self) -> Option<Attribute<'a>> {
        let header = self.rest.first_chunk::<4>()?;
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let kind = u16::from_ne_bytes([header[2], header[3]]) & !(NESTED | NET_BYTE_ORDER);
        let value = self.rest.get(4..length)?;
        self.rest = self
            .rest
            .get(length.next_multiple_of(4)..)
            .unwrap_or_default();
        Some(Attribute { kind, value })
    }
}

impl<'a> Attribute<'a> {
    pub fn number(&self) -> Option<u32> {
        Some(u32::from_ne_bytes(*self.value.first_chunk()?))
    }

    pub fn number_be(&self) -> Option<u32> {
        Some(u32::from_be_bytes(*self.value.first_chunk()?))
    }

    pub fn address(&self) -> Option<Ipv4Addr> {
        let octets: [u8; 4] = self.value.try_into().ok()?;
        Some(Ipv4Addr::from(octets))
    }

    pub fn text(&self) -> Cow<'a, str> {
        let end = self.value.iter().position(|byte| *byte == 0);
        String::from_utf8_lossy(&self.value[..end.unwrap_or(self.value.len())])
    }

    pub fn nested(&self) -> Attributes<'a> {
        Attributes::new(self.value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_round_trips() {
        let message = Message::new(7, 1)
            .body(&[1, 2])
            .text(3, "eth0")
            .nest(4, |inner| inner.number(1, 9).number_be(2, 9));
        let bytes = message.finish(5);
        assert_eq!(bytes.len() % 4, 0);
        assert_eq!(
            bytes[0..4],
            u32::try_from(bytes.len()).unwrap().to_ne_bytes()
        );
        let attributes = Attributes::new(&bytes[HEADER + 4..]);
        assert_eq!(attributes.first(3).unwrap().text(), "eth0");
        let nest = attributes.first(4).unwrap().nested();
        assert_eq!(nest.first(1).unwrap().number(), Some(9));
        assert_eq!(nest.first(2).unwrap().number_be(), Some(9));
    }

    #[test]
    fn a_malformed_attribute_ends_the_list() {
        for bytes in [&[3, 0, 1, 0][..], &[200, 0, 1, 0, 5], &[0; 4], &[1]] {
            assert_eq!(Attributes::new(bytes).count(), 0, "{bytes:?}");
        }
    }
}
