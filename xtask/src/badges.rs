//! The documentation as docs.rs builds it; each item has to name its feature.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use xshell::cmd;

use crate::steps::Steps;
use crate::workspace::{Workspace, library};

/// Modules whose pages all need the feature.
const MODULES: [(&str, &str); 5] =
    [("backend", "lock"), ("blocking", "lock"), ("local", "local"), ("lock", "lock"), ("redis", "redis")];

/// Items with a feature beside their page's, or on a page without a feature: page, anchor, feature.
const PARTS: [(&str, &str, &str); 10] = [
    ("struct.LockClient.html", "main-content", "lock"),
    ("struct.LockClient.html", "method.local", "local"),
    ("blocking/struct.LockClient.html", "method.connect", "redis"),
    ("redis/enum.ShardedMessages.html", "main-content", "cluster"),
    ("redis/struct.RedisBuilder.html", "method.sharded_messages", "cluster"),
    ("redis/struct.RedisBuilder.html", "method.root_certificate", "tls"),
    ("redis/struct.RedisBuilder.html", "method.client_certificate", "tls"),
    ("backend/struct.TokioRuntime.html", "main-content", "tokio"),
    ("local/struct.Local.html", "method.on_tokio", "tokio"),
    ("struct.PollSemaphore.html", "impl-Stream-for-PollSemaphore", "stream"),
];

pub(crate) fn check(workspace: &Workspace, steps: &mut Steps) -> Result<()> {
    let Workspace { shell, cargo, .. } = workspace;
    steps.run("feature badges", || {
        let metadata = workspace.metadata()?;
        // The keys that docs.rs reads.
        let docs_rs = &library(&metadata)?.metadata["docs"]["rs"];
        let words = |key: &str| -> Vec<&str> {
            docs_rs[key].as_array().into_iter().flatten().filter_map(|word| word.as_str()).collect()
        };
        let (features, flags) = (words("features").join(","), words("rustdoc-args").join(" "));
        // docs.rs has a nightly toolchain. Build scripts read the variable, so these builds have a directory
        // of their own: otherwise this step and the next would rebuild everything.
        let target = workspace.target_dir().join("docs.rs");
        cmd!(
            shell,
            "{cargo} doc --package latchwork --lib --no-deps --features {features} --target-dir {target}"
        )
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTDOCFLAGS", format!("{flags} -D warnings"))
        .run()?;
        let pages = target.join("doc/latchwork");
        for (module, feature) in MODULES {
            check_folder(&pages.join(module), feature)?;
        }
        for (page, anchor, feature) in PARTS {
            let page = pages.join(page);
            let text = read(&page)?;
            let part = text.split_once(&format!("id=\"{anchor}\""));
            let (_, part) = part.with_context(|| format!("{} has no {anchor}", page.display()))?;
            // Up to the next item.
            let part = part.split_once("id=\"method.").map_or(part, |(part, _)| part);
            ensure!(says(part, feature), "{}: {anchor} does not say {feature}", page.display());
        }
        Ok(())
    })
}

/// True if the first badge in the text names the feature, alone or among others.
fn says(text: &str, feature: &str) -> bool {
    let badge = text.split_once("class=\"stab portability\"").and_then(|(_, rest)| rest.split_once("</div>"));
    badge.is_some_and(|(badge, _)| badge.contains(&format!("<code>{feature}</code>")))
}

/// Checks that each page of the folder names the feature. Subfolders are private modules.
fn check_folder(folder: &Path, feature: &str) -> Result<()> {
    let mut pages = 0;
    for entry in fs::read_dir(folder).with_context(|| format!("there is no {}", folder.display()))? {
        let page = entry?.path();
        if page.extension().is_some_and(|extension| extension == "html") {
            ensure!(says(&read(&page)?, feature), "{} does not say that it needs {feature}", page.display());
            pages += 1;
        }
    }
    ensure!(pages > 3, "{} has {pages} pages", folder.display());
    Ok(())
}

fn read(page: &Path) -> Result<String> {
    fs::read_to_string(page).with_context(|| format!("cannot read {}", page.display()))
}
