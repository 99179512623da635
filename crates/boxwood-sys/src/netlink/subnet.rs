//! A range of IPv4 addresses.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

/// An IPv4 network such as `10.213.0.0/16`. The constructor clears host bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subnet {
    address: Ipv4Addr,
    prefix: u8,
}

impl Subnet {
    /// A prefix above 32 is taken as 32.
    pub const fn new(address: Ipv4Addr, prefix: u8) -> Self {
        let prefix = if prefix > 32 { 32 } else { prefix };
        Self {
            address: Ipv4Addr::from_bits(address.to_bits() & mask_bits(prefix)),
            prefix,
        }
    }

    pub const fn host(address: Ipv4Addr) -> Self {
        Self::new(address, 32)
    }

    pub fn address(self) -> Ipv4Addr {
        self.address
    }

    pub fn prefix(self) -> u8 {
        self.prefix
    }

    pub fn mask(self) -> Ipv4Addr {
        Ipv4Addr::from_bits(mask_bits(self.prefix))
    }

    pub fn contains(self, address: Ipv4Addr) -> bool {
        address.to_bits() & mask_bits(self.prefix) == self.address.to_bits()
    }

    pub fn overlaps(self, other: Self) -> bool {
        self.contains(other.address) || other.contains(self.address)
    }
}

const fn mask_bits(prefix: u8) -> u32 {
    match prefix {
        0 => 0,
        prefix => u32::MAX << (32 - prefix),
    }
}

impl fmt::Display for Subnet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubnetError(String);

impl fmt::Display for SubnetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` is not an IPv4 network such as `10.213.0.0/16`",
            self.0
        )
    }
}

impl std::error::Error for SubnetError {}

impl FromStr for Subnet {
    type Err = SubnetError;

    /// Rejects host bits: `10.213.0.1/16` is probably a mistake.
    fn from_str(text: &str) -> Result<Self, SubnetError> {
        let parse = || {
            let (address, prefix) = text.split_once('/').unwrap_or((text, "32"));
            let address: Ipv4Addr = address.parse().ok()?;
            let prefix: u8 = prefix.parse().ok().filter(|prefix| *prefix <= 32)?;
            let subnet = Self::new(address, prefix);
            (subnet.address == address).then_some(subnet)
        };
        parse().ok_or_else(|| SubnetError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subnet(text: &str) -> Subnet {
        text.parse().unwrap()
    }

    #[test]
    fn networks_with_host_bits_are_rejected() {
        for bad in [
            "",
            "10.0.0.1/8",
            "10.0.0.0/33",
            "10.0.0/8",
            "fd00::/8",
            "10.0.0.0/",
        ] {
            assert!(bad.parse::<Subnet>().is_err(), "{bad}");
        }
        assert_eq!(subnet("10.0.0.1").prefix(), 32);
        assert_eq!(subnet("0.0.0.0/0").to_string(), "0.0.0.0/0");
    }

    #[test]
    fn networks_overlap_if_one_contains_the_other() {
        for (left, right, expected) in [
            ("10.0.0.0/8", "10.213.4.0/30", true),
            ("10.213.4.0/30", "10.0.0.0/8", true),
            ("10.213.4.0/30", "10.213.4.4/30", false),
            ("0.0.0.0/0", "1.2.3.4/32", true),
        ] {
            assert_eq!(
                subnet(left).overlaps(subnet(right)),
                expected,
                "{left} {right}"
            );
        }
    }
}
