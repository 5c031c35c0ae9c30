//! Addresses as a Cluster says them.

use ::redis::{ConnectionAddr, ConnectionInfo};

use super::super::super::connection::Address;

impl Address {
    /// `None` for what others cannot reach: a unix socket.
    pub(super) fn of(info: &ConnectionInfo) -> Option<Self> {
        match info.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                Some(Self { host: host.clone(), port: *port })
            }
            _ => None,
        }
    }

    /// `host:port`. The host may be empty.
    pub(super) fn parse(text: &str) -> Option<Self> {
        // The last colon: there are more in an address of IPv6.
        let (host, port) = text.rsplit_once(':')?;
        Some(Self { host: host.to_owned(), port: port.parse().ok()? })
    }
}

/// `host:port` of a redirect that came from the node at `asked`. Without a host it means the one that we
/// asked.
pub(super) fn redirected(text: &str, asked: &str) -> Option<Address> {
    let to = Address::parse(text)?;
    if to.host.is_empty() { Some(Address { host: Address::parse(asked)?.host, ..to }) } else { Some(to) }
}

#[cfg(test)]
mod tests {
    use super::redirected;

    #[test]
    fn redirects_name_a_host_or_mean_the_one_that_was_asked() {
        let read = |text| redirected(text, "node-1:7000").map(|address| address.to_string());
        assert_eq!(read("10.0.0.2:7001").as_deref(), Some("10.0.0.2:7001"));
        assert_eq!(read("node-2.example.com:7001").as_deref(), Some("node-2.example.com:7001"));
        assert_eq!(read(":7001").as_deref(), Some("node-1:7001"));
        assert_eq!(read("fe80::2:7001").as_deref(), Some("fe80::2:7001"));
        assert_eq!(read("7001"), None);
        assert_eq!(read("node-2:"), None);
    }
}
