//! [`Tls`]: certificates and streams of `rediss://` URLs.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use ::redis::{AsyncConnectionConfig, ConnectionAddr, ConnectionInfo};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::{ClientConfig, WantsClientCert};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{self, ConfigBuilder, RootCertStore};

use super::error::Error;
use super::live::{MultiplexedConnection, over, tcp};
use crate::support::runtime::TokioRuntime;

/// Makes TLS streams. The redis crate's own TLS would choose the cryptography of the whole process.
pub(crate) struct Connector(TlsConnector);

impl Connector {
    /// Connects to the server of `info`, which has until `limit` to answer.
    pub(crate) async fn dial(
        &self,
        runtime: &TokioRuntime,
        info: &ConnectionInfo,
        config: AsyncConnectionConfig,
        limit: Duration,
    ) -> Result<MultiplexedConnection, Error> {
        let address = info.addr().to_string();
        let met = |error: io::Error| Error::introduction(&address, error.into());
        let ConnectionAddr::TcpTls { host, port, .. } = info.addr() else {
            return Err(met(io::ErrorKind::InvalidInput.into()));
        };
        let name = ServerName::try_from(host.clone()).map_err(|error| met(io::Error::other(error)))?;
        let stream = tcp(host, *port, info).await.map_err(met)?;
        // A Redis port without TLS takes the handshake for an unfinished command, and stays silent. This
        // limit ends before that of the whole dial, whose error does not name TLS.
        let stream = match runtime.timeout(limit * 9 / 10, self.0.connect(name, stream)).await {
            Some(Ok(stream)) => stream,
            Some(Err(error)) if !is_other_protocol(&error) => return Err(met(error)),
            Some(Err(_)) | None => return Err(Error::no_tls(&address)),
        };
        let connection = over(runtime, info.redis_settings(), stream, config, limit).await;
        connection.map_err(|error| Error::introduction(&address, error))
    }
}

fn is_other_protocol(error: &io::Error) -> bool {
    let met = error.get_ref().and_then(|met| met.downcast_ref());
    matches!(met, Some(rustls::Error::InvalidMessage(_)))
}

#[derive(Clone, Default)]
pub(crate) struct Tls {
    /// PEM certificates to trust instead of the system's.
    pub(crate) root_certificate: Option<Vec<u8>>,
    pub(crate) client_certificate: Option<(Vec<u8>, Vec<u8>)>,
}

impl Tls {
    /// Returns `None` for an address without TLS.
    pub(crate) fn connector(&self, address: &ConnectionAddr) -> Result<Option<Connector>, Error> {
        if !matches!(address, ConnectionAddr::TcpTls { .. }) {
            if self.root_certificate.is_none() && self.client_certificate.is_none() {
                return Ok(None);
            }
            return Err(Error::url("a certificate needs a rediss:// one"));
        }
        // Prefer the cryptography that the process has chosen.
        let provider = CryptoProvider::get_default().cloned();
        let provider = provider.unwrap_or_else(|| Arc::new(ring::default_provider()));
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_safe_default_protocol_versions().map_err(unusable)?;
        let config = self.shown(builder.with_root_certificates(self.trusted()?))?;
        Ok(Some(Connector(Arc::new(config).into())))
    }

    fn trusted(&self) -> Result<RootCertStore, Error> {
        let mut roots = RootCertStore::empty();
        match &self.root_certificate {
            Some(pem) => {
                for certificate in certificates(pem, "the root certificate")? {
                    roots.add(certificate).map_err(|_| Error::certificate("the root certificate"))?;
                }
            }
            None => {
                let mut loaded = rustls_native_certs::load_native_certs();
                _ = roots.add_parsable_certificates(loaded.certs);
                if roots.is_empty() {
                    return Err(Error::no_system_certificates(loaded.errors.pop().map(io::Error::other)));
                }
            }
        }
        Ok(roots)
    }

    fn shown(&self, builder: ConfigBuilder<ClientConfig, WantsClientCert>) -> Result<ClientConfig, Error> {
        const WHICH: &str = "the client's certificate or its key";
        let Some((certificate, key)) = &self.client_certificate else {
            return Ok(builder.with_no_client_auth());
        };
        let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| Error::certificate(WHICH))?;
        let shown = builder.with_client_auth_cert(certificates(certificate, WHICH)?, key);
        shown.map_err(|_| Error::certificate(WHICH))
    }
}

fn unusable(error: rustls::Error) -> Error {
    Error::unusable_url(io::Error::other(error).into())
}

/// Fails for an empty file too: no server would be trusted.
fn certificates(pem: &[u8], which: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
    let certificates: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    certificates.ok().filter(|all| !all.is_empty()).ok_or_else(|| Error::certificate(which))
}

#[cfg(test)]
mod tests {
    use redis::IntoConnectionInfo as _;

    use super::super::common::{Common, Timing};
    use super::super::dial::{ConnectOptions, Dialer};
    use super::super::error::ErrorKind;
    use super::*;
    use crate::support::runtime::TokioRuntime;

    fn client(url: &str, tls: &Tls) -> Result<Option<Connector>, Error> {
        tls.connector(url.into_connection_info().unwrap().addr())
    }

    #[tokio::test]
    async fn cryptography_of_the_process_is_not_chosen() {
        let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("rediss://{}", server.local_addr().unwrap());
        let common = Arc::new(Common::new(Timing::default(), TokioRuntime::current()));
        let dialer = Dialer::plain(&*url, &common);
        let (dialled, _) = tokio::join!(dialer.dial(None, Arc::new(|_| {})), async {
            drop(server.accept().await.expect("it is dialled"));
        });
        assert!(dialled.is_err());
        assert!(CryptoProvider::get_default().is_none());
    }

    #[test]
    fn client_certificate_is_read_or_reported_as_unreadable() {
        let made = rcgen::generate_simple_self_signed(["localhost".into()]).unwrap();
        let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let shows = |certificate: &str, key: &str| Tls {
            client_certificate: Some((certificate.into(), key.into())),
            root_certificate: None,
        };
        client("rediss://127.0.0.1", &shows(&certificate, &key)).unwrap();
        for (certificate, key) in [("", &*key), (&*certificate, "no key")] {
            let error = client("rediss://127.0.0.1", &shows(certificate, key)).err().unwrap();
            assert_eq!(error.kind(), ErrorKind::Certificate);
            assert!(error.to_string().contains("the client's"), "{error}");
        }
        let error = client("redis://127.0.0.1", &shows(&certificate, &key)).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Url);
    }

    #[tokio::test]
    async fn unreadable_certificate_is_reported_before_any_dial() {
        let tls = Tls { root_certificate: Some(b"none".to_vec()), ..Tls::default() };
        let introduction = ConnectOptions { tls, ..ConnectOptions::default() };
        let common = Arc::new(Common::new(Timing::default(), TokioRuntime::current()));
        let info = "rediss://127.0.0.1".into_connection_info().unwrap();
        let error = Dialer::new(info, introduction, &common).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Certificate);
    }
}
