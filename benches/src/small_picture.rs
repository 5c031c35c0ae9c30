//! The README's pictures: two panels of bars, from the figures of the benchmark tables, as SVG for light and
//! for dark pages.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

use crate::picture::number;

/// A picture of the README.
struct Picture {
    file: &'static str,
    panels: [Panel; 2],
}

/// A figure of the tables, by its name and unit there, and some of its rows.
struct Panel {
    title: &'static str,
    figure: &'static str,
    rows: &'static [(&'static str, &'static str)],
}

const PICTURES: [Picture; 3] = [
    Picture {
        file: "readme-semaphore",
        panels: [
            Panel {
                title: "Semaphore: acquire and release, ns",
                figure: "acquire and drop, a permit is free, ns",
                rows: &[("latchwork", "latchwork"), ("tokio", "tokio"), ("intrusive", "futures-intrusive")],
            },
            Panel {
                title: "Semaphore: hand-off to a waiter, ns",
                figure: "hand-over: wait, release, wake, poll, drop, ns",
                rows: &[("latchwork", "latchwork"), ("tokio", "tokio"), ("intrusive", "futures-intrusive")],
            },
        ],
    },
    Picture {
        file: "readme-redis",
        panels: [
            Panel {
                title: "Lock over Redis: hand-off between processes, µs",
                figure: "hand-off to another process: p50, µs",
                rows: &[("latchwork", "latchwork"), ("rlock", "rlock"), ("rslock", "rslock")],
            },
            Panel {
                title: "Lock over Redis: lock and unlock, uncontended, µs",
                figure: "no contention: lock + unlock, runtime of 1 thread, µs",
                rows: &[("latchwork", "latchwork"), ("rlock", "rlock"), ("rslock", "rslock")],
            },
        ],
    },
    Picture {
        file: "readme-local",
        panels: [
            Panel {
                title: "Lock in memory: lock and unlock, uncontended, ns",
                figure: "lock + unlock, no other task, ns",
                rows: &[
                    ("latchwork", "latchwork"),
                    ("lockable", "lockable"),
                    ("tokio Mutex", "tokio Mutex, no names"),
                ],
            },
            Panel {
                title: "Lock in memory: 64 tasks on one lock, ns a turn",
                figure: "lock + unlock, 64 tasks, 1 thread, ns",
                rows: &[
                    ("latchwork", "latchwork"),
                    ("lockable", "lockable"),
                    ("tokio Mutex", "tokio Mutex, no names"),
                ],
            },
        ],
    },
];

/// Colours whose contrast to GitHub's page is 4.5 : 1 or more.
struct Scheme {
    name: &'static str,
    page: &'static str,
    text: &'static str,
    ours: &'static str,
    others: &'static str,
}

const SCHEMES: [Scheme; 2] = [
    Scheme { name: "light", page: "#ffffff", text: "#1f2328", ours: "#bc4c00", others: "#59636e" },
    Scheme { name: "dark", page: "#0d1117", text: "#e6edf3", ours: "#f0883e", others: "#9198a1" },
];

const WIDTH: usize = 800;
const PANEL: usize = 124;
/// In pixels: GitHub shows a README about 830 pixels wide, and does not shrink a narrower picture.
const TYPE_SIZE: usize = 14;
/// Left end of the bars, and length of the longest.
const BARS: (usize, f64) = (180, 400.0);

/// A bar beyond this multiple of ours is cut, and says its factor.
const MOST: f64 = 8.0;

/// Draws all pictures from `tables`, the text of the page, into a directory.
///
/// Panics if the page lacks a figure or a row.
pub fn draw_all(tables: &str, directory: &Path) -> io::Result<()> {
    for picture in &PICTURES {
        for scheme in &SCHEMES {
            let file = directory.join(format!("{}-{}.svg", picture.file, scheme.name));
            fs::write(file, svg(tables, picture, scheme))?;
        }
    }
    Ok(())
}

fn svg(tables: &str, picture: &Picture, scheme: &Scheme) -> String {
    let height = PANEL * picture.panels.len();
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" font-family=\"system-ui, sans-serif\" font-size=\"{TYPE_SIZE}\" \
         fill=\"{}\">\n",
        scheme.text
    );
    for (at, panel) in picture.panels.iter().enumerate() {
        draw(&mut svg, tables, panel, scheme, at * PANEL);
    }
    svg + "</svg>\n"
}

fn draw(svg: &mut String, tables: &str, panel: &Panel, scheme: &Scheme, top: usize) {
    let bars: Vec<(&str, f64)> =
        panel.rows.iter().map(|(row, label)| (*label, median(tables, panel.figure, row))).collect();
    let ours = bars[0].1;
    let is_cut = |value: f64| value > MOST * ours;
    let most = bars.iter().map(|bar| bar.1).filter(|value| !is_cut(*value)).fold(0.0, f64::max);
    let _ = writeln!(svg, "<text x=\"4\" y=\"{}\" font-weight=\"600\">{}</text>", top + 20, panel.title);
    for (at, (label, value)) in bars.into_iter().enumerate() {
        let y = top + 32 + 28 * at;
        let (x, room) = BARS;
        let length = if is_cut(value) { room } else { (value / most * room * 0.8).max(1.0) };
        let (colour, weight) = if at == 0 { (scheme.ours, "600") } else { (scheme.others, "400") };
        let digits = usize::from(value < 100.0);
        let mut text = number(value, digits);
        if is_cut(value) {
            let _ = write!(text, "; cut: {:.0} × ours", value / ours);
        }
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\" font-weight=\"{weight}\">{label}</text>\n\
             <rect x=\"{x}\" y=\"{y}\" width=\"{length:.0}\" height=\"20\" fill=\"{colour}\"/>",
            x - 10,
            y + 15,
        );
        if is_cut(value) {
            // A gap in the bar.
            let _ = writeln!(
                svg,
                "<path d=\"M{0} {y}l-6 20h8l6 -20z\" fill=\"{1}\"/>",
                x + (room * 0.9) as usize,
                scheme.page
            );
        }
        let _ = writeln!(svg, "<text x=\"{}\" y=\"{}\">{text}</text>", x + length as usize + 8, y + 15);
    }
}

/// The median of a row in the tables' line for a figure.
fn median(tables: &str, figure: &str, row: &str) -> f64 {
    let line =
        tables.lines().find_map(|line| line.strip_prefix("| ")?.strip_prefix(figure)?.strip_prefix(" | "));
    let line = line.unwrap_or_else(|| panic!("no figure called {figure:?} in the tables"));
    let mut values = line.split([';', '|']).map(str::trim);
    let value = values.find_map(|value| value.strip_prefix(row)?.strip_prefix(' '));
    let value = value.unwrap_or_else(|| panic!("no row {row:?} of the figure {figure:?}"));
    let digits: String =
        value.split(" (").next().unwrap_or(value).chars().filter(|next| !next.is_whitespace()).collect();
    digits.parse().unwrap_or_else(|error| panic!("{digits:?} of {figure:?}: {error}"))
}
