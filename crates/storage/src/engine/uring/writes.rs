//! What a job chooses for its writes: which commands make them, and where their data are placed.
//!
//! Both are chosen write by write, in a sequence that is the same in every ring.

use std::cell::Cell;

use crate::device::Device;
use crate::engine::Misfit;
use crate::nvme::Command;

/// Which commands make writes, in hundredths of them; together 100. All but the first move no data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteCommands {
    /// Write.
    pub write: u8,
    /// Write Zeroes.
    pub zeroes: u8,
    /// Write Uncorrectable: the blocks cannot be read until they are written anew.
    pub uncorrectable: u8,
    /// Verify: the drive reads the blocks, and nothing is written.
    pub verify: u8,
}

impl Default for WriteCommands {
    /// Writes.
    fn default() -> Self {
        Self { write: 100, zeroes: 0, uncorrectable: 0, verify: 0 }
    }
}

impl WriteCommands {
    /// Each with its word and what makes it.
    pub(super) fn each(&self) -> [(u8, &'static str, MakeCommand); 4] {
        [
            (self.write, "write", Command::write),
            (self.zeroes, "write zeroes", Command::write_zeroes),
            (self.uncorrectable, "write uncorrectable", Command::write_uncorrectable),
            (self.verify, "verify", Command::verify),
        ]
    }

    /// Whether each write moves its data.
    #[must_use]
    pub fn are_writes(&self) -> bool {
        self.write == 100
    }
}

/// Which of a namespace's placement identifiers writes have, each for itself (Flexible Data Placement).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Placement {
    /// Their places in the namespace's list, from 0; all where none is named.
    pub places: Vec<u16>,
    /// One is drawn for each write, where they would take turns.
    pub random: bool,
}

impl Placement {
    /// The identifiers of `device`, which has `all`.
    pub(super) fn identifiers(&self, device: &dyn Device, all: &[u16]) -> Result<Box<[u16]>, Misfit> {
        let spec = || device.spec().to_owned();
        if all.is_empty() {
            return Err(Misfit::NoPlacement { device: spec(), why: "it has no identifiers".to_owned() });
        }
        if self.places.is_empty() {
            return Ok(all.into());
        }
        let count = all.len();
        let of = |place: &u16| {
            let identifier = all.get(usize::from(*place)).copied();
            identifier.ok_or_else(|| Misfit::NoSuchPlace { place: *place, device: spec(), count })
        };
        self.places.iter().map(of).collect()
    }
}

/// Makes a command to a namespace, from a block on, of so many bytes, in blocks of so many.
pub(super) type MakeCommand = fn(u32, u64, u32, u32) -> Command;

/// What is chosen for one write after the other.
#[derive(Debug)]
pub(super) struct WriteChoice {
    pub commands: WriteCommands,
    /// Whether a write's place is drawn.
    pub places_are_drawn: bool,
    /// Of what draws a write's command and place, the state.
    drawn: Cell<u64>,
    /// Writes that were placed in turn.
    placed: Cell<usize>,
}

impl WriteChoice {
    pub fn new(commands: WriteCommands, placement: Option<&Placement>) -> Self {
        let places_are_drawn = placement.is_some_and(|placement| placement.random);
        Self { commands, places_are_drawn, drawn: Cell::new(0), placed: Cell::new(0) }
    }

    /// A number below `end` by splitmix64.
    fn draw(&self, end: usize) -> usize {
        let state = self.drawn.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.drawn.set(state);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((u128::from(mixed ^ mixed >> 31) * end as u128) >> 64) as usize
    }

    /// The placement identifier of the next write to a member that has these; None where the drive decides.
    #[inline]
    pub fn next_place(&self, places: &[u16]) -> Option<u16> {
        if places.is_empty() {
            return None;
        }
        let at = if self.places_are_drawn {
            self.draw(places.len())
        } else {
            let placed = self.placed.get();
            self.placed.set(placed.wrapping_add(1));
            placed % places.len()
        };
        Some(places[at])
    }

    /// The command of the next write.
    #[inline]
    pub fn next_write(&self) -> MakeCommand {
        if self.commands.are_writes() {
            return Command::write;
        }
        let mut left = self.draw(100) as u8;
        for (share, _, make) in self.commands.each() {
            match left.checked_sub(share) {
                Some(rest) => left = rest,
                None => return make,
            }
        }
        Command::write
    }

    /// Words for the record: which commands write, where that is not one that moves data.
    pub fn shares(&self) -> impl Iterator<Item = String> {
        let other = !self.commands.are_writes();
        let shares = self.commands.each().into_iter().filter(move |(share, ..)| *share > 0 && other);
        shares.map(|(share, word, _)| format!("{word} {share} %"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_those_of_the_places_asked_for_and_all_where_none_is_named() {
        let all = [5, 0x8002, 7, 9];
        let device =
            crate::device::open(&"mem:1m".parse().expect("a spec"), &Default::default()).expect("memory");
        let of = |places: &[u16]| {
            let placement = Placement { places: places.to_vec(), random: false };
            placement.identifiers(&*device, &all)
        };
        assert_eq!(of(&[]).as_deref(), Ok(all.as_slice()));
        assert_eq!(of(&[3, 1]).as_deref(), Ok([9, 0x8002].as_slice()));
        assert!(matches!(of(&[4]), Err(Misfit::NoSuchPlace { place: 4, count: 4, .. })));
        let none = Placement::default().identifiers(&*device, &[]);
        assert!(matches!(none, Err(Misfit::NoPlacement { .. })));
    }
}
