//! [`Tls`]: what TLS needs besides the redis crate. All that the feature `tls` changes in the connections is
//! here.

/// Whether this build has it.
pub(crate) const BUILT_IN: bool = cfg!(feature = "tls");

/// Which certificates to trust, and which one to show.
#[derive(Clone, Default)]
pub(crate) struct Tls {
    /// In PEM: instead of the system's certificates.
    #[cfg(feature = "tls")]
    pub(crate) root_certificate: Option<Vec<u8>>,
    /// Certificate and key, in PEM.
    #[cfg(feature = "tls")]
    pub(crate) client_certificate: Option<(Vec<u8>, Vec<u8>)>,
}

#[cfg(not(feature = "tls"))]
impl Tls {
    pub(crate) fn client(
        &self,
        info: ::redis::ConnectionInfo,
    ) -> Result<::redis::Client, super::error::Error> {
        ::redis::Client::open(info).map_err(super::error::Error::unusable_url)
    }
}

#[cfg(feature = "tls")]
mod built_in {
    use ::redis::{Client, ClientTlsConfig, ConnectionAddr, ConnectionInfo, TlsCertificates};
    use rustls::crypto::ring;
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};

    use super::super::error::Error;
    use super::Tls;

    impl Tls {
        pub(crate) fn client(&self, info: ConnectionInfo) -> Result<Client, Error> {
            let is_tls = matches!(info.addr(), ConnectionAddr::TcpTls { .. });
            // The redis crate takes the process's, and would panic if none had been chosen and another crate
            // had built in a second kind.
            if is_tls {
                // Refused if there is one.
                let _ = ring::default_provider().install_default();
            }
            if self.root_certificate.is_none() && self.client_certificate.is_none() {
                return Client::open(info).map_err(Error::unusable_url);
            }
            if !is_tls {
                return Err(Error::url("a certificate needs a rediss:// one"));
            }
            // The redis crate takes a text without a certificate for an empty list, and then trusts no
            // server.
            let root_cert = self.root_certificate.clone();
            if root_cert.as_deref().is_some_and(|pem| !has_certificate(pem)) {
                return Err(Error::certificate("the root certificate", None));
            }
            let client_tls = match &self.client_certificate {
                Some((certificate, key)) => {
                    if !has_certificate(certificate) || PrivateKeyDer::from_pem_slice(key).is_err() {
                        return Err(Error::certificate("the client's certificate or its key", None));
                    }
                    Some(ClientTlsConfig { client_cert: certificate.clone(), client_key: key.clone() })
                }
                None => None,
            };
            Client::build_with_tls(info, TlsCertificates { client_tls, root_cert })
                .map_err(|error| Error::certificate("a certificate", Some(error)))
        }
    }

    fn has_certificate(pem: &[u8]) -> bool {
        CertificateDer::pem_slice_iter(pem).next().is_some_and(|first| first.is_ok())
    }

    #[cfg(test)]
    mod tests {
        use std::sync::Arc;

        use redis::IntoConnectionInfo as _;
        use rustls::crypto::CryptoProvider;

        use super::super::super::common::Common;
        use super::super::super::dialer::{ConnectOptions, Dialer};
        use super::super::super::error::ErrorKind;
        use super::super::super::timing::Timing;
        use super::*;
        use crate::runtime::TokioRuntime;

        fn client(url: &str, tls: &Tls) -> Result<Client, Error> {
            tls.client(url.into_connection_info().unwrap())
        }

        /// The process's owner may choose another kind for what else is done there.
        #[test]
        fn kind_of_cryptography_is_chosen_by_the_first_url_that_needs_one() {
            // In a process of its own: any other test may have chosen.
            const ALONE: &str = "LATCHWORK_TEST_OF_TLS";
            if std::env::var_os(ALONE).is_none() {
                let name = std::thread::current().name().unwrap().to_owned();
                let test = std::env::current_exe().unwrap();
                let run = std::process::Command::new(test).args([&*name, "--exact"]).env(ALONE, "").output();
                let run = run.unwrap();
                let said = String::from_utf8_lossy(&run.stdout);
                // None has succeeded, either, if the name is not the test's.
                assert!(run.status.success() && said.contains("1 passed"), "{name}: {said}");
                return;
            }
            client("redis://127.0.0.1", &Tls::default()).unwrap();
            assert!(CryptoProvider::get_default().is_none());
            client("rediss://127.0.0.1", &Tls::default()).unwrap();
            assert!(CryptoProvider::get_default().is_some());
        }

        #[test]
        fn sentinels_are_met_with_the_same_certificates_as_their_master() {
            let tls = Tls {
                root_certificate: Some(b"root".to_vec()),
                client_certificate: Some((b"ours".to_vec(), b"key".to_vec())),
            };
            let name = Some("a-service".to_owned());
            let to_sentinels = ConnectOptions { tls, name, ..ConnectOptions::default() }.of_no_user();
            assert_eq!(to_sentinels.tls.root_certificate.as_deref(), Some(&b"root"[..]));
            assert!(to_sentinels.tls.client_certificate.is_some() && to_sentinels.name.is_none());
        }

        #[test]
        fn certificate_that_is_to_be_shown_is_read_or_told_to_be_unreadable() {
            let made = rcgen::generate_simple_self_signed(["localhost".into()]).unwrap();
            let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
            let shows = |certificate: &str, key: &str| Tls {
                client_certificate: Some((certificate.into(), key.into())),
                root_certificate: None,
            };
            client("rediss://127.0.0.1", &shows(&certificate, &key)).unwrap();
            for (certificate, key) in [("", &*key), (&*certificate, "no key")] {
                let error = client("rediss://127.0.0.1", &shows(certificate, key)).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Certificate);
                assert!(error.to_string().contains("the client's"), "{error}");
            }
            let error = client("redis://127.0.0.1", &shows(&certificate, &key)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Url);
        }

        /// Not only by a dial, which would be repeated.
        #[tokio::test]
        async fn certificate_that_cannot_be_read_is_told_before_anything_is_dialled() {
            let tls = Tls { root_certificate: Some(b"none".to_vec()), ..Tls::default() };
            let introduction = ConnectOptions { tls, ..ConnectOptions::default() };
            let common = Arc::new(Common::new(Timing::default(), TokioRuntime::current()));
            let info = "rediss://127.0.0.1".into_connection_info().unwrap();
            let error = Dialer::new(info, introduction, &common).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Certificate);
        }
    }
}
