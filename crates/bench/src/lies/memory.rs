//! What keeps its bytes in this machine's memory, or in a file of another device.

use super::Evidence;
use crate::observe::{Layer, Stack};

/// File systems that keep their files in memory.
pub(super) fn is_memory_filesystem(stack: &Stack) -> bool {
    matches!(stack.filesystem.as_deref(), Some("tmpfs" | "ramfs" | "hugetlbfs"))
}

/// Whether the target itself is memory.
pub(super) fn is_memory(evidence: &Evidence<'_>) -> bool {
    evidence.record.target.kind == "memory"
        || evidence.stack.in_memory
        || is_memory_filesystem(evidence.stack)
}

/// Devices that keep their blocks in this machine's memory or in a file: no flash of their own.
pub(super) fn is_made_of_memory_or_file(layer: &Layer) -> bool {
    matches!(layer.device.transport.as_str(), "loop" | "zram" | "ram" | "null" | "scsi_debug")
}
