//! `redis-cluster://` and `rediss-cluster://`: one URL for several nodes to begin with.

/// The URL of each node that a Cluster's URL names, or `None` if it is not one. They differ in host and port
/// only.
pub(super) fn nodes(url: &str) -> Option<Vec<String>> {
    let (scheme, rest) = url.split_once("://")?;
    let scheme = match &*scheme.to_ascii_lowercase() {
        "redis-cluster" => "redis",
        "rediss-cluster" => "rediss",
        _ => return None,
    };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    // The last one: as everywhere in URLs, what stands before it is the user's.
    let (user, hosts) = match authority.rfind('@') {
        Some(at) => authority.split_at(at + 1),
        None => ("", authority),
    };
    Some(hosts.split(',').map(|host| format!("{scheme}://{user}{}{path}", host.trim())).collect())
}

#[cfg(test)]
mod tests {
    use super::super::super::super::hostile::attack;
    use super::super::super::url::{Names, parse};
    use super::nodes;

    #[test]
    fn every_host_has_the_same_user() {
        let urls = nodes("redis-cluster://me:p,w@a:7000,b,[::1]:7002/0").unwrap();
        assert_eq!(urls, ["redis://me:p,w@a:7000/0", "redis://me:p,w@b/0", "redis://me:p,w@[::1]:7002/0"]);
        assert_eq!(nodes("rediss-cluster://a").unwrap(), ["rediss://a"]);
    }

    #[test]
    fn others_are_left_alone() {
        assert_eq!(nodes("redis://a:7000"), None);
        assert_eq!(nodes("a:7000"), None);
    }
    #[test]
    fn hostile_urls_of_a_cluster_are_those_of_its_nodes() {
        let words = [
            "redis-cluster://",
            "rediss-cluster://",
            "hunter2",
            ":hunter2@",
            "a",
            ":7000",
            ",",
            "/0",
            "@",
            "?",
        ];
        attack("cluster_urls", &words, |input| {
            let url = String::from_utf8_lossy(input);
            let nodes = nodes(&url);
            assert_eq!(nodes.is_some(), Names::of(&url) == Names::Cluster, "{nodes:?}");
            for node in nodes.into_iter().flatten() {
                assert_eq!(Names::of(&node), Names::Server, "{node}");
                if let Err(error) = parse(&node) {
                    assert!(!format!("{error} {error:?}").contains("hunter2"), "{error:?}");
                }
            }
        });
    }
}
