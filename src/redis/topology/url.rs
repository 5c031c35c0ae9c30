//! The kind of server that a URL names, and the faults of URLs.

use ::redis::{ConnectionInfo, IntoConnectionInfo, parse_redis_url};

use super::super::connection::{Error, ErrorKind, TLS_IS_BUILT_IN};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Names {
    Server,
    Sentinels,
    Cluster,
}

impl Names {
    /// Decides by the scheme, in other clients' spellings of Sentinel schemes, too.
    pub(super) fn of(url: &str) -> Self {
        match url.split_once("://").map(|(scheme, _)| scheme.to_ascii_lowercase()) {
            Some(scheme) if scheme.contains("sentinel") => Self::Sentinels,
            Some(scheme) if matches!(&*scheme, "redis-cluster" | "rediss-cluster") => Self::Cluster,
            _ => Self::Server,
        }
    }
}

pub(super) fn parse(url: &str) -> Result<ConnectionInfo, Error> {
    parse_if(url, TLS_IS_BUILT_IN)
}

/// Like [`parse`]. `tls`: true if this build supports TLS.
/// A password with an unescaped special character may still form a URL, whose port, database or fragment is
/// the rest of the password: sent to another server, or shown in an address. So implausible URLs are refused.
fn parse_if(url: &str, tls: bool) -> Result<ConnectionInfo, Error> {
    let url = parse_redis_url(url).ok_or_else(|| Error::url(unreadable(url)))?;
    if url.port() == Some(0) {
        return Err(Error::url(UNREADABLE_HOST));
    }
    if url.fragment().is_some() {
        return Err(Error::url("a # in it must be written as %23"));
    }
    if url.scheme().ends_with("unix") {
        // The redis crate would ignore user and password.
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Error::url("that of a unix socket has ?user=…&pass=… instead of user:password@"));
        }
    } else if url.query().is_some_and(|query| query.contains('@')) {
        return Err(Error::url("a ? in the password must be written as %3F"));
    }
    // Unknown parameters, which the redis crate ignores, may be the rest of a password: do not quote them.
    if let Some(wrong) =
        url.query_pairs().find_map(|(name, value)| wrong_parameter(url.scheme(), &name, &value))
    {
        return Err(Error::url(wrong));
    }
    if matches!(url.scheme(), "rediss" | "valkeys") && !tls {
        return Err(Error::not_built_in(ErrorKind::TlsNotBuiltIn, "asks for TLS", "tls"));
    }
    url.into_connection_info().map_err(Error::unusable_url)
}

/// Without the port, which may be the rest of a password with an unescaped `/`, `?` or `#`.
pub(super) const UNREADABLE_HOST: &str = "its port is not a number from 1 to 65535, or its host cannot be read; \
     or a / ? or # in the password is not written as %2F, %3F or %23";

fn unreadable(url: &str) -> &'static str {
    let Some((scheme, _)) = url.split_once("://") else { return "it has no scheme such as redis://" };
    const SCHEMES: [&str; 7] = ["redis", "rediss", "valkey", "valkeys", "unix", "redis+unix", "valkey+unix"];
    if !SCHEMES.contains(&&*scheme.to_ascii_lowercase()) {
        return "its scheme is none of redis, rediss, redis-cluster, rediss-cluster, redis+sentinel, \
                rediss+sentinel and unix";
    }
    UNREADABLE_HOST
}

/// Returns the fault of a query parameter that the redis crate would ignore, or understand differently.
fn wrong_parameter(scheme: &str, name: &str, value: &str) -> Option<&'static str> {
    match name {
        "protocol" if matches!(value, "3" | "resp3") => None,
        "protocol" => Some("its protocol can be 3 only"),
        "db" | "user" | "pass" if scheme.ends_with("unix") => None,
        _ if scheme.ends_with("unix") => {
            Some("it has a parameter that is not known; those of a unix socket are db, user and pass")
        }
        _ => Some(
            "it has a parameter that is not known; user, password and database stand before the ?, and all \
             else is said to Redis::builder()",
        ),
    }
}

#[cfg(test)]
mod tests {
    use ::redis::{ConnectionAddr, ConnectionInfo};

    use super::super::super::hostile::attack;
    use super::{ErrorKind, Names, parse_if as parse};

    #[test]
    fn sentinels_and_clusters_are_named_by_the_scheme_alone() {
        for url in ["redis+sentinel://a/b", "REDISS+SENTINEL://a/b", "redis-sentinel://a", "sentinel://a"] {
            assert_eq!(Names::of(url), Names::Sentinels, "{url}");
        }
        for url in ["redis-cluster://a", "rediss-cluster://a:7000,b"] {
            assert_eq!(Names::of(url), Names::Cluster, "{url}");
        }
        for url in ["redis://sentinel", "redis://:sentinel://@host", "sentinel", "redis://redis-cluster", ""]
        {
            assert_eq!(Names::of(url), Names::Server, "{url}");
        }
    }

