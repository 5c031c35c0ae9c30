//! A copy of the workspace, for a tool to change and build.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Folders that hold no sources.
const LEFT_OUT: [&str; 2] = [".git", "target"];

/// All files of a workspace, by their paths from its root.
///
/// # Errors
///
/// A folder or a file that cannot be read.
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

/// Makes a folder hold these files and no others, but for cargo's output. A file with the right text is left
/// alone, so that cargo builds nothing anew.
///
/// # Errors
///
/// A folder or a file that cannot be written.
pub fn write(root: &Path, files: &BTreeMap<String, Vec<u8>>) -> Result<()> {
    for (path, text) in files {
        let path = root.join(path);
        if fs::read(&path).ok().as_ref() != Some(text) {
            fs::create_dir_all(path.parent().context("a file is in a folder")?)?;
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    // cargo would find tests among them.
    for path in read(root)?.keys().filter(|path| !files.contains_key(*path)) {
        fs::remove_file(root.join(path))?;
    }
    Ok(())
}
