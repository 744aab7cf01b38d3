//! Corrupts the memory of a running program, as a bad memory cell or a stray write would.

use std::fs::{self, File};
use std::io::{self, BufRead as _};
use std::os::unix::fs::FileExt as _;

/// What is read at a time.
const PIECE: usize = 1 << 20;

/// The memory of a process, which is a child of this one.
#[derive(Debug)]
pub struct Memory {
    process: u32,
    file: File,
}

impl Memory {
    /// Opens it.
    ///
    /// # Errors
    /// If the kernel does not let this process do so.
    pub fn of(process: u32) -> io::Result<Self> {
        let file = File::options().read(true).write(true).open(format!("/proc/{process}/mem"))?;
        Ok(Self { process, file })
    }

    /// Where a text stands in what the process has for itself and may write to. It may go on meanwhile.
    ///
    /// # Errors
    /// If it has ended.
    ///
    /// # Panics
    /// If the text is empty.
    pub fn find(&self, text: &[u8]) -> io::Result<Vec<u64>> {
        let mut places = Vec::new();
        let mut piece = vec![0; PIECE + text.len() - 1];
        for line in fs::read_to_string(format!("/proc/{}/maps", self.process))?.lines() {
            let Some((mut at, end)) = writable(line) else { continue };
            while at < end {
                // A text may stand across the end of a piece.
                let size = piece.len().min((end - at) as usize);
                // Pages that the kernel does not show have nothing of the program's.
                if self.file.read_exact_at(&mut piece[..size], at).is_ok() {
                    let starts = starts(&piece[..size], text).into_iter().map(|start| at + start as u64);
                    places.extend(starts);
                }
                at += PIECE as u64;
            }
        }
        Ok(places)
    }

    /// Writes another text of the same length wherever the first one still stands. Gives how often that was.
    ///
    /// # Errors
    /// If the process has ended.
    ///
    /// # Panics
    /// If the texts are not of one length.
    pub fn alter(&self, places: &[u64], text: &[u8], to: &[u8]) -> io::Result<usize> {
        assert_eq!(text.len(), to.len(), "nothing is moved");
        let (mut there, mut altered) = (vec![0; text.len()], 0);
        for place in places {
            if self.file.read_exact_at(&mut there, *place).is_ok() && there == text {
                self.file.write_all_at(to, *place)?;
                altered += 1;
            }
        }
        Ok(altered)
    }
}

/// Where a text begins. By the library's own search for a byte: this one is not optimised in tests.
fn starts(piece: &[u8], text: &[u8]) -> Vec<usize> {
    let (mut rest, mut starts) = (piece, Vec::new());
    while rest.skip_until(text[0]).is_ok_and(|read| read > 0) {
        let start = piece.len() - rest.len() - 1;
        if piece[start..].starts_with(text) {
            starts.push(start);
        }
    }
    starts
}

/// The range of a line of `maps`, if it is private memory that may be written to.
fn writable(line: &str) -> Option<(u64, u64)> {
    let mut words = line.split_whitespace();
    let (range, rights) = (words.next()?, words.next()?);
    let (from, to) = range.split_once('-')?;
    let place = |text| u64::from_str_radix(text, 16).ok();
    (rights.starts_with("rw") && rights.ends_with('p')).then_some((place(from)?, place(to)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_start_is_found() {
        assert_eq!(starts(b"ab-aab-ab", b"ab"), [0, 4, 7]);
        assert!(starts(b"", b"ab").is_empty());
        assert!(starts(b"aaa", b"ab").is_empty());
    }
}