    #[test]
    fn tls_that_is_not_built_in_is_named() {
        for url in ["rediss://:hunter2@localhost", "valkeys://:hunter2@localhost"] {
            let error = parse(url, false).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TlsNotBuiltIn);
            assert!(error.to_string().contains("feature `tls`"), "{error}");
            assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
        }
        assert!(parse("redis://localhost", false).is_ok());
    }

    #[test]
    fn every_part_is_read() {
        let info = parse("redis://user:p%40ss%23@example.com:7000/3", false).unwrap();
        assert_eq!(info.addr().to_string(), "example.com:7000");
        let redis = info.redis_settings();
        assert_eq!((redis.username(), redis.password(), redis.db()), (Some("user"), Some("p@ss#"), 3));

        let info = parse("unix:///run/redis.sock?db=3&user=user&pass=p%40ss%23", false).unwrap();
        assert_eq!(info.addr().to_string(), "/run/redis.sock");
        let redis = info.redis_settings();
        assert_eq!((redis.username(), redis.password(), redis.db()), (Some("user"), Some("p@ss#"), 3));

        assert_eq!(parse("redis://[::1]", false).unwrap().addr().to_string(), "::1:6379");
        assert_eq!(parse("redis+unix:///a", false).unwrap().addr().to_string(), "/a");
    }

    #[test]
    fn error_of_a_url_is_named() {
        for (url, says) in [
            ("redis://localhost:0", "its port"),
            ("redis://user:1#hunter2@localhost", "%23"),
            ("redis://user:1?hunter2@localhost", "%3F"),
            ("unix://hunter2@localhost/run/redis.sock", "?user=…&pass=…"),
            ("unix://:hunter2@localhost/run/redis.sock", "?user=…&pass=…"),
            ("redis://localhost?db=1", "before the ?"),
            ("redis://localhost?hunter2", "before the ?"),
            ("unix:///run/redis.sock?hunter2", "db, user and pass"),
            ("unix:///run/redis.sock?protocol=2", "3 only"),
        ] {
            let error = parse(url, true).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Url, "{url}");
            assert!(error.to_string().contains(says), "{url}: {error}");
            assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
        }
    }

    const WORDS: [&str; 26] = [
        "redis://",
        "rediss://",
        "unix://",
        "redis+unix://",
        "redis-cluster://",
        "redis+sentinel://",
        "valkey://",
        "hunter2",
        ":hunter2@",
        "user:hunter2@",
        "localhost",
        "[::1]",
        "127.0.0.1",
        ":6379",
        ":0",
        "/0",
        "/",
        "?",
        "#",
        "@",
        ",",
        "%",
        "%2F",
        "?db=1&user=a&pass=hunter2",
        "?protocol=resp3",
        "mymaster",
    ];

    fn written(info: &ConnectionInfo) -> Option<String> {
        let escape = |text: Option<&str>| -> String {
            let escape = |byte: u8| match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
                _ => format!("%{byte:02X}"),
            };
            text.unwrap_or_default().bytes().map(escape).collect()
        };
        let redis = info.redis_settings();
        let (user, password) = (escape(redis.username()), escape(redis.password()));
        let (scheme, host, port) = match info.addr() {
            ConnectionAddr::Tcp(host, port) => ("redis", host, port),
            ConnectionAddr::TcpTls { host, port, .. } => ("rediss", host, port),
            _ => return None,
        };
        let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        Some(format!("{scheme}://{user}:{password}@{host}:{port}/{}", redis.db()))
    }

    fn parts(info: &ConnectionInfo) -> (String, Option<&str>, Option<&str>, i64) {
        let redis = info.redis_settings();
        (info.addr().to_string(), redis.username(), redis.password(), redis.db())
    }

    #[test]
    fn hostile_urls_are_read_as_written_or_refused_in_silence() {
        attack("urls", &WORDS, |input| {
            let url = String::from_utf8_lossy(input);
            match parse(&url, true) {
                Ok(info) => {
                    let Some(written) = written(&info) else { return };
                    let again = parse(&written, true).unwrap_or_else(|error| panic!("{written}: {error}"));
                    let filled = |text: Option<&str>| text.filter(|text| !text.is_empty()).map(str::to_owned);
                    let all = |info| {
                        let (address, user, password, database) = parts(info);
                        (address, filled(user), filled(password), database)
                    };
                    assert_eq!(all(&again), all(&info), "{written}");
                }
                Err(error) => {
                    assert!(matches!(error.kind(), ErrorKind::Url | ErrorKind::TlsNotBuiltIn), "{error:?}");
                    assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
                }
            }
        });
    }
}
