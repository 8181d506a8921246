//! What the export holds, as far as that is certain.

use std::ops::Range;

use storage::device::Device;

/// See the module's words.
pub struct Model<'p> {
    pristine: &'p [u8],
    bytes: Vec<u8>,
    in_order: bool,
    /// Ranges that were, or may have been, written.
    dirty: Vec<Range<usize>>,
    /// Ranges of which nothing is certain.
    unsure: Vec<Range<usize>>,
}

pub fn overlap(a: &Range<usize>, b: &Range<usize>) -> bool {
    a.start < b.end && b.start < a.end
}

impl<'p> Model<'p> {
    pub fn new(pristine: &'p [u8], in_order: bool) -> Self {
        // Room that is not allocated while allocations are counted.
        let (dirty, unsure) = (Vec::with_capacity(1024), Vec::with_capacity(1024));
        Self { pristine, bytes: pristine.to_vec(), in_order, dirty, unsure }
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

    /// Holds the device against it, and makes the device what it was in the beginning.
    pub fn check(&mut self, device: &dyn Device) -> Result<(), String> {
        let mut found = vec![0; self.bytes.len()];
        device.read_at(&mut found, 0).map_err(|error| format!("read: {error}"))?;
        let is_right = self.allows(0..found.len(), &found, |_| false);
        // What is damaged outside of what was asked for is mended as well, for whoever goes on.
        if !is_right {
            self.dirty.push(0..found.len());
        }
        for range in self.dirty.drain(..) {
            device
                .write_at(&self.pristine[range.clone()], range.start as u64)
                .map_err(|error| format!("write: {error}"))?;
        }
        if is_right { Ok(()) } else { Err("the export holds what nobody wrote".into()) }
    }
}
