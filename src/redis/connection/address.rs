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
