//! Following an index from end to end, before anything is looked up in it.
//!
//! Lists lie one after the other, so where each begins follows from the lengths of those before it. An index that says so, and
//! ends where the header says, has no list outside of the adjacency section and no two that overlap, and the arithmetic
//! of its look-ups does not overflow. Checksums alone do not tell: who writes a file to do harm computes them as well.

use super::index::{Group, Run, stride};
use super::{Header, Index, Order, SectionKind, list_start};

/// What the entries so far come to.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    header: &'a Header,
    width: u64,
    /// In degree order the last run, which ends where the next one begins.
    open: Option<Run>,
    /// Lists behind which `end` is.
    lists: u64,
    /// Where they end, relative to the adjacency section.
    end: u64,
    entries: u64,
    max_degree: u64,
}

impl<'a> Walk<'a> {
    pub fn of(header: &'a Header) -> Self {
        let width = header.width.bytes() as u64;
        Self { header, width, open: None, lists: 0, end: 0, entries: 0, max_degree: 0 }
    }

    /// Follows the entries in the next bytes of the section; where in them one is wrong, and how.
    pub fn follow(&mut self, bytes: &[u8]) -> Result<(), (u64, String)> {
        let entry = Index::entry_bytes(self.header) as usize;
        for (at, bytes) in bytes.chunks_exact(entry).enumerate() {
            let followed = match self.header.order {
                Order::Degree => self.run(Run::decode(bytes)),
                Order::Given => self.group(&Group::decode(bytes)),
            };
            followed.map_err(|detail| ((at * entry) as u64, detail))?;
        }
        Ok(())
    }

    /// Compares what all entries come to with the header; what is wrong otherwise.
    pub fn finish(mut self) -> Result<(), String> {
        if let Some(Run { first, degree, .. }) = self.open {
            if first >= self.header.listed {
                return Err(format!("vertex {first} has no list"));
            }
            self.add(self.header.listed - first, degree)?;
        }
        let length = self.header.section(SectionKind::Adjacency).length;
        for (what, found, told) in [
            ("lists", self.lists, self.header.listed),
            ("neighbours", self.entries, self.header.entries),
            ("neighbours of one vertex at most", self.max_degree, self.header.max_degree),
            ("bytes of lists", self.end, length),
        ] {
            if found != told {
                return Err(format!("it has {found} {what}, the header {told}"));
            }
        }
        Ok(())
    }

    fn run(&mut self, run: Run) -> Result<(), String> {
        let first = run.first;
        match self.open {
            Some(open) if first <= open.first => {
                return Err(format!("a run begins at vertex {first} behind one at {}", open.first));
            }
            Some(open) if run.degree >= open.degree => return Err(format!("degrees rise at vertex {first}")),
            Some(open) => self.add(first - open.first, open.degree)?,
            None => {}
        }
        self.check_degree(run.degree)?;
        let start = list_start(self.end, run.degree * self.width);
        if run.offset != start {
            return Err(format!("the list of vertex {first} begins at {}, not at {start}", run.offset));
        }
        self.open = Some(run);
        Ok(())
    }

    fn group(&mut self, group: &Group) -> Result<(), String> {
        if group.end != self.end {
            return Err(format!(
                "lists before vertex {} end at {}, not at {}",
                self.lists, group.end, self.end
            ));
        }
        for degree in group.degrees {
            if self.lists < self.header.listed {
                self.add(1, degree.into())?;
            } else if degree > 0 {
                return Err(format!("there are more lists than {}", self.lists));
            }
        }
        Ok(())
    }

    /// Adds lists of one length.
    fn add(&mut self, count: u64, degree: u64) -> Result<(), String> {
        self.check_degree(degree)?;
        let entries = count.checked_mul(degree).and_then(|new| self.entries.checked_add(new));
        self.entries = entries
            .filter(|entries| *entries <= self.header.entries)
            .ok_or_else(|| format!("lists have more neighbours than all ({})", self.header.entries))?;
        // All entries fit into a file, so these sums fit into 64 bits.
        let bytes = degree * self.width;
        self.end = list_start(self.end, bytes) + (count - 1) * stride(bytes) + bytes;
        self.lists += count;
        Ok(())
    }

    fn check_degree(&mut self, degree: u64) -> Result<(), String> {
        self.max_degree = self.max_degree.max(degree);
        if degree <= self.header.max_degree {
            return Ok(());
        }
        Err(format!("a vertex has more neighbours than any ({})", self.header.max_degree))
    }
}
