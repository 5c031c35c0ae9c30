//! The URL of Sentinels.

use ::redis::{ConnectionInfo, IntoConnectionInfo, parse_redis_url};

use super::super::super::connection::{Error, ErrorKind};
use super::super::url::UNREADABLE_HOST;

const DEFAULT_PORT: u16 = 26379;

pub(super) struct SentinelUrl {
    pub(super) master: String,
    pub(super) sentinels: Vec<ConnectionInfo>,
    /// User and password for the Sentinels themselves.
    pub(super) credentials: (Option<String>, Option<String>),
    /// Settings for the master, with a placeholder address.
    pub(super) server: ConnectionInfo,
}

/// Parses `redis+sentinel://[user:password@]host[:port][,host[:port]…]/master[/database][?options]`: no URL
/// parser accepts several hosts. `tls`: true if this build supports TLS. Refuses a URL with traces of an
/// unescaped password.
pub(super) fn parse(url: &str, tls: bool) -> Result<SentinelUrl, Error> {
    let wrong = Error::url;
    let (scheme, rest) = url.split_once("://").ok_or_else(|| wrong("it is none"))?;
    let plain = match scheme.to_ascii_lowercase().as_str() {
        "redis+sentinel" | "valkey+sentinel" => "redis",
        "rediss+sentinel" | "valkeys+sentinel" => "rediss",
        _ => return Err(wrong("its scheme is neither redis+sentinel nor rediss+sentinel")),
    };
    if plain == "rediss" && !tls {
        return Err(Error::not_built_in(ErrorKind::TlsNotBuiltIn, "asks for TLS", "tls"));
    }
    if url.contains('#') {
        return Err(wrong("a # in it must be written as %23"));
    }
    let (rest, options) = rest.split_once('?').map_or((rest, None), |(rest, options)| (rest, Some(options)));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    if path.contains('@') || options.is_some_and(|options| options.contains('@')) {
        return Err(wrong("a / or ? in the password must be written as %2F or %3F, and an @ as %40"));
    }
    let (user, hosts) = authority.rsplit_once('@').map_or(("", authority), |(user, hosts)| (user, hosts));
    let (master, database) = path.split_once('/').unwrap_or((path, ""));

    let hosts: Vec<&str> = hosts.split(',').collect();
    if hosts.iter().any(|host| host.is_empty()) {
        return Err(wrong("it names no Sentinel, or ends its list of them with a comma"));
    }
    if master.is_empty() {
        return Err(wrong("it does not name the master that the Sentinels watch"));
    }
    // Sentinels themselves accept no other names.
    if !master.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte)) {
        return Err(wrong("the name of a master has only letters, digits, dots, dashes and underscores"));
    }
    let credentials = credentials(options)?;
    let sentinels = hosts.iter().map(|host| sentinel(plain, host)).collect::<Option<_>>();
    let sentinels = sentinels.ok_or_else(|| wrong(UNREADABLE_HOST))?;

    let server = parse_redis_url(&format!("{plain}://{user}@{}/{database}", hosts[0]));
    let server = server.and_then(|url| url.into_connection_info().ok());
    let server = server.ok_or_else(|| wrong("user, password or database cannot be read"))?;
    Ok(SentinelUrl { master: master.to_owned(), sentinels, credentials, server })
}

/// Returns the settings for one Sentinel. `host`: without `/` or `@`.
fn sentinel(scheme: &str, host: &str) -> Option<ConnectionInfo> {
    let mut url = parse_redis_url(&format!("{scheme}://{host}")).filter(|url| url.port() != Some(0))?;
    if url.port().is_none() {
        url.set_port(Some(DEFAULT_PORT)).ok()?;
    }
    url.into_connection_info().ok()
}

fn credentials(options: Option<&str>) -> Result<(Option<String>, Option<String>), Error> {
    let (mut username, mut password) = (None, None);
    let Some(options) = options else { return Ok((username, password)) };
    let url = parse_redis_url(&format!("unix:/?{options}"))
        .ok_or_else(|| Error::url("what stands behind its ? cannot be read"))?;
    for (option, value) in url.query_pairs() {
        match &*option {
            "sentinel_username" => username = Some(value.into_owned()),
            "sentinel_password" => password = Some(value.into_owned()),
            _ => {
                return Err(Error::url("it has an option besides sentinel_username and sentinel_password"));
            }
        }
    }
    Ok((username, password))
}

#[cfg(test)]
mod tests {
    use super::super::super::super::hostile::attack;
    use super::{ErrorKind, parse};
    #[cfg(feature = "tls")]
    use ::redis::ConnectionAddr;

