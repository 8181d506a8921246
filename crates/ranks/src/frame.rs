//! What ranks say to each other: a kind, the number of the collective, a payload.

/// The most bytes of a payload.
pub const PAYLOAD_MAX_BYTES: usize = 64 << 20;

/// Bytes before the payload.
pub const HEAD_BYTES: usize = 5;

/// What a frame means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A rank's contribution to a collective.
    Up,
    /// The root's answer, which ends the collective.
    Down,
    /// The root asks for the time.
    Ping,
    /// A rank's time.
    Pong,
    /// A rank reports an error of its own; the payload is its text.
    Failed,
    /// The root says which rank is lost, as JSON of [`Lost`](crate::Lost).
    Abort,
}

const KINDS: [Kind; 6] = [Kind::Up, Kind::Down, Kind::Ping, Kind::Pong, Kind::Failed, Kind::Abort];

/// The bytes of a frame.
pub fn encode(kind: Kind, sequence: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD_BYTES + payload.len());
    bytes.push(kind as u8);
    bytes.extend(sequence.to_le_bytes());
    bytes.extend(payload);
    bytes
}

/// Kind, collective and payload of a frame; None if it is not one.
pub fn decode(bytes: &[u8]) -> Option<(Kind, u32, &[u8])> {
    let (head, payload) = bytes.split_at_checked(HEAD_BYTES)?;
    let kind = *KINDS.get(usize::from(head[0]))?;
    Some((kind, u32::from_le_bytes(head[1..].try_into().ok()?), payload))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_read_as_it_was_written() {
        for (number, kind) in KINDS.into_iter().enumerate() {
            assert_eq!(kind as usize, number);
            assert_eq!(decode(&encode(kind, 7, b"x")), Some((kind, 7, &b"x"[..])));
        }
        assert_eq!(decode(&[9, 0, 0, 0, 0]), None);
        assert_eq!(decode(&[0, 0]), None);
    }
}
