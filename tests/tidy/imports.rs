//! Limits on the modules that a module may name.

use std::path::PathBuf;

use crate::{code, lines, module, root, sources};

#[test]
fn only_sync_names_atomics_and_model_checkers() {
    let words = [
        "sync::atomic",
        "loom::",
        "crossbeam_epoch::",
        "UnsafeCell::new",
        "parking_lot::",
        "crossbeam_queue::",
        "event_listener::",
    ];
    for file in sources("src") {
        let (path, text) = &file;
        if *path == root("src/support/sync.rs") || path.starts_with(root("src/support/sync")) {
            continue;
        }
        let imports =
            ["use crate::support::sync::UnsafeCell;", "use crate::support::sync::{Canary, UnsafeCell};"];
        let has_own_cell = imports.iter().any(|import| text.contains(import));
        for (place, line) in lines(std::slice::from_ref(&file)) {
            let code = code(line).replace("crate::support::sync::atomic", "");
            let is_own = |word: &str| has_own_cell && word == "UnsafeCell::new";
            let found = words.into_iter().find(|word| code.contains(word) && !is_own(word));
            assert_eq!(
                found, None,
                "{place}: expected the model checkers' types, and this one is invisible to them"
            );
        }
    }
}

#[test]
fn redis_uses_public_items_only() {
    // `sync` is the shim; `foreign` and `runtime` handle panics of foreign code. The rest must be public.
    let public = [
        "crate::support::foreign::",
        "crate::support::sync::Mutex",
        "crate::support::sync::block_on",
        "crate::support::sync::atomic::",
        "crate::lock::{",
        "crate::lock::LeaseId;",
        "crate::lock::NameError;",
        "crate::subscription::",
        "crate::support::runtime::",
        "crate::backend::",
        "crate::AsyncSemaphore",
    ];
    for (place, line) in lines(&sources("src/redis")) {
        let is_public = !line.contains("crate::") || public.iter().any(|item| line.contains(item));
        assert!(
            is_public,
            "{place}: {line}: expected public items only, as src/redis is written like another crate"
        );
    }
}

/// The crate's own client uses the engine as any crate would, but for the idle path and optimizations.
#[test]
fn lock_uses_public_items_of_its_engine_only() {
    let private = ["claim(", "take(", "is_quiet(", "is_nothing(", "is_usual(", "copy(", "steps(", "BACK_OFF"];
    let mut files = sources("src");
    files.retain(|(path, _)| path.starts_with(root("src/lock_entry")) || *path == root("src/lock_entry.rs"));
    for (place, line) in lines(&files).filter(|(_, line)| line.contains("pub(crate)")) {
        assert!(
            private.iter().any(|item| line.contains(item)),
            "{place}: {line}: expected no other item of the crate alone: is this one for each client?"
        );
    }
}

fn assert_absent(files: &[(PathBuf, String)], words: &[&str]) {
    for (place, line) in lines(files) {
        let found = words.iter().find(|word| code(line).contains(**word));
        assert_eq!(found, None, "{place}: expected no import of an upper layer");
    }
}

/// Each module, with the modules above.
#[test]
fn arrows_point_down() {
    let top = ["crate::lock::", "crate::local", "crate::redis"];
    let rooms: [(&str, &[&str]); 12] = [
        ("semaphore", &["crate::latch", "crate::subscription::registry", "crate::lock", "crate::striped"]),
        ("latch", &top),
        ("striped", &top),
        ("subscription/transport", &top),
        ("subscription/registry", &top),
        (
            "subscription/channel",
            &[&top[..], &["crate::subscription::registry", "crate::lock_entry"]].concat(),
        ),
        (
            "lock_entry",
            &[&top[..], &["crate::subscription::registry", "crate::subscription::channel"]].concat(),
        ),
        ("lock", &["crate::local", "crate::redis"]),
        ("local", &["crate::redis"]),
        ("redis/pubsub", &["super::scripts", "super::backend", "super::builder"]),
        ("redis/topology", &["super::pubsub", "super::scripts", "super::backend", "super::builder"]),
        (
            "redis/connection",
            &[
                "super::topology",
                "super::pubsub",
                "super::scripts",
                "super::keys",
                "super::backend",
                "super::builder",
            ],
        ),
    ];
    for (room, above) in rooms {
        assert_absent(&module(room), above);
    }
    assert_absent(&sources("src"), &["crate::blocking"]);
}

/// Cluster, Sentinel and TLS have feature gates only where their folder is mounted, in the builder and the
/// dialler.
#[test]
fn features_end_at_their_folder() {
    for (path, text) in sources("src/redis") {
        let may = ["builder.rs", "topology.rs", "connection.rs", "dial.rs", "url.rs", "error.rs"]
            .iter()
            .any(|file| path.ends_with(file));
        assert!(
            may || !text.contains("feature = "),
            "{}: expected no check of a feature here",
            path.display()
        );
    }
}
