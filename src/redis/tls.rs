//! What TLS needs besides the redis crate: cryptography, and whom to trust.

use ::redis::{Client, ConnectionAddr, ConnectionInfo, TlsCertificates};
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::error::Error;

/// Sees to it that there is cryptography, if `info` needs some. The redis crate takes the process's, and would panic if nobody
/// had chosen any and another crate had built in a second kind.
pub(super) fn provide_cryptography(info: &ConnectionInfo) {
    if is_tls(info) && CryptoProvider::get_default().is_none() {
        // Refused if another thread was faster, and then there is one.
        let _ = ring::default_provider().install_default();
    }
}

/// A client that trusts the certificates in `pem`, and none of the system's.
pub(super) fn client_that_trusts(pem: &[u8], info: ConnectionInfo) -> Result<Client, Error> {
    if !is_tls(&info) {
        return Err(Error::url("a root certificate needs a rediss:// one"));
    }
    // The redis crate takes a text without a certificate for an empty list, and then trusts nobody.
    if CertificateDer::pem_slice_iter(pem).next().is_none_or(|first| first.is_err()) {
        return Err(Error::certificate(None));
    }
    let certificates = TlsCertificates { client_tls: None, root_cert: Some(pem.to_owned()) };
    Client::build_with_tls(info, certificates).map_err(|error| Error::certificate(Some(error)))
}

fn is_tls(info: &ConnectionInfo) -> bool {
    matches!(info.addr(), ConnectionAddr::TcpTls { .. })
}
