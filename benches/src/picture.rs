//! Pictures of a [`Record`](crate::record::Record): SVG without a background, in colours that are legible on
//! light and dark pages alike. Each bar and each line has its name beside it.

use std::error::Error;
use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::record::{Curve, Figure, Value};

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn Error>>;

const TEXT: RGBColor = RGBColor(125, 125, 125);
const OURS: RGBColor = RGBColor(226, 88, 12);
const OTHERS: [RGBColor; 6] = [
    RGBColor(66, 135, 214),
    RGBColor(38, 150, 98),
    RGBColor(158, 104, 214),
    RGBColor(168, 128, 40),
    RGBColor(210, 70, 125),
    RGBColor(85, 140, 150),
];

/// Rows of this crate, in order of preference for a comparison.
const OF_OURS: [&str; 4] = ["fair", "write", "read", "latchwork"];

/// True if a row is this crate's.
pub fn is_ours(row: &str) -> bool {
    OF_OURS.contains(&row) || row.starts_with("latchwork")
}

/// Rows that do less than ours, as lower bounds: compared only where there is no other row.
const FLOORS: [&str; 2] = ["raw", "bare"];

/// Our value, and the best of the others.
pub fn compared(figure: &Figure) -> Option<(&Value, &Value)> {
    let of = |name: &str| figure.values.iter().find(|value| value.row == name);
    let ours = OF_OURS.iter().find_map(|name| of(name))?;
    let is_peer = |value: &&Value| !is_ours(&value.row) && !FLOORS.contains(&value.row.as_str());
    let peers = figure.values.iter().filter(is_peer).filter(|value| value.mid.is_finite());
    let better = |a: &&Value, b: &&Value| a.mid.total_cmp(&b.mid);
    let best = if figure.more_is_better { peers.max_by(better) } else { peers.min_by(better) };
    Some((ours, best.or_else(|| of(FLOORS[0]))?))
}

/// The ratio of ours to the best peer: above one where ours is worse.
pub fn ratio(figure: &Figure) -> Option<f64> {
    let (ours, best) = compared(figure)?;
    let ratio = if figure.more_is_better { best.mid / ours.mid } else { ours.mid / best.mid };
    ratio.is_finite().then_some(ratio)
}

fn colour(row: &str, rows: &[&str]) -> RGBColor {
    if is_ours(row) {
        return OURS;
    }
    let others = rows.iter().filter(|row| !is_ours(row));
    let at = others.into_iter().position(|other| *other == row).unwrap_or(0);
    OTHERS[at % OTHERS.len()]
}

/// A number with so many digits after the point, and a thin space between groups of three before it.
pub fn number(value: f64, digits: usize) -> String {
    let text = format!("{value:.digits$}");
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    if whole.len() <= 4 {
        return text;
    }
    let mut grouped = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at) % 3 == 0 {
            grouped.push('\u{202f}');
        }
        grouped.push(digit);
    }
    grouped + rest
}

fn write(area: &Area<'_>, text: &str, at: (i32, i32), size: i32, colour: RGBColor, across: HPos) -> Drawn {
    let style = ("sans-serif", size).into_font().color(&colour).pos(Pos::new(across, VPos::Center));
    area.draw(&Text::new(text.to_owned(), at, style))?;
    Ok(())
}

fn line(area: &Area<'_>, points: Vec<(i32, i32)>, colour: RGBColor, width: u32) -> Drawn {
    area.draw(&PathElement::new(points, colour.stroke_width(width)))?;
    Ok(())
}

/// Draws a panel of bars for each figure, in two columns; whiskers are quartiles.
pub fn bars(file: &Path, figures: &[&Figure]) -> Drawn {
    const WIDTH: i32 = 520;
    const ROW: i32 = 17;
    const HEAD: i32 = 34;
    let height = |figure: &Figure| HEAD + ROW * figure.values.len() as i32;
    let mut heights = [4; 2];
    let mut places = Vec::new();
    for figure in figures {
        let column = usize::from(heights[1] < heights[0]);
        places.push((WIDTH * column as i32, heights[column]));
        heights[column] += height(figure);
    }
    let size = (2 * WIDTH as u32, heights[0].max(heights[1]) as u32 + 10);
    let area = SVGBackend::new(file, size).into_drawing_area();
    for (figure, (left, top)) in figures.iter().zip(places) {
        let better = if figure.more_is_better { "more is better" } else { "less is better" };
        let unit = if figure.unit.is_empty() { String::new() } else { format!("{}; ", figure.unit) };
        let head = format!("{} ({unit}{better})", figure.name);
        write(&area, &head, (left + 4, top + 18), 13, TEXT, HPos::Left)?;
        let rows: Vec<&str> = figure.values.iter().map(|value| value.row.as_str()).collect();
        // Some peers take hundreds of times as long: their bars are cut, and labelled with the number.
        let mut all: Vec<f64> = figure.values.iter().map(|value| value.mid).collect();
        all.sort_by(f64::total_cmp);
        let most = (all[(all.len() - 1) / 2] * 4.0).min(all[all.len() - 1]).max(f64::MIN_POSITIVE);
        for (at, value) in figure.values.iter().enumerate() {
            let y = top + HEAD + ROW * at as i32;
            let (x0, room) = (left + 120, 270.0);
            let x = |value: f64| x0 + ((value / most).clamp(0.0, 1.15) * room) as i32;
            let colour = colour(&value.row, &rows);
            write(&area, &value.row, (x0 - 6, y), 12, colour, HPos::Right)?;
            area.draw(&Rectangle::new([(x0, y - 5), (x(value.mid).max(x0 + 1), y + 5)], colour.filled()))?;
            let is_cut = value.mid > most * 1.15;
            if !is_cut {
                line(&area, vec![(x(value.low), y), (x(value.high), y)], TEXT, 1)?;
                for end in [value.low, value.high] {
                    line(&area, vec![(x(end), y - 3), (x(end), y + 3)], TEXT, 1)?;
                }
            }
            let text = number(value.mid, figure.digits);
            let text = if is_cut { format!("… {text}") } else { text };
            write(&area, &text, (x(value.mid.max(value.high)) + 6, y), 12, TEXT, HPos::Left)?;
        }
    }
    area.present()?;
    Ok(())
}

