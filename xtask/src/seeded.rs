//! The copy of the workspace in which each fault of `checks/defects/faults.txt` is a branch.

use anyhow::Result;
use defects::{copy, faults};

use crate::workspace::Workspace;

/// Updates the copy. Unchanged files are not rebuilt.
pub(crate) fn copy(workspace: &Workspace) -> Result<Workspace> {
    let root = workspace.target_dir().join("seeded");
    let mut files = copy::read(workspace.root())?;
    faults::weave(&mut files)?;
    copy::write(&root, &files)?;
    Workspace::at(root)
}
