//! Vertices, and how wide their numbers are in files.

/// The number of a vertex, from 0 on.
pub type VertexId = u64;

/// The most vertices, and the most edges of a list: no drive holds as many, and what is computed of them does not overflow.
pub(crate) const MOST_COUNT: u64 = 1 << 48;

/// Bytes that a vertex takes in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IdWidth {
    /// 4 bytes: graphs of at most 2^32 vertices.
    Four,
    /// 8 bytes.
    Eight,
}

impl IdWidth {
    /// The narrowest width for the vertices 0 to `vertices` − 1.
    #[must_use]
    pub const fn for_vertices(vertices: u64) -> Self {
        if vertices <= 1 << 32 { Self::Four } else { Self::Eight }
    }

    /// Bytes a vertex.
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Four => 4,
            Self::Eight => 8,
        }
    }

    /// The width of this many bytes; `None` unless they are 4 or 8.
    #[must_use]
    pub const fn from_bytes(bytes: u64) -> Option<Self> {
        match bytes {
            4 => Some(Self::Four),
            8 => Some(Self::Eight),
            _ => None,
        }
    }

    /// Appends a vertex, little-endian.
    ///
    /// # Panics
    ///
    /// If the vertex does not fit.
    pub fn put(self, vertex: VertexId, bytes: &mut Vec<u8>) {
        match self {
            Self::Four => {
                let narrow = u32::try_from(vertex).expect("the width was chosen by the number of vertices");
                bytes.extend_from_slice(&narrow.to_le_bytes());
            }
            Self::Eight => bytes.extend_from_slice(&vertex.to_le_bytes()),
        }
    }

    /// The vertex in the first bytes of a slice.
    ///
    /// # Panics
    ///
    /// If the slice is shorter than a vertex.
    #[must_use]
    pub fn get(self, bytes: &[u8]) -> VertexId {
        match self {
            Self::Four => u32::from_le_bytes(bytes[..4].try_into().expect("4 bytes")).into(),
            Self::Eight => u64::from_le_bytes(bytes[..8].try_into().expect("8 bytes")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::IdWidth;

    #[test]
    fn width_is_the_narrowest_that_holds_the_last_vertex() {
        assert_eq!(IdWidth::for_vertices(0), IdWidth::Four);
        assert_eq!(IdWidth::for_vertices(1 << 32), IdWidth::Four);
        assert_eq!(IdWidth::for_vertices((1 << 32) + 1), IdWidth::Eight);
    }

    #[test]
    fn vertices_are_read_back_in_both_widths() {
        for (width, vertex) in
            [(IdWidth::Four, u64::from(u32::MAX)), (IdWidth::Eight, u64::MAX), (IdWidth::Four, 0)]
        {
            let mut bytes = Vec::new();
            width.put(vertex, &mut bytes);
            assert_eq!(bytes.len(), width.bytes());
            assert_eq!(width.get(&bytes), vertex);
            assert_eq!(IdWidth::from_bytes(width.bytes() as u64), Some(width));
        }
    }
}
