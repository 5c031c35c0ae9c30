//! Makes the tables and pictures of the benchmark pages from the records of the other tools, and the README's
//! pictures from the tables: an empty directory of records redraws the latter.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use benches::picture::{self, number, ratio};
use benches::record::{Figure, Record, Value};
use benches::small_picture;
use clap::Parser;

/// Writes the measurements into the benchmark pages, with pictures
#[derive(Debug, Parser)]
struct CommandLine {
    /// Directory of the other tools' JSON records
    records: PathBuf,
    /// The repository's `docs`
    docs: PathBuf,
}

/// Pages of `docs`. Either may have the marks of a group.
const PAGES: [&str; 2] = ["benchmarks.md", "benchmarks-tables.md"];

fn main() {
    let options = CommandLine::parse();
    let mut pages = PAGES.map(|name| {
        let path = options.docs.join(name);
        let text = fs::read_to_string(&path).expect("a page can be read");
        (path, text)
    });
    let pictures = options.docs.join("benchmarks");
    fs::create_dir_all(&pictures).expect("a directory for pictures");
    let mut files: Vec<_> = fs::read_dir(&options.records)
        .expect("the directory of records is there: measure something first")
        .map(|entry| entry.expect("it can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    files.sort();
    for file in files {
        let json = fs::read_to_string(&file).expect("a record can be read");
        let record: Record = serde_json::from_str(&json).expect("a record of this version");
        let block = block(&record, &pictures);
        let mark = mark(&record.group);
        let (_, page) = pages
            .iter_mut()
            .find(|(_, page)| page.contains(&mark))
            .expect("a page has the mark of each group");
        *page = replaced(page, &record.group, &block);
        println!("{}: {} figures, {} curves", record.group, record.figures.len(), record.curves.len());
    }
    for (path, text) in &pages {
        fs::write(path, text).expect("a page can be written");
    }
    let [_, (_, tables)] = &pages;
    small_picture::draw_all(tables, &pictures).expect("the README's pictures can be written");
}

/// The line before a group's tables.
fn mark(group: &str) -> String {
    format!("<!-- measured: {group} -->")
}

/// The page with `block` between the marks of a group.
fn replaced(page: &str, group: &str, block: &str) -> String {
    let (begin, end) = (mark(group), format!("<!-- end: {group} -->"));
    let (before, rest) = page.split_once(&begin).expect("the page has a mark for each group");
    let (_, after) = rest.split_once(&end).expect("each mark has an end");
    format!("{before}{begin}\n\n{block}\n{end}{after}")
}

fn block(record: &Record, pictures: &Path) -> String {
    let group = &record.group;
    let mut text = format!("{}.\n\n", record.facts.join("; "));
    // Figures in which ours loses come first, figures without a peer last.
    let mut figures: Vec<&Figure> = record.figures.iter().collect();
    figures.sort_by(|a, b| ratio(b).unwrap_or(-1.0).total_cmp(&ratio(a).unwrap_or(-1.0)));
    if !figures.is_empty() {
        let drawn = drawn(group, &figures);
        picture::bars(&pictures.join(format!("{group}.svg")), &drawn).expect("a picture can be written");
        let which = if drawn.len() < figures.len() { "some figures" } else { "each figure" };
        let _ = writeln!(text, "![Bars of {which} below](benchmarks/{group}.svg)\n");
        table(&mut text, &figures);
    }
    if !record.curves.is_empty() {
        let curves: Vec<_> = record.curves.iter().collect();
        picture::curves(&pictures.join(format!("{group}.svg")), &curves).expect("a picture can be written");
        let _ = writeln!(text, "![Lines of each table below](benchmarks/{group}.svg)\n");
        for curve in curves {
            let _ = writeln!(text, "| {}, {}, by {} | growth |", curve.name, curve.unit, curve.x);
            text.push_str("|---|---|\n");
            for line in &curve.lines {
                let points = line
                    .points
                    .iter()
                    .map(|(x, value)| format!("{}: {}", number(*x, 0), number(value.mid, digits(value.mid))));
                let points = points.collect::<Vec<_>>().join("; ");
                let _ = writeln!(text, "| {}: {points} | {} |", line.row, growth(&line.points));
            }
            text.push('\n');
        }
    }
    for note in &record.notes {
        let _ = writeln!(text, "* {note}");
    }
    text
}

/// The figures in a group's picture: all, or of the many over Redis those of most interest to users.
fn drawn<'a>(group: &str, figures: &[&'a Figure]) -> Vec<&'a Figure> {
    const OVER_REDIS: [&str; 14] = [
        "hand-off to another process: p50",
        "hand-off to another process: p99",
        "hand-off to another process: commands",
        "hand-off inside of a process: 8 tasks: p50",
        "fair lock: 8 processes: p50",
        "fair lock: 4 x 8 tasks: longest wait",
        "no contention: lock + unlock, runtime of 1 thread",
        "one client, a name for each task: 64 tasks: lock + unlock",
        "4 processes of 8 tasks, with pauses: hand-offs a second",
        "4 processes of 8 tasks, without pauses: longest wait",
        "2 processes of 4 threads, without pauses: turns a second",
        "2 processes of 4 threads, without pauses: Jain's index of the threads",
        "2 processes of 4 threads, without pauses: CPU of the clients",
        "2 processes of 4 threads, without pauses: CPU of the server",
    ];
    let of = |name: &&str| figures.iter().find(|figure| figure.name == **name).copied();
    match group {
        "redis" => OVER_REDIS.iter().filter_map(of).collect(),
        _ => figures.to_vec(),
    }
}

fn digits(value: f64) -> usize {
    if value < 10.0 { 2 } else { usize::from(value < 100.0) }
}

/// The cost at the most work, relative to the cost at the least.
fn growth(points: &[(f64, Value)]) -> String {
    match (points.first(), points.last()) {
        (Some((from, first)), Some((to, last))) if first.mid > 0.0 && to > from => {
            format!("× {:.1} for × {}", last.mid / first.mid, number(to / from, 0))
        }
        _ => String::from("–"),
    }
}

fn table(text: &mut String, figures: &[&Figure]) {
    text.push_str(
        "| figure | of the best peer, above 1 is worse | ours, quartiles | others |\n|---|---|---|---|\n",
    );
    for figure in figures {
        let show = |value: f64| number(value, figure.digits);
        let (ours, others): (Vec<_>, Vec<_>) =
            figure.values.iter().partition(|value| picture::is_ours(&value.row));
        let with_quartiles = |value: &&Value| {
            let Value { row, low, mid, high } = value;
            format!("{row} {} ({} to {})", show(*mid), show(*low), show(*high))
        };
        let ours = ours.iter().map(with_quartiles).collect::<Vec<_>>().join("; ");
        let others = others.iter().map(|value| format!("{} {}", value.row, show(value.mid)));
        let others = others.collect::<Vec<_>>().join("; ");
        let of = ratio(figure).map_or("–".to_owned(), |ratio| format!("{ratio:.2}"));
        let unit = if figure.unit.is_empty() { String::new() } else { format!(", {}", figure.unit) };
        let _ = writeln!(text, "| {}{unit} | {of} | {ours} | {others} |", figure.name);
    }
    text.push('\n');
}
