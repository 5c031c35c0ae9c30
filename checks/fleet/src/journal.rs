//! Journals: a line of JSON for each record, written at once. A kill loses the last line at most.

use std::fs::{File, OpenOptions, read_to_string};
use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Appends to a file.
#[derive(Debug)]
pub struct Journal(File);

impl Journal {
    /// Creates a file. Fails with the operating system's error.
    pub fn create(path: &Path) -> io::Result<Self> {
        Ok(Self(OpenOptions::new().create_new(true).append(true).open(path)?))
    }

    /// Writes a line. Panics if the file cannot be written.
    pub fn write(&self, record: &impl Serialize) {
        let mut line = serde_json::to_vec(record).expect("nothing that JSON has not");
        line.push(b'\n');
        // One system call: lines of several threads do not mix, and no line is buffered in a killed process.
        (&self.0).write_all(&line).expect("cannot write the journal");
    }
}

/// Reads a journal. Fails on an invalid line, unless it is the last and cut off.
pub fn read<T: DeserializeOwned>(path: &Path) -> Result<Vec<T>, String> {
    let of_file = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let text = read_to_string(path).map_err(|error| of_file(&error))?;
    let lines = text.split_inclusive('\n').map_while(|line| line.strip_suffix('\n'));
    lines.map(|line| serde_json::from_str(line).map_err(|error| of_file(&error))).collect()
}

#[cfg(test)]
mod tests {
    use super::{Journal, read};

    #[test]
    fn line_that_was_cut_off_is_left_out() {
        let path = std::env::temp_dir().join(format!("latchwork-journal-{}", std::process::id()));
        let journal = Journal::create(&path).unwrap();
        journal.write(&1);
        journal.write(&23);
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(read::<u32>(&path).unwrap(), [1, 23]);
        for (length, is) in [(text.len() - 1, Some(vec![1])), (2, Some(vec![1])), (0, Some(vec![]))] {
            std::fs::write(&path, &text[..length]).unwrap();
            assert_eq!(read(&path).ok(), is);
        }
        std::fs::write(&path, "1\nx\n").unwrap();
        assert!(read::<u32>(&path).is_err());
        std::fs::remove_file(&path).unwrap();
    }
}
