//! A run in a table.

use std::collections::BTreeMap;
use std::fmt::{self, Debug};

use comfy_table::Table;
use comfy_table::presets::ASCII_MARKDOWN;

use crate::check::CheckOutcome;
use crate::clock::seconds;
use crate::history::History;
use crate::story::Acquisition;

pub(crate) struct Summary<'a>(pub(crate) &'a History, pub(crate) &'a CheckOutcome);

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(history, CheckOutcome { story, patience, order, alternation, excused, longest_turn, .. }) =
            self;
        let events =
            history.workers.iter().map(|life| life.records.len()).sum::<usize>() + history.stage.len();
        let acquired: Vec<&Acquisition> = {
            let mut acquired: Vec<_> = story.acquisitions.iter().filter(|it| it.acquired.is_some()).collect();
            acquired.sort_by_key(|it| (it.name, it.acquired));
            acquired
        };
        let pairs = acquired.windows(2).filter(|two| two[0].name == two[1].name);
        let (local, remote): (Vec<_>, Vec<_>) = pairs.partition(|two| two[0].life == two[1].life);
        let without =
            count(story.acquisitions.iter().filter_map(|it| it.without.map(|(_, why)| format!("{why:?}"))));
        let lost = count(acquired.iter().filter_map(|it| it.lost.map(|(_, why)| format!("{why:?}"))));
        let faults = count(story.troubles.iter().map(|trouble| format!("{:?}", trouble.kind)));
        let forced = story.cuts.iter().filter(|(name, ..)| name.is_some()).count();
        let millis = |nanos: u64| format!("{:.1} ms", nanos as f64 / 1e6);

        let mut table = Table::new();
        table.load_preset(ASCII_MARKDOWN).set_header(["what", "how many"]);
        table.add_row(["time", &format!("{:.1} s", seconds(story.end))]);
        table.add_row(["events; processes", &format!("{events}; {}", history.workers.len())]);
        table.add_row(["acquisitions", &acquired.len().to_string()]);
        table.add_row([
            "next one in the same process, in another",
            &format!("{}, {}", local.len(), remote.len()),
        ]);
        table.add_row(["ended without the lock", &without]);
        table.add_row(["losses told", &lost]);
        table.add_row(["faults", &faults]);
        table.add_row(["locks forced free", &forced.to_string()]);
        table.add_row(["holds cut short by the stage", &excused.to_string()]);
        table.add_row(["waits that were judged, added up", &format!("{:.1} s", seconds(patience.judged))]);
        table.add_row([
            "beside a free lock: half, 99 %, longest",
            &[patience.percentile(50), patience.percentile(99), patience.longest()].map(millis).join(", "),
        ]);
        table.add_row(["in the crowds: longest", &millis(*longest_turn)]);
        table.add_row([
            "waits in line compared; overtaken by more than 10 ms; by most",
            &format!("{}; {}; {}", order.compared, order.beyond(10_000_000), millis(order.longest())),
        ]);
        table.add_row([
            "reads; writers that one of them waited for; writes; by how much overtaken by reads",
            &format!(
                "{}; {}; {}; {}",
                alternation.reads,
                alternation.most_writers,
                alternation.writes,
                millis(alternation.overtaken_by)
            ),
        ]);
        table.add_row(["workers stood still by themselves", &format!("{:.1} s", seconds(story.stalled))]);
        write!(f, "{table}")
    }
}

fn count<T: Debug + Ord + fmt::Display>(all: impl Iterator<Item = T>) -> String {
    let mut counts: BTreeMap<T, u32> = BTreeMap::new();
    all.for_each(|it| *counts.entry(it).or_default() += 1);
    let counts: Vec<String> = counts.iter().map(|(it, count)| format!("{it} {count}")).collect();
    counts.join(", ")
}
