//! Compares the table of options with the code: a default changed in one place only fails here.

use std::collections::BTreeMap;

use crate::page;

fn options() -> BTreeMap<String, Vec<String>> {
    let text = page("docs/options.md");
    let cells = |row: &str| row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
    let rows = text.lines().filter(|line| line.starts_with("| `"));
    rows.map(cells).map(|row: Vec<String>| (row[0].trim_matches('`').to_owned(), row)).collect()
}

/// Returns the value of `field` in `Debug` output: `Some("30s")` for `watchdog_timeout: 30s,`.
fn shown<'a>(debug: &'a str, field: &str) -> Option<&'a str> {
    let at = debug.find(&format!(" {field}: "))? + field.len() + 3;
    debug[at..].split([',', ' ']).next()
}

/// Panics if the option's row and `debug` show different defaults. `field` is the option's name in the code.
fn assert_default(option: &str, field: &str, debug: &str) {
    let told = options().get(option).unwrap_or_else(|| panic!("docs/options.md has no {option}"))[1].clone();
    let told = if told == "none" { "None".to_owned() } else { told.replace(' ', "") };
    assert_eq!(Some(&*told), shown(debug, field), "expected the default of {option} in docs/options.md");
}

/// Returns the methods of a builder, which take and return the builder by value.
fn builder_methods(path: &str) -> Vec<String> {
    let text = page(path);
    let methods = text.lines().filter(|line| line.contains("pub fn ") && line.contains("(mut self"));
    methods
        .map(|line| line.split("pub fn ").nth(1).unwrap().split(['(', '<']).next().unwrap().into())
        .collect()
}

#[test]
fn options_table_tells_the_defaults_of_the_code() {
    let client = format!("{:?}", latchwork::LockOptions::default());
    for option in ["watchdog_timeout", "max_hold", "tenure", "unpolled_limit", "slow_wait", "label"] {
        assert_default(option, option, &client);
    }
    let longest = format!("{} bytes", latchwork::LockOptions::MAX_LABEL_BYTES);
    assert!(options()["label"][2].starts_with(&longest), "expected the limit of `label` in docs/options.md");
    let stripes = latchwork::striped::StripedSemaphores::new().len();
    assert!(page("docs/options.md").contains(&format!("`StripedSemaphores::new` | {stripes} |")));
    // Both builders, with all features.
    for path in ["src/lock/options.rs", "src/redis/builder.rs"] {
        let methods = builder_methods(path);
        assert!(methods.len() > 5, "{path}: expected more than five options, and found {methods:?}");
        for method in &methods {
            assert!(
                options().contains_key(method),
                "expected a row for {method} of {path} in docs/options.md"
            );
        }
    }
}

#[cfg(feature = "redis")]
#[test]
fn options_table_tells_the_defaults_of_the_redis_builder() {
    let redis = format!("{:?}", latchwork::redis::Redis::builder());
    for option in ["connect_timeout", "response_timeout", "heartbeat", "keepalive", "linger"] {
        assert_default(option, option.trim_end_matches("_timeout"), &redis);
    }
    #[cfg(feature = "cluster")]
    {
        let sharded = format!("{:?}", latchwork::redis::ShardedMessages::default());
        assert_eq!(options()["sharded_messages"][1], sharded);
    }
}