/// Draws curves on logarithmic axes, with names at their ends and quartiles as whiskers.
pub fn curves(file: &Path, curves: &[&Curve]) -> Drawn {
    const SIZE: (i32, i32) = (520, 330);
    let rows = (curves.len() as i32 + 1) / 2;
    let area = SVGBackend::new(file, (2 * SIZE.0 as u32, (rows * SIZE.1) as u32)).into_drawing_area();
    for (at, curve) in curves.iter().enumerate() {
        panel(&area, curve, (at as i32 % 2 * SIZE.0, at as i32 / 2 * SIZE.1))?;
    }
    area.present()?;
    Ok(())
}

/// The least and the greatest value above zero.
fn range(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let range = values.filter(|value| *value > 0.0);
    range.fold((f64::INFINITY, 0.0), |(low, high), value| (value.min(low), value.max(high)))
}

fn panel(area: &Area<'_>, curve: &Curve, (left, top): (i32, i32)) -> Drawn {
    let points = || curve.lines.iter().flat_map(|line| &line.points);
    let (x_low, x_high) = range(points().map(|(x, _)| *x));
    let (y_low, y_high) = range(points().flat_map(|(_, value)| [value.low, value.high]));
    if x_high == 0.0 || y_high == 0.0 {
        return Ok(());
    }
    let (y_low, y_high) = (10_f64.powf(y_low.log10().floor()), 10_f64.powf(y_high.log10().ceil()));
    let (x0, x1, y0, y1) = (left + 62, left + 400, top + 285, top + 40);
    let part = |value: f64, low: f64, high: f64| {
        let span = (high / low).log10().max(1e-9);
        (value.max(low) / low).log10() / span
    };
    let x = |value: f64| x0 + (part(value, x_low, x_high) * f64::from(x1 - x0)) as i32;
    let y = |value: f64| y0 - (part(value, y_low, y_high) * f64::from(y0 - y1)) as i32;
    write(area, &format!("{} ({})", curve.name, curve.unit), (left + 8, top + 18), 13, TEXT, HPos::Left)?;
    line(area, vec![(x0, y1), (x0, y0), (x1, y0)], TEXT, 1)?;
    let mut tick = y_low;
    while tick <= y_high * 1.01 {
        line(area, vec![(x0 - 4, y(tick)), (x0, y(tick))], TEXT, 1)?;
        let digits = if tick < 1.0 { (-tick.log10()).ceil() as usize } else { 0 };
        write(area, &number(tick, digits), (x0 - 7, y(tick)), 11, TEXT, HPos::Right)?;
        tick *= 10.0;
    }
    let mut ticks: Vec<f64> = points().map(|(x, _)| *x).collect();
    ticks.sort_by(f64::total_cmp);
    ticks.dedup();
    let mut last = i32::MIN;
    for tick in ticks {
        line(area, vec![(x(tick), y0), (x(tick), y0 + 4)], TEXT, 1)?;
        if x(tick) - last > 34 || last == i32::MIN {
            write(area, &number(tick, 0), (x(tick), y0 + 13), 11, TEXT, HPos::Center)?;
            last = x(tick);
        }
    }
    write(area, &curve.x, ((x0 + x1) / 2, y0 + 30), 12, TEXT, HPos::Center)?;
    let rows: Vec<&str> = curve.lines.iter().map(|line| line.row.as_str()).collect();
    let mut labels = Vec::new();
    for row in &curve.lines {
        let colour = colour(&row.row, &rows);
        let width = if is_ours(&row.row) { 3 } else { 2 };
        line(area, row.points.iter().map(|(at, value)| (x(*at), y(value.mid))).collect(), colour, width)?;
        for (at, value) in &row.points {
            line(area, vec![(x(*at), y(value.low)), (x(*at), y(value.high))], colour, 1)?;
        }
        if let Some((at, value)) = row.points.last() {
            labels.push((y(value.mid), x(*at), row.row.as_str(), colour));
        }
    }
    labels.sort_unstable_by_key(|label| label.0);
    let mut free = i32::MIN;
    for (at, end, name, colour) in labels {
        let at = at.max(free);
        write(area, name, (end + 7, at), 12, colour, HPos::Left)?;
        free = at + 14;
    }
    Ok(())
}
