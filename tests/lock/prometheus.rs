//! Parses the whole metrics text by the rules of the Prometheus exposition format.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use latchwork::LockClient;

use crate::polled::poll;

type Sample = (String, Vec<(String, String)>, f64);

fn is_name(text: &str) -> bool {
    let mut letters = text.chars();
    letters.next().is_some_and(|first| first.is_ascii_alphabetic() || first == '_')
        && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

fn labels(mut text: &str) -> (Vec<(String, String)>, &str) {
    let mut labels = Vec::new();
    while !text.starts_with('}') {
        let (name, rest) = text.split_once("=\"").expect("a label");
        assert!(is_name(name), "{name:?}");
        let (mut value, mut rest) = (String::new(), rest.chars());
        loop {
            match rest.next().expect("the value ends") {
                '"' => break,
                '\\' => value.push(match rest.next() {
                    Some('n') => '\n',
                    Some(escaped @ ('"' | '\\')) => escaped,
                    other => panic!("{other:?} is not escaped so"),
                }),
                letter => value.push(letter),
            }
        }
        labels.push((name.to_owned(), value));
        text = rest.as_str();
        text = text.strip_prefix(',').unwrap_or(text);
    }
    (labels, &text[1..])
}

fn parse(text: &str) -> (HashMap<String, String>, Vec<Sample>) {
    assert!(text.ends_with('\n'));
    let (mut helped, mut types, mut samples) = (HashSet::new(), HashMap::new(), Vec::new());
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let (name, help) = help.split_once(' ').unwrap();
            assert!(is_name(name) && !help.is_empty() && helped.insert(name.to_owned()), "{line}");
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').unwrap();
            assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert!(
                helped.contains(name) && types.insert(name.to_owned(), kind.to_owned()).is_none(),
                "{line}"
            );
        } else {
            let end = line.find(['{', ' ']).unwrap();
            let (labels, rest) = match &line[end..] {
                rest if rest.starts_with('{') => labels(&rest[1..]),
                rest => (Vec::new(), rest),
            };
            let value = rest.strip_prefix(' ').expect("a space").parse().expect("a number");
            assert!(is_name(&line[..end]));
            samples.push((line[..end].to_owned(), labels, value));
        }
    }
    assert_eq!(helped.len(), types.len());
    (types, samples)
}

#[tokio::test]
async fn every_figure_is_exported_in_the_exposition_format() {
    let client = LockClient::local();
    let lock = client.get_lock("orders").unwrap();
    for _ in 0..2 {
        lock.lock().await.unwrap().unlock().await.unwrap();
    }
    let held = lock.lock().await.unwrap();
    let mut waits = std::pin::pin!(lock.lock());
    for _ in 0..2 {
        assert!(poll(waits.as_mut()).is_pending());
        assert!(poll(std::pin::pin!(lock.lock())).is_pending());
    }
    held.unlock().await.unwrap();
    let guard = waits.await.unwrap();
    let metrics = client.metrics();
    let odd = "a \"b\" \\ c\nd";
    for given in [&[][..], &[("client", odd), ("zone", "1"), ("_rack_2", "")]] {
        let (types, samples) = parse(&metrics.to_prometheus(given));
        let given: Vec<(String, String)> =
            given.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let mut families = HashSet::new();
        for (name, labels, _) in &samples {
            let family = ["_bucket", "_sum", "_count"].iter().find_map(|part| name.strip_suffix(part));
            let family = family.filter(|family| types.contains_key(*family)).unwrap_or(name);
            assert_eq!(types[family] == "counter", family.ends_with("_total"), "{name}");
            families.insert(family);
            assert_eq!(labels.iter().filter(|(name, _)| name != "le").cloned().collect::<Vec<_>>(), given);
        }
        assert_eq!(families.len(), types.len(), "expected a sample of each metric");
        // `Debug` of `Metrics` lists every figure; the text must have as many.
        let debug = format!("{metrics:#?}");
        let fields = debug
            .lines()
            .filter(|line| line.starts_with("    ") && !line.starts_with("     ") && line.contains(':'));
        assert_eq!(types.len(), fields.count());
        let value = |name: &str| samples.iter().find(|(sample, ..)| sample == name).unwrap().2;
        assert_eq!(value("latchwork_lock_held"), 1.0);
        let histograms = [
            ("wait", 4.0, metrics.waits.sum()),
            ("wait_local", 1.0, metrics.waits_local.sum()),
            ("wait_remote", 0.0, Duration::ZERO),
            ("wait_abandoned", 2.0, metrics.waits_abandoned.sum()),
            ("hold", 3.0, metrics.holds.sum()),
        ];
        for (times, count, sum) in histograms {
            let histogram = format!("latchwork_lock_{times}_seconds");
            let bucket = format!("{histogram}_bucket");
            let buckets: Vec<(f64, f64)> = samples
                .iter()
                .filter(|(name, ..)| *name == bucket)
                .map(|(_, labels, below)| (labels.last().unwrap().1.parse().unwrap(), *below))
                .collect();
            assert!(
                buckets.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 <= pair[1].1),
                "{buckets:?}"
            );
            assert_eq!(*buckets.last().unwrap(), (f64::INFINITY, count));
            assert_eq!((buckets[0].0, buckets.len()), (1e-6, 15), "{buckets:?}");
            assert!(buckets[..14].windows(2).all(|pair| (pair[1].0 / pair[0].0 - 4.0).abs() < 1e-6));
            assert_eq!(value(&format!("{histogram}_count")), count);
            assert_eq!(value(&format!("{histogram}_sum")), sum.as_secs_f64());
        }
    }
    guard.unlock().await.unwrap();
}

