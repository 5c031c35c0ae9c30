//! Inserts the mutants of a file into its text.

use std::ops::Range;

use crate::site::{Change, ON, Site};

/// Positions of mutants in the woven text.
pub(crate) type Places = Vec<(Range<usize>, u32)>;

/// Weaves the sites into the text. `sites`: inner sites after outer ones.
pub(crate) fn weave(text: &str, sites: &[(u32, &Site)]) -> (String, Places) {
    let mut insertions = Vec::new();
    for (at, (number, site)) in sites.iter().enumerate() {
        let on = format!("crate::mutants::on({number})");
        let (before, after) = match &site.change {
            Change::Around(before, after) => (before.replace(ON, &on), after.clone()),
            // See `script` in `switch.rs`.
            Change::Instead(_) => (format!("\u{2}{number}:"), format!("\u{3}{number}:")),
        };
        insertions.push((site.start, true, at, before));
        insertions.push((site.end, false, at, after));
    }
    // At one position, ends precede beginnings, and inner ends outer ones; but empty sites begin first.
    insertions.sort_by_key(|(place, begins, at, _)| {
        let site = sites[*at].1;
        let is_end = !begins && site.start < site.end;
        (*place, !is_end, if is_end { sites.len() - at } else { *at }, !begins)
    });
    let mut woven = String::with_capacity(4 * text.len());
    let mut places = vec![(0..0, 0); sites.len()];
    let mut done = 0;
    for (place, begins, at, insertion) in insertions {
        woven += &text[done..place];
        done = place;
        if begins {
            places[at] = (woven.len()..0, sites[at].0);
        }
        woven += &insertion;
        if !begins {
            places[at].0.end = woven.len();
        }
    }
    woven += &text[done..];
    (woven, places)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{lua, rust};

    fn woven(text: &str, sites: &[Site]) -> String {
        let numbered: Vec<_> = (1..).zip(sites).collect();
        let (woven, places) = weave(text, &numbered);
        for (place, number) in places {
            assert!(
                woven[place].contains(&number.to_string()),
                "expected mutant {number} at its place in {woven}"
            );
        }
        woven.replace("crate::mutants::on", "on")
    }

    #[test]
    fn conditions_operands_statements_and_results_mutate_separately() {
        let text = "fn f(a: u8) -> bool { if a < 5 && b(a) { c(); d(); } true }";
        let (sites, _) = rust::sites(text);
        assert_eq!(
            woven(text, &sites),
            "fn f(a: u8) -> bool { if on(1) { return true; } { if on(2) { return false; } \
             { if (!on(3) && ((on(4) || ((if on(5) { a <= 5 } else { a < (if on(6) { 0 } else { 5 }) }))) \
             && (on(7) || (b(a))))) { if !on(8) { c(); } if !on(9) { d(); } } (on(10) != (true)) }}}"
        );
    }

    #[test]
    fn tests_faults_constants_and_texts_for_people_are_left_alone() {
        let text = "
            #[cfg(test)]
            mod tests;
            #[cfg(test)]
            fn only_for_tests() { a(); b(); }
            const fn constant() -> bool { 1 < 2 }
            const LIMIT: usize = 2 * 8;
            impl fmt::Debug for It { fn fmt(&self) -> bool { self.is_it() } }
            fn faulty() -> It { if fault!(Fault) { a(); b(); } let x: [u8; 3] = it; event!(if x { 1 }); x }
        ";
        let (sites, of_tests) = rust::sites(text);
        assert_eq!(woven(text, &sites), text);
        assert_eq!(of_tests, ["tests", "only_for_tests"]);
    }

    #[test]
    fn parts_of_a_script_are_marked_and_have_another_text() {
        let text = "if a == 1 then redis.call('del', KEYS[1]) end";
        let sites = lua::sites(text);
        let instead: Vec<_> = sites.iter().map(|site| site.what.as_str()).collect();
        assert_eq!(
            instead,
            [
                "a == 1 -> true",
                "a == 1 -> false",
                "a == 1: == -> ~=",
                "a == 1: 1 -> 0",
                "without redis.call('del', KEYS[1])",
            ]
        );
        assert!(
            woven(text, &sites)
                .starts_with("if \u{2}1:\u{2}2:\u{2}3:a == \u{2}4:1\u{3}4:\u{3}3:\u{3}2:\u{3}1: then")
        );
    }
}
