//! What the export holds, as far as that is certain.

use std::ops::Range;
use std::sync::Arc;

use storage::device::Device;

/// See the module's words.
pub struct Model {
    pristine: Arc<Vec<u8>>,
    bytes: Vec<u8>,
    /// What the device was found to hold.
    found: Vec<u8>,
    /// Ranges that were, or may have been, written.
    dirty: Vec<Range<usize>>,
    /// Ranges of which nothing is certain.
    unsure: Vec<Range<usize>>,
}

pub fn overlap(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start < b.end && b.start < a.end
}

impl Model {
    /// A model of a device that holds `pristine` whenever an execution begins.
    pub fn new(pristine: &Arc<Vec<u8>>) -> Self {
        // Room that is not allocated while allocations are counted.
        let (dirty, unsure) = (Vec::with_capacity(1024), Vec::with_capacity(1024));
        Self {
            pristine: Arc::clone(pristine),
            bytes: pristine.to_vec(),
            found: pristine.to_vec(),
            dirty,
            unsure,
        }
    }

    /// Whether `data` may be what a read of `range` finds, where it need not hold for bytes that `is_changed`.
    pub fn allows(&self, range: Range<usize>, data: &[u8], is_changed: impl Fn(usize) -> bool) -> bool {
        let known = &self.bytes[range.clone()];
        if known == data {
            return true;
        }
        let is_unsure = |at: usize| self.unsure.iter().any(|unsure| unsure.contains(&at)) || is_changed(at);
        known.iter().zip(data).zip(range).all(|((known, byte), at)| known == byte || is_unsure(at))
    }

    /// A write that was done and that nothing overtakes.
    pub fn write(&mut self, range: Range<usize>, data: Option<&[u8]>) {
        match data {
            Some(data) => self.bytes[range.clone()].copy_from_slice(data),
            None => self.bytes[range.clone()].fill(0),
        }
        self.dirty.push(range);
    }

    /// From here on nothing is certain of `range`.
    pub fn doubt(&mut self, range: Range<usize>) {
        self.dirty.push(range.clone());
        self.unsure.push(range);
    }

    /// What stands in `range` is certain again.
    pub fn be_sure(&mut self, range: &Range<usize>) {
        for number in (0..self.unsure.len()).rev() {
            if !overlap(&self.unsure[number], range) {
                continue;
            }
            let unsure = self.unsure.swap_remove(number);
            let around = [unsure.start..range.start.max(unsure.start), range.end.min(unsure.end)..unsure.end];
            self.unsure.extend(around.into_iter().filter(|part| !part.is_empty()));
        }
    }

    /// Holds the device against it, and makes both what they were in the beginning.
    pub fn check(&mut self, device: &dyn Device) -> Result<(), String> {
        let mut found = std::mem::take(&mut self.found);
        device.read_at(&mut found, 0).map_err(|error| format!("read: {error}"))?;
        let is_right = self.allows(0..found.len(), &found, |_| false);
        self.found = found;
        self.unsure.clear();
        for range in self.dirty.drain(..) {
            let before = &self.pristine[range.clone()];
            self.bytes[range.clone()].copy_from_slice(before);
            device.write_at(before, range.start as u64).map_err(|error| format!("write: {error}"))?;
        }
        if is_right { Ok(()) } else { Err("the export holds what nobody wrote".into()) }
    }
}