    #[test]
    fn every_part_is_read() {
        let url = "redis+sentinel://user:p%40ss%23@one,[::1]:7000,10.0.0.1:7001/my-master.1/3\
                   ?sentinel_username=watch&sentinel_password=s%26p%2Bx";
        let parsed = parse(url, false).unwrap();
        assert_eq!(parsed.master, "my-master.1");
        let sentinels: Vec<String> = parsed.sentinels.iter().map(|it| it.addr().to_string()).collect();
        assert_eq!(sentinels, ["one:26379", "::1:7000", "10.0.0.1:7001"]);
        for sentinel in &parsed.sentinels {
            let settings = sentinel.redis_settings();
            assert_eq!((settings.username(), settings.password(), settings.db()), (None, None, 0));
        }
        assert_eq!(parsed.credentials, (Some("watch".to_owned()), Some("s&p+x".to_owned())));
        let server = parsed.server.redis_settings();
        assert_eq!((server.username(), server.password(), server.db()), (Some("user"), Some("p@ss#"), 3));
    }

    #[test]
    fn parts_that_are_left_out_are_none() {
        let parsed = parse("Redis+Sentinel://one/mymaster", false).unwrap();
        let server = parsed.server.redis_settings();
        assert_eq!((server.username(), server.password(), server.db()), (None, None, 0));
        assert_eq!(parsed.credentials, (None, None));
        assert_eq!(parsed.master, "mymaster");
    }

    #[test]
    fn incomplete_sentinel_url_is_refused_in_silence() {
        for (url, says) in [
            ("redis+sentinel:///mymaster?sentinel_password=hunter2", "names no Sentinel"),
            ("redis+sentinel://:hunter2@/mymaster", "names no Sentinel"),
            ("redis+sentinel://:hunter2@one,/mymaster", "names no Sentinel"),
            ("redis+sentinel://:hunter2@one", "does not name the master"),
            ("redis+sentinel://:hunter2@one/", "does not name the master"),
            ("redis+sentinel://:hunter2@one//3", "does not name the master"),
            ("redis+sentinel://:hunter2@one/my%20master", "only letters"),
            ("redis+sentinel://:hunter2@one:port/mymaster", "its port"),
            ("redis+sentinel://:hunter2@one:70000/mymaster", "its port"),
            ("redis+sentinel://:hunter2@one,two:0/mymaster", "its port"),
            ("redis+sentinel://:hunter2@one/mymaster/x", "database"),
            ("redis+sentinel://:hunter2@one/mymaster/3/4", "database"),
            ("redis+sentinel://one/mymaster?password=hunter2", "an option besides"),
            ("redis-sentinel://:hunter2@one/mymaster", "scheme"),
            ("redis+sentinel://user:1/hunter2@one/mymaster", "%2F"),
            ("redis+sentinel://user:1?hunter2@one/mymaster", "%3F"),
            ("redis+sentinel://user:1#hunter2@one/mymaster", "%23"),
        ] {
            let Err(error) = parse(url, true) else { panic!("{url} is accepted") };
            assert_eq!(error.kind(), ErrorKind::Url, "{url}");
            assert!(error.to_string().contains(says), "{url}: {error}");
            assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
        }
    }

    #[test]
    fn tls_that_is_not_built_in_is_named() {
        let Err(error) = parse("rediss+sentinel://:hunter2@one/mymaster", false) else { panic!("accepted") };
        assert_eq!(error.kind(), ErrorKind::TlsNotBuiltIn);
        assert!(parse("redis+sentinel://:hunter2@one/mymaster", false).is_ok());
    }

    #[cfg(feature = "tls")]
    #[test]
    fn tls_is_asked_of_sentinels_and_server_alike() {
        for (url, asked) in
            [("rediss+sentinel://one,two/mymaster", true), ("redis+sentinel://one/mymaster", false)]
        {
            let parsed = parse(url, true).unwrap();
            for info in parsed.sentinels.iter().chain([&parsed.server]) {
                assert_eq!(
                    matches!(info.addr(), ConnectionAddr::TcpTls { insecure: false, .. }),
                    asked,
                    "{url}"
                );
            }
        }
    }

    #[test]
    fn hostile_urls_of_sentinels_are_read_or_refused_in_silence() {
        let words = [
            "redis+sentinel://",
            "rediss+sentinel://",
            "hunter2",
            ":hunter2@",
            "one",
            "[::1]",
            ":26379",
            ":0",
            ",",
            "/",
            "mymaster",
            "/0",
            "?",
            "?sentinel_password=hunter2",
            "&sentinel_username=a",
            "@",
            "#",
            "%",
            "%2F",
        ];
        attack("sentinel_urls", &words, |input| match parse(&String::from_utf8_lossy(input), true) {
            Ok(parsed) => {
                assert!(!parsed.sentinels.is_empty() && !parsed.master.is_empty());
                for sentinel in &parsed.sentinels {
                    let address = sentinel.addr().to_string();
                    let (host, port) = address.rsplit_once(':').expect("a port");
                    assert!(!host.is_empty() && port != "0", "{address}");
                }
            }
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::Url), "{error:?}");
                assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
            }
        });
    }
}
