//! `StripedSemaphores`: the same name, the same stripe.

use std::collections::HashSet;

use latchwork::StripedSemaphores;
use latchwork::striped::DEFAULT_STRIPES;

#[test]
fn a_name_always_picks_the_same_stripe() {
    let stripes = StripedSemaphores::new();
    assert_eq!(stripes.len(), DEFAULT_STRIPES);
    for number in 0..1000 {
        let name = format!("orders:{number}");
        assert_eq!(stripes.stripe_of(&name), stripes.stripe_of(&name));
        assert!(stripes.stripe_of(&name) < stripes.len());
        assert!(std::ptr::eq(stripes.for_name(&name), stripes.for_name(&name)));
    }
}

#[test]
fn names_spread_over_all_stripes() {
    let stripes = StripedSemaphores::new();
    let picked: HashSet<usize> =
        (0..5000).map(|number| stripes.stripe_of(&format!("orders:{number}"))).collect();
    assert_eq!(picked.len(), stripes.len());
}

#[test]
fn rows_are_seeded_apart() {
    let (one, other) = (StripedSemaphores::new(), StripedSemaphores::new());
    let names: Vec<String> = (0..100).map(|number| format!("orders:{number}")).collect();
    assert!(names.iter().any(|name| one.stripe_of(name) != other.stripe_of(name)));
}

#[test]
fn each_stripe_has_one_permit() {
    let stripes = StripedSemaphores::with_stripes(1);
    let held = stripes.for_name("a").try_acquire().unwrap();
    assert!(stripes.for_name("b").try_acquire().is_err(), "one stripe for all");
    assert!(format!("{stripes:?}").starts_with("{0: "));
    drop(held);
    assert_eq!(format!("{stripes:?}"), "{}");
}

#[test]
#[should_panic(expected = "at least one")]
fn no_stripes_are_refused() {
    let _ = StripedSemaphores::with_stripes(0);
}
