//! [`Address`]: a node's, as the Cluster announces it.

use std::fmt;

use ::redis::{ConnectionAddr, ConnectionInfo};

/// Where a node takes connections.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Address {
    pub(super) host: String,
    pub(super) port: u16,
}

impl Address {
    /// `None` for what no node of a Cluster has: a unix socket.
    pub(super) fn of(info: &ConnectionInfo) -> Option<Self> {
        match info.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                Some(Self { host: host.clone(), port: *port })
            }
            _ => None,
        }
    }

    /// `host:port` of a redirect that came from the node `asked`. Without a host it means the one that we asked.
    pub(super) fn in_redirect(text: &str, asked: &Self) -> Option<Self> {
        // The last colon: there are more in an address of IPv6.
        let (host, port) = text.rsplit_once(':')?;
        let host = if host.is_empty() { &asked.host } else { host };
        Some(Self { host: host.to_owned(), port: port.parse().ok()? })
    }

    /// `info`, for this node.
    pub(super) fn into_info(self, info: &ConnectionInfo) -> ConnectionInfo {
        let address = match info.addr().clone() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host: self.host, port: self.port, insecure, tls_params }
            }
            _ => ConnectionAddr::Tcp(self.host, self.port),
        };
        info.clone().set_addr(address)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

#[cfg(test)]
mod tests {
    use super::Address;

    #[test]
    fn redirects_name_a_host_or_mean_the_one_that_was_asked() {
        let asked = Address { host: "node-1".into(), port: 7000 };
        let read = |text| Address::in_redirect(text, &asked).map(|address| address.to_string());
        assert_eq!(read("10.0.0.2:7001").as_deref(), Some("10.0.0.2:7001"));
        assert_eq!(read("node-2.example.com:7001").as_deref(), Some("node-2.example.com:7001"));
        assert_eq!(read(":7001").as_deref(), Some("node-1:7001"));
        assert_eq!(read("fe80::2:7001").as_deref(), Some("fe80::2:7001"));
        assert_eq!(read("7001"), None);
        assert_eq!(read("node-2:"), None);
    }
}