#[test]
fn each_figure_is_exported_by_its_own_name() {
    let mut metrics = LockClient::local().metrics();
    let fields = [
        ("given_up_total", &mut metrics.given_up),
        ("hand_offs_local_total", &mut metrics.hand_offs_local),
        ("hand_offs_remote_total", &mut metrics.hand_offs_remote),
        ("superseded_total", &mut metrics.superseded),
        ("releases_failed_total", &mut metrics.releases_failed),
        ("renewals_sent_total", &mut metrics.renewals_sent),
        ("renewals_late_total", &mut metrics.renewals_late),
        ("renewals_failed_total", &mut metrics.renewals_failed),
        ("leases_lost_total", &mut metrics.leases_lost),
        ("wakes_useful_total", &mut metrics.wakes_useful),
        ("wakes_spurious_total", &mut metrics.wakes_spurious),
        ("reconnects_total", &mut metrics.reconnects),
        ("held", &mut metrics.held),
        ("waiting", &mut metrics.waiting),
        ("releases_pending", &mut metrics.releases_pending),
        ("subscriptions", &mut metrics.subscriptions),
        ("commands_waiting", &mut metrics.commands_waiting),
    ];
    let numbered = (1_u32..).zip(fields).map(|(number, (name, field))| {
        *field = number.into();
        (name, number)
    });
    let numbered: Vec<_> = numbered.collect();
    let (types, samples) = parse(&metrics.to_prometheus(&[]));
    // All but five histograms.
    assert_eq!(types.len(), numbered.len() + 5);
    for (name, number) in numbered {
        let name = format!("latchwork_lock_{name}");
        let sample = samples.iter().find(|(sample, ..)| *sample == name);
        assert_eq!(sample.map(|sample| sample.2), Some(f64::from(number)), "{name}");
    }
}

/// A rule on a name that is not exported never fires.
#[test]
fn documented_rules_and_panel_name_exported_metrics() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/slow.md");
    let page = std::fs::read_to_string(path).unwrap();
    let fenced =
        |kind: &str| page.split(&format!("```{kind}\n")).nth(1).unwrap().split("```").next().unwrap();
    let (rules, panel) = (fenced("yaml"), fenced("json"));
    let (_, samples) = parse(&LockClient::local().metrics().to_prometheus(&[]));
    for text in [rules, panel] {
        let named = text.match_indices("latchwork_lock_").map(|(at, _)| {
            text[at..].split(|letter: char| !letter.is_ascii_lowercase() && letter != '_').next().unwrap()
        });
        let named: Vec<_> = named.collect();
        assert!(named.len() >= 4, "expected more metrics than {named:?}");
        for name in named {
            assert!(samples.iter().any(|(sample, ..)| sample == name), "no metric is called {name}");
        }
    }
    let panel: serde_json::Value = serde_json::from_str(panel).unwrap();
    assert!(
        panel["targets"].as_array().is_some_and(|targets| targets.iter().all(|it| it["expr"].is_string()))
    );
}

/// Prometheus would drop the whole scrape.
#[test]
fn label_that_is_none_or_given_twice_is_refused() {
    let metrics = LockClient::local().metrics();
    let none = |name| (vec![(name, "1")], "cannot be the name of a label");
    let mut refused = ["client id", "", "2nd", "a:b", "le"].map(none).to_vec();
    refused.push((vec![("client", "1"), ("host", "a"), ("client", "2")], "\"client\" is given twice"));
    for (labels, why) in refused {
        let page = std::panic::catch_unwind(|| metrics.to_prometheus(&labels));
        let said = page.expect_err(why).downcast::<String>().expect("a message");
        assert!(said.contains(why), "{said}");
    }
}

#[test]
fn page_of_several_clients_has_one_heading_for_each_figure() {
    let (orders, invoices) = (LockClient::local(), LockClient::local());
    let _held =
        latchwork::blocking::LockClient::from_async(orders.clone()).get_lock("1").unwrap().lock().unwrap();
    let text = latchwork::Metrics::prometheus_page(&[
        (&orders.metrics(), &[("client", "orders")]),
        (&invoices.metrics(), &[("client", "invoices")]),
    ]);
    let (_, samples) = parse(&text);
    let held: Vec<_> = samples
        .iter()
        .filter(|(name, ..)| name == "latchwork_lock_held")
        .map(|(_, _, value)| *value)
        .collect();
    assert_eq!(held, [1.0, 0.0]);
}
