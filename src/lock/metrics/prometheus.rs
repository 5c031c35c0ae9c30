//! [`Metrics`] as Prometheus reads them.

use std::fmt::{self, Display, Formatter, Write};

use crate::lock::metrics::Metrics;
use crate::lock::metrics::histogram::Histogram;

/// Every second bucket of a histogram up to a bit more than a minute: 1 µs, 4 µs, 16 µs … 67 s.
const EXPORTED: usize = 27;

impl Metrics {
    /// The figures as text in [Prometheus' exposition format], which OpenMetrics' agents read as well: for
    /// the body of an answer to `GET /metrics`, with the content type `text/plain; version=0.0.4`.
    ///
    /// Names begin with `latchwork_lock_`. Counters end with `_total`, times are in seconds, and `labels` are
    /// put on each sample, to tell clients of one process apart. The buckets of a histogram are cumulative,
    /// as Prometheus wants them.
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
    /// If the name of a label is not one: a letter or `_`, and then letters, digits and `_`. Or if it is
    /// `le`, which histograms have.
    #[track_caller]
    pub fn to_prometheus(&self, labels: &[(&str, &str)]) -> String {
        for (name, _) in labels {
            let is_letter = |letter: char| letter.is_ascii_alphabetic() || letter == '_';
            let is_name = name.starts_with(is_letter)
                && name.chars().all(|letter| is_letter(letter) || letter.is_ascii_digit());
            assert!(is_name && *name != "le", "{name:?} cannot be the name of a label");
        }
        let mut page = Page { text: String::new(), labels };
        page.histogram("wait_seconds", "From the call to the guard, of each acquisition.", &self.waits);
        page.histogram("hold_seconds", "From the guard's being made to its end.", &self.holds);
        let counters = [
            ("given_up", "Calls that ended without the lock.", self.given_up),
            ("hand_offs_local", "Releases that gave a lock to a waiter in memory.", self.hand_offs_local),
            ("hand_offs_remote", "Locks had from the store after a wait.", self.hand_offs_remote),
            ("superseded", "Waiters that were not polled in time.", self.superseded),
            ("releases_failed", "Releases that the store did not answer, or refused.", self.releases_failed),
            ("renewals_sent", "Leases that were to be renewed.", self.renewals_sent),
            ("renewals_late", "Renewals that were too late.", self.renewals_late),
            ("renewals_failed", "Renewals of unknown effect.", self.renewals_failed),
            ("leases_lost", "Holds that were lost.", self.leases_lost),
            ("wakes_useful", "Wake-ups after which the lock was had.", self.wakes_useful),
            ("wakes_spurious", "Wake-ups after which the lock was found held.", self.wakes_spurious),
            ("reconnects", "Connections to the store that were made anew.", self.reconnects),
        ];
        for (name, help, value) in counters {
            let name = format!("{name}_total");
            page.head(&name, "counter", help);
            page.sample(&name, None, value);
        }
        let gauges = [
            ("held", "Holds that there are now.", self.held),
            ("waiting", "Acquisitions that wait now.", self.waiting),
            ("releases_pending", "Releases under way in the background.", self.releases_pending),
            ("subscriptions", "Channels that have waiters.", self.subscriptions),
        ];
        for (name, help, value) in gauges {
            page.head(name, "gauge", help);
            page.sample(name, None, value);
        }
        page.text
    }
}

struct Page<'a> {
    text: String,
    labels: &'a [(&'a str, &'a str)],
}

impl Page<'_> {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP latchwork_lock_{name} {help}"));
        self.line(format_args!("# TYPE latchwork_lock_{name} {kind}"));
    }

    fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram) {
        self.head(name, "histogram", help);
        let (bucket, mut below) = (format!("{name}_bucket"), 0);
        for (at, (upper, count)) in histogram.buckets().enumerate() {
            below += count;
            if at < EXPORTED && at % 2 == 0 {
                self.sample(&bucket, Some(&upper.as_secs_f64()), below);
            }
        }
        self.sample(&bucket, Some(&"+Inf"), below);
        self.sample(&format!("{name}_sum"), None, histogram.sum().as_secs_f64());
        self.sample(&format!("{name}_count"), None, below);
    }

    fn sample(&mut self, name: &str, upper: Option<&dyn Display>, value: impl Display) {
        let labels = Labels { labels: self.labels, upper };
        self.line(format_args!("latchwork_lock_{name}{labels} {value}"));
    }

    fn line(&mut self, line: fmt::Arguments<'_>) {
        writeln!(self.text, "{line}").expect("a string takes all");
    }
}

/// The labels of a sample, in braces if there are any.
struct Labels<'a> {
    labels: &'a [(&'a str, &'a str)],
    upper: Option<&'a dyn Display>,
}

impl Display for Labels<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut before = '{';
        for (name, value) in self.labels {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            write!(f, "{before}{name}=\"{value}\"")?;
            before = ',';
        }
        if let Some(upper) = self.upper {
            write!(f, "{before}le=\"{upper}\"")?;
            before = ',';
        }
        if before == ',' { f.write_char('}') } else { Ok(()) }
    }
}
