//! Addresses and networks of peers.

use std::net::IpAddr;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, de::Error as _};

/// An address, or a network such as `172.18.0.0/16`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerNetwork {
    address: IpAddr,
    prefix: u8,
}

impl PeerNetwork {
    pub fn contains(&self, peer: IpAddr) -> bool {
        let peer = peer.to_canonical();
        let left_aligned = |address| match address {
            IpAddr::V4(v4) => u128::from(v4.to_bits()) << 96,
            IpAddr::V6(v6) => v6.to_bits(),
        };
        let difference = left_aligned(self.address) ^ left_aligned(peer);
        self.address.is_ipv4() == peer.is_ipv4()
            && difference.leading_zeros() >= u32::from(self.prefix)
    }
}

impl FromStr for PeerNetwork {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address = address.parse::<IpAddr>().map_err(|_| ())?.to_canonical();
        let max_prefix = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.map_or(Ok(max_prefix), str::parse).map_err(|_| ())?;
        if prefix > max_prefix {
            return Err(());
        }
        Ok(Self { address, prefix })
    }
}

impl<'de> Deserialize<'de> for PeerNetwork {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        let text = String::deserialize(input)?;
        text.parse().map_err(|()| {
            D::Error::custom(format!(
                "`{text}` is not an address or a network, such as `172.18.0.5` or `172.18.0.0/16`"
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_contain_their_addresses() {
        for (network, inside, outside) in [
            ("172.18.0.5", "172.18.0.5", "172.18.0.6"),
            ("172.18.0.0/16", "::ffff:172.18.9.9", "172.19.0.1"),
            ("0.0.0.0/0", "203.0.113.9", "2001:db8::1"),
            ("2001:db8::/32", "2001:db8:1::2", "2001:db9::1"),
        ] {
            let parsed: PeerNetwork = network.parse().expect("a network");
            assert!(
                parsed.contains(inside.parse().expect("address")),
                "{network}"
            );
            assert!(
                !parsed.contains(outside.parse().expect("address")),
                "{network}"
            );
        }
        for wrong in ["", "x", "10.0.0.0/33", "10.0.0.0/-1", "::/129", "10.0.0.0/"] {
            assert!(wrong.parse::<PeerNetwork>().is_err(), "{wrong}");
        }
    }
}
