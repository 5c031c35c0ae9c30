//! A copy of the workspace, for a tool to change and build.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Folders that hold no sources.
const LEFT_OUT: [&str; 2] = [".git", "target"];

/// Returns all files of a workspace, by path relative to the root.
///
/// # Errors
///
/// Fails if a folder or a file cannot be read.
pub fn read(root: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut files = BTreeMap::new();
    read_folder(root, "", &mut files)?;
    Ok(files)
}

fn read_folder(folder: &Path, prefix: &str, files: &mut BTreeMap<String, Vec<u8>>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let (path, kind) = (entry.path(), entry.file_type()?);
        if kind.is_dir() && !LEFT_OUT.contains(&&*name) {
            read_folder(&path, &format!("{prefix}{name}/"), files)?;
        } else if kind.is_file() {
            let text = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            files.insert(format!("{prefix}{name}"), text);
        }
    }
    Ok(())
}

/// Makes a folder hold exactly these files, beside cargo's output. Leaves unchanged files alone, so that
/// cargo rebuilds only the others.
///
/// # Errors
///
/// Fails if a folder or a file cannot be written.
pub fn write(root: &Path, files: &BTreeMap<String, Vec<u8>>) -> Result<()> {
    for (path, text) in files {
        let path = root.join(path);
        if fs::read(&path).ok().as_ref() != Some(text) {
            fs::create_dir_all(path.parent().context("a file is in a folder")?)?;
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    // cargo would find tests among stale files.
    for path in read(root)?.keys().filter(|path| !files.contains_key(*path)) {
        fs::remove_file(root.join(path))?;
    }
    Ok(())
}
