//! [`Histogram`]: a distribution of durations.

use std::fmt;
use std::time::Duration;

use crate::support::counter::Counter;

/// Up to 2³⁸ µs, which is three days; the last bucket counts longer times, too.
const BUCKETS: usize = 40;

/// A snapshot of a distribution of durations.
///
/// Bucket n counts times in [2ⁿ⁻¹, 2ⁿ) µs, bucket 0 below 1 µs. A quantile is the upper end of a bucket.
///
/// # Examples
///
/// ```
/// # tokio::runtime::Runtime::new().unwrap().block_on(async { let client = latchwork::LockClient::local();
/// client.get_lock("orders:42")?.lock().await?.unlock().await?;
/// let holds = client.metrics().holds;
/// assert_eq!(holds.count(), 1);
/// let longest = holds.quantile(1.0);
/// assert!(holds.sum() <= longest, "there is only one, and `longest` is the end of its bucket");
/// assert!(holds.buckets().any(|(upper, count)| upper == longest && count == 1));
/// # Ok::<(), Box<dyn std::error::Error>>(()) }).unwrap();
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Histogram {
    buckets: [u64; BUCKETS],
    sum: Duration,
}

pub(in crate::lock) struct Recording {
    buckets: [Counter; BUCKETS],
    micros: Counter,
}

impl Histogram {
    /// The number of recorded times.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The sum of all times, each in whole microseconds.
    pub fn sum(&self) -> Duration {
        self.sum
    }

    /// An upper bound of the `quantile` of the times, such as 0.5 for the median; zero without any times.
    pub fn quantile(&self, quantile: f64) -> Duration {
        let rank = (quantile.clamp(0.0, 1.0) * self.count() as f64).ceil() as u64;
        let mut seen = 0;
        for (upper, count) in self.buckets() {
            seen += count;
            if count > 0 && seen >= rank {
                return upper;
            }
        }
        Duration::ZERO
    }

    /// The upper end and the count of each bucket, from the shortest times on.
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        self.buckets.iter().enumerate().map(|(n, count)| (Duration::from_micros(1 << n), *count))
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: [0; BUCKETS], sum: Duration::ZERO }
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Histogram")
            .field("count", &self.count())
            .field("sum", &self.sum)
            .field("p50", &self.quantile(0.5))
            .field("p99", &self.quantile(0.99))
            .finish_non_exhaustive()
    }
}

impl Recording {
    #[inline]
    pub(in crate::lock) fn add(&self, micros: u64) {
        let bucket = (u64::BITS - micros.leading_zeros()) as usize;
        self.buckets[bucket.min(BUCKETS - 1)].add_one();
        // Skipped for zero, as of most waits.
        if micros > 0 {
            self.micros.add(usize::try_from(micros).unwrap_or(usize::MAX));
        }
    }

    pub(in crate::lock) fn snapshot(&self) -> Histogram {
        let buckets = std::array::from_fn(|bucket| self.buckets[bucket].get());
        Histogram { buckets, sum: Duration::from_micros(self.micros.get()) }
    }
}

impl Default for Recording {
    fn default() -> Self {
        Self { buckets: std::array::from_fn(|_| Counter::default()), micros: Counter::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_the_upper_ends_of_buckets() {
        let recording = Recording::default();
        assert_eq!((recording.snapshot().count(), recording.snapshot().quantile(0.5)), (0, Duration::ZERO));
        for micros in [0, 1, 3, 5, 5, 5, 5, 5, 5, 900] {
            recording.add(micros);
        }
        let histogram = recording.snapshot();
        assert_eq!((histogram.count(), histogram.sum()), (10, Duration::from_micros(934)));
        let quantiles = [0.0, 0.1, 0.2, 0.3, 0.5, 0.9, 0.91, 1.0];
        let expected = [1, 1, 2, 4, 8, 8, 1024, 1024];
        assert_eq!(quantiles.map(|quantile| histogram.quantile(quantile).as_micros()), expected);
        assert!(histogram.buckets().all(|(upper, count)| count == 0 || upper.as_micros() <= 1024));
    }

    #[test]
    fn longest_times_are_in_the_last_bucket() {
        let recording = Recording::default();
        recording.add(u64::MAX);
        recording.add(1 << 60);
        assert_eq!(recording.snapshot().buckets().last().unwrap().1, 2);
    }
}
