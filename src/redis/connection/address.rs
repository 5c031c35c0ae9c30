//! [`Address`]: a server's, as others announce it.

use std::fmt;

use ::redis::{ConnectionAddr, ConnectionInfo};

/// Where a server takes connections.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Address {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Address {
    /// `info`, for the server at this address, with TLS or without as before.
    pub(crate) fn into_info(self, info: &ConnectionInfo) -> ConnectionInfo {
        let address = match info.addr() {
            ConnectionAddr::TcpTls { .. } => {
                ConnectionAddr::TcpTls { host: self.host, port: self.port, insecure: false, tls_params: None }
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
    use ::redis::IntoConnectionInfo as _;

    use super::*;

    #[test]
    fn server_that_others_announce_is_reached_as_the_one_of_the_url_is() {
        let at = |url: &str| {
            let address = Address { host: "10.0.0.2".into(), port: 7001 };
            address.into_info(&url.into_connection_info().unwrap()).addr().clone()
        };
        assert!(matches!(at("redis://a"), ConnectionAddr::Tcp(host, 7001) if host == "10.0.0.2"));
        let ConnectionAddr::TcpTls { host, port: 7001, .. } = at("rediss://a") else {
            panic!("its commands, and its password, go over the network in clear")
        };
        assert_eq!(host, "10.0.0.2");
    }
}
