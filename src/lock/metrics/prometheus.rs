//! [`Metrics`] in Prometheus' format.

use std::fmt::{self, Display, Write};

use crate::lock::metrics::Metrics;
use crate::lock::metrics::histogram::Histogram;

/// The last exported bucket of a histogram, of every second one: 1 µs, 4 µs, 16 µs … 67 s.
const LAST: usize = 26;

type Number = fn(&Metrics) -> u64;

impl Metrics {
    /// The figures as text in [Prometheus' exposition format], which OpenMetrics' agents read as well: the
    /// body of an answer to `GET /metrics`, with the content type `text/plain; version=0.0.4`.
    ///
    /// Names begin with `latchwork_lock_`, times are in seconds, and `labels` go on each sample. For several
    /// clients, write one page: [`prometheus_page`](Self::prometheus_page).
    ///
    /// [Prometheus' exposition format]: https://prometheus.io/docs/instrumenting/exposition_formats/
    ///
    /// # Examples
    ///
    /// ```
    /// # let client = latchwork::LockClient::local();
    /// let text = client.metrics().to_prometheus(&[("client", "orders")]);
    /// assert!(text.contains("latchwork_lock_held{client=\"orders\"} 0\n"));
    /// ```
    ///
    /// # Panics
    ///
    /// If a label's name is not of letters, `_` and, after the first, digits; if it is `le`; or if it recurs.
    #[track_caller]
    pub fn to_prometheus(&self, labels: &[(&str, &str)]) -> String {
        Self::prometheus_page(&[(self, labels)])
    }

    /// The figures of several clients in the format of [`to_prometheus`](Self::to_prometheus), whose pages
    /// cannot be joined: a figure has only one heading. Each client needs labels different from the others'.
    ///
    /// # Examples
    ///
    /// ```
    /// # use latchwork::{LockClient, Metrics};
    /// # let (orders, invoices) = (LockClient::local(), LockClient::local());
    /// let text = Metrics::prometheus_page(&[
    ///     (&orders.metrics(), &[("client", "orders")]),
    ///     (&invoices.metrics(), &[("client", "invoices")]),
    /// ]);
    /// assert_eq!(text.matches("# TYPE latchwork_lock_held gauge").count(), 1);
    /// assert_eq!(text.matches("latchwork_lock_held{").count(), 2);
    /// ```
    ///
    /// # Panics
    ///
    /// As [`to_prometheus`](Self::to_prometheus) does.
    #[track_caller]
    pub fn prometheus_page(clients: &[(&Metrics, &[(&str, &str)])]) -> String {
        for (_, labels) in clients {
            for (at, (name, _)) in labels.iter().enumerate() {
                let is_letter = |letter: char| letter.is_ascii_alphabetic() || letter == '_';
                let is_name = name.starts_with(is_letter)
                    && name.chars().all(|letter| is_letter(letter) || letter.is_ascii_digit());
                assert!(is_name && *name != "le", "{name:?} cannot be the name of a label");
                let is_second = labels[..at].iter().any(|(before, _)| before == name);
                assert!(!is_second, "the label {name:?} is given twice; give each label once");
            }
        }
        let mut page = Page { text: String::new(), clients };
        page.histogram("wait_seconds", "From the call to the guard, of each acquisition.", |of| &of.waits);
        page.histogram("wait_local_seconds", "Waits that ended with a hand-off in memory.", |of| {
            &of.waits_local
        });
        page.histogram("wait_remote_seconds", "Waits that ended at the store.", |of| &of.waits_remote);
        page.histogram("wait_abandoned_seconds", "Waits without the lock.", |of| &of.waits_abandoned);
        page.histogram("hold_seconds", "From the guard's being made to its end.", |of| &of.holds);
        let counters: [(_, _, Number); 12] = [
            ("given_up", "Calls that returned no guard because the lock was held.", |of| of.given_up),
            ("hand_offs_local", "Releases that gave a lock to a waiter in memory.", |of| of.hand_offs_local),
            ("hand_offs_remote", "Locks had from the store after a wait.", |of| of.hand_offs_remote),
            ("superseded", "Waiters that were not polled in time.", |of| of.superseded),
            ("releases_failed", "Releases that the store did not answer, or refused.", |of| {
                of.releases_failed
            }),
            ("renewals_sent", "Leases that were to be renewed.", |of| of.renewals_sent),
            ("renewals_late", "Renewals that were too late.", |of| of.renewals_late),
            ("renewals_failed", "Renewals of unknown effect.", |of| of.renewals_failed),
            ("leases_lost", "Holds that were lost.", |of| of.leases_lost),
            ("wakes_useful", "Wake-ups after which the lock was had.", |of| of.wakes_useful),
            ("wakes_spurious", "Wake-ups after which the lock was found held.", |of| of.wakes_spurious),
            ("reconnects", "Connections to the store that were made anew.", |of| of.reconnects),
        ];
        for (name, help, value) in counters {
            page.family(&format!("{name}_total"), "counter", help, value);
        }
        let gauges: [(_, _, Number); 5] = [
            ("held", "Holds that there are now.", |of| of.held),
            ("waiting", "Acquisitions that wait now.", |of| of.waiting),
            ("releases_pending", "Releases under way in the background.", |of| of.releases_pending),
            ("subscriptions", "Channels that have waiters.", |of| of.subscriptions),
            ("commands_waiting", "Commands that wait until there is room.", |of| of.commands_waiting),
        ];
        for (name, help, value) in gauges {
            page.family(name, "gauge", help, value);
        }
        page.text
    }
}

struct Page<'a> {
    text: String,
    clients: &'a [(&'a Metrics, &'a [(&'a str, &'a str)])],
}

impl Page<'_> {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP latchwork_lock_{name} {help}"));
        self.line(format_args!("# TYPE latchwork_lock_{name} {kind}"));
    }

    fn family(&mut self, name: &str, kind: &str, help: &str, value: Number) {
        self.head(name, kind, help);
        for (metrics, labels) in self.clients {
            self.sample(name, labels, None, value(metrics));
        }
    }

    fn histogram(&mut self, name: &str, help: &str, histogram: fn(&Metrics) -> &Histogram) {
        self.head(name, "histogram", help);
        let bucket = format!("{name}_bucket");
        for (metrics, labels) in self.clients {
            let (histogram, mut below) = (histogram(metrics), 0);
            for (at, (upper, count)) in histogram.buckets().enumerate() {
                below += count;
                if at <= LAST && at % 2 == 0 {
                    self.sample(&bucket, labels, Some(upper.as_secs_f64().to_string()), below);
                }
            }
            self.sample(&bucket, labels, Some("+Inf".to_owned()), below);
            self.sample(&format!("{name}_sum"), labels, None, histogram.sum().as_secs_f64());
            self.sample(&format!("{name}_count"), labels, None, below);
        }
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], upper: Option<String>, value: impl Display) {
        let escaped = |value: &str| value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        let labels = labels.iter().map(|(name, value)| (*name, escaped(value)));
        let labels = labels.chain(upper.map(|upper| ("le", upper)));
        let labels: Vec<String> = labels.map(|(name, value)| format!("{name}=\"{value}\"")).collect();
        let labels = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        self.line(format_args!("latchwork_lock_{name}{labels} {value}"));
    }

    fn line(&mut self, line: fmt::Arguments<'_>) {
        writeln!(self.text, "{line}").expect("a string takes all");
    }
}
