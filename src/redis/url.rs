//! Which server a URL names, and what must not be wrong with it.

mod cluster;

use ::redis::{ConnectionInfo, IntoConnectionInfo, parse_redis_url};

use super::error::Error;

/// What `url` says, in the redis crate's terms. `tls`: whether this build has it.
///
/// A password in which a special character was not escaped can still make a URL, with the rest of the password as its port,
/// database or fragment; then it would be sent to a stranger, or shown as an address. So what cannot be meant is refused.
pub(super) fn parse(url: &str, tls: bool) -> Result<ConnectionInfo, Error> {
    let url =
        parse_redis_url(url).ok_or_else(|| Error::url("it is none, or neither redis, rediss nor unix"))?;
    if url.fragment().is_some() {
        return Err(Error::url("a # in it must be written as %23"));
    }
    if url.scheme().ends_with("unix") {
        // The redis crate would leave them out in silence.
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Error::url("that of a unix socket has ?user=…&pass=… instead of user:password@"));
        }
    } else if url.query().is_some_and(|query| query.contains('@')) {
        return Err(Error::url("a ? in the password must be written as %3F"));
    }
    if matches!(url.scheme(), "rediss" | "valkeys") && !tls {
        return Err(Error::tls_not_built_in());
    }
    url.into_connection_info().map_err(Error::unusable_url)
}

/// Whether `url` names Sentinels, in this crate's spelling or in another's. `built_in`: whether this build can ask them.
pub(super) fn names_sentinels(url: &str, built_in: bool) -> Result<bool, Error> {
    let named =
        url.split_once("://").is_some_and(|(scheme, _)| scheme.to_ascii_lowercase().contains("sentinel"));
    if named && !built_in { Err(Error::sentinel_not_built_in()) } else { Ok(named) }
}

/// The URL of each node, if `url` is that of a Cluster. `built_in`: whether this build knows Clusters.
pub(super) fn cluster(url: &str, built_in: bool) -> Result<Option<Vec<String>>, Error> {
    match cluster::nodes(url) {
        Some(_) if !built_in => Err(Error::cluster_not_built_in()),
        nodes => Ok(nodes),
    }
}

#[cfg(test)]
mod tests {
    use super::super::ErrorKind;
    use super::{cluster, names_sentinels, parse};

    #[test]
    fn sentinels_are_named_by_the_scheme_alone() {
        for url in ["redis+sentinel://a/b", "REDISS+SENTINEL://a/b", "redis-sentinel://a", "sentinel://a"] {
            assert!(names_sentinels(url, true).unwrap(), "{url}");
        }
        for url in ["redis://sentinel", "redis://:sentinel://@host", "sentinel", ""] {
            assert!(!names_sentinels(url, false).unwrap(), "{url}");
        }
    }

    #[test]
    fn sentinels_that_cannot_be_asked_are_named() {
        let error = names_sentinels("redis+sentinel://:hunter2@a/b", false).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::SentinelNotBuiltIn);
        assert!(error.to_string().contains("feature `sentinel`"), "{error}");
        assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
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
    fn cluster_that_is_not_built_in_is_named() {
        let error = cluster("redis-cluster://:hunter2@localhost", false).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ClusterNotBuiltIn);
        assert!(error.to_string().contains("feature `cluster`"), "{error}");
        assert!(!format!("{error:?}").contains("hunter2"), "{error:?}");
        assert!(cluster("redis://localhost", false).unwrap().is_none());
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
}
