//! The copy of the workspace in which each fault of `checks/defects/faults.txt` is a branch.

use anyhow::Result;
use defects::{copy, faults};

use crate::workspace::Workspace;

/// Brings the copy up to date. What has not changed is not built anew.
pub(crate) fn copy(workspace: &Workspace) -> Result<Workspace> {
    let root = workspace.target_dir().join("seeded");
    let mut files = copy::read(workspace.root())?;
    faults::weave(&mut files)?;
    copy::write(&root, &files)?;
    Workspace::at(root)
}
