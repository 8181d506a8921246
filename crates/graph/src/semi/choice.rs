//! Which way to search the next level.
//!
//! What top-down would read is known: the pages of the front's lists. With the heads in memory, so is what bottom-up would:
//! the pages on which the lists of vertices without a parent among their heads begin. The lesser is chosen.
//!
//! Otherwise bottom-up reads at least the heads of the unvisited vertices, and at most their lists beside. Where these bounds
//! decide, they do. Between them Beamer's rule holds, in edges: bottom-up once the front's exceed 1/α of the unexplored,
//! top-down again once the front has shrunk below n/β vertices.

/// α of Beamer's rule.
const ALPHA: u64 = 15;
/// β of Beamer's rule.
const BETA: u64 = 18;

/// Which way a level is searched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the front to its neighbours.
    TopDown,
    /// From unvisited vertices to the front.
    BottomUp,
}

impl Direction {
    /// The word in results: `top-down`, `bottom-up`.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::TopDown => "top-down",
            Self::BottomUp => "bottom-up",
        }
    }
}

/// What is known before a level.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidates {
    /// The way of the level before.
    pub last: Direction,
    /// Vertices with lists.
    pub listed: u64,
    /// Vertices of the front, and of the front before it.
    pub front: u64,
    pub front_before: u64,
    /// Neighbours in the front's lists, and in those of all unvisited vertices.
    pub front_entries: u64,
    pub unexplored: u64,
    /// Bytes of pages that top-down would read.
    pub top_down_bytes: u64,
    /// The least and the most that bottom-up would read.
    pub bottom_up_bytes: [u64; 2],
}

/// See the module's argument.
pub(super) fn choose(known: &Candidates) -> Direction {
    let [least, most] = known.bottom_up_bytes;
    if known.top_down_bytes <= least {
        return Direction::TopDown;
    }
    if most <= known.top_down_bytes {
        return Direction::BottomUp;
    }
    let is_bottom_up = match known.last {
        Direction::TopDown => known.front_entries > known.unexplored / ALPHA,
        Direction::BottomUp => known.front >= known.front_before || known.front > known.listed / BETA,
    };
    if is_bottom_up { Direction::BottomUp } else { Direction::TopDown }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: Candidates = Candidates {
        last: Direction::TopDown,
        listed: 1000,
        front: 10,
        front_before: 1,
        front_entries: 100,
        unexplored: 3000,
        top_down_bytes: 50_000,
        bottom_up_bytes: [4096, 1 << 20],
    };

    #[test]
    fn bytes_decide_where_their_bounds_do() {
        let few = Candidates { top_down_bytes: 4096, front_entries: 3000, ..KNOWN };
        assert_eq!(choose(&few), Direction::TopDown);
        let many = Candidates { top_down_bytes: 2 << 20, ..KNOWN };
        assert_eq!(choose(&many), Direction::BottomUp);
    }

    #[test]
    fn edges_decide_between_the_bounds() {
        assert_eq!(choose(&KNOWN), Direction::TopDown);
        assert_eq!(choose(&Candidates { front_entries: 201, ..KNOWN }), Direction::BottomUp);
        let bottom_up = Candidates { last: Direction::BottomUp, front_before: 100, ..KNOWN };
        assert_eq!(choose(&bottom_up), Direction::TopDown);
        assert_eq!(choose(&Candidates { front: 56, ..bottom_up }), Direction::BottomUp);
        assert_eq!(choose(&Candidates { front: 100, ..bottom_up }), Direction::BottomUp);
    }
}
