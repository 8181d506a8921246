//! Rows made by a thread ahead of the one that stores them.
//!
//! An engine waits for its server, and at the end of each batch for its device; rows are made meanwhile. A row goes from one thread to the
//! other in a chunk, and empty chunks come back to be filled again, so that no memory is allocated for a row.
//!
//! 1. The order of rows is that of the stream: there is one thread and one channel.
//! 2. A thread that ends without its last word has panicked: the reader panics as well, because a stream that seems to have ended would make a
//!    database with too few rows.
//! 3. The thread ends with its reader, however that ends: nothing takes its chunks any more.

use std::mem;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread;

use crate::schema::{Rows, Value};

/// Rows of a chunk.
const CHUNK_ROWS: usize = 1024;
/// Chunks that wait for the reader at most: what is made in some tens of milliseconds, as long as a batch takes to become durable.
const CHUNKS_AHEAD: usize = 24;

type Chunk = Vec<Vec<Value>>;

/// Does work with rows that a thread makes ahead.
pub fn ahead<T>(rows: &mut dyn Rows, work: impl FnOnce(&mut dyn Rows) -> T) -> T {
    thread::scope(|scope| {
        let (full, taken) = sync_channel(CHUNKS_AHEAD);
        let (back, empty) = channel();
        scope.spawn(move || make(rows, &full, &empty));
        // Dropped before the thread is waited for.
        work(&mut Ahead { full: taken, empty: back, chunk: Chunk::new(), next: 0, is_over: false })
    })
}

/// Fills chunks until the rows or their reader end.
fn make(rows: &mut dyn Rows, full: &SyncSender<Option<Chunk>>, empty: &Receiver<Chunk>) {
    loop {
        let mut chunk = empty.try_recv().unwrap_or_default();
        chunk.resize_with(CHUNK_ROWS, Vec::new);
        let made = chunk.iter_mut().map(|row| rows.next(row)).take_while(|is_row| *is_row).count();
        chunk.truncate(made);
        if full.send(Some(chunk)).is_err() {
            return;
        }
        if made < CHUNK_ROWS {
            // A reader that is gone needs no last word.
            let _ = full.send(None);
            return;
        }
    }
}

/// The reader's side.
struct Ahead {
    full: Receiver<Option<Chunk>>,
    empty: Sender<Chunk>,
    chunk: Chunk,
    /// In the chunk.
    next: usize,
    is_over: bool,
}

impl Rows for Ahead {
    fn next(&mut self, row: &mut Vec<Value>) -> bool {
        while self.next == self.chunk.len() && !self.is_over {
            match self.full.recv() {
                Ok(Some(chunk)) => {
                    let used = mem::replace(&mut self.chunk, chunk);
                    self.next = 0;
                    // A thread that has made all rows needs no more chunks.
                    let _ = self.empty.send(used);
                }
                Ok(None) => self.is_over = true,
                Err(_) => panic!("the thread that makes rows has ended before the rows"),
            }
        }
        let Some(made) = self.chunk.get_mut(self.next) else { return false };
        mem::swap(row, made);
        self.next += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers up to an end; a panic at a number.
    struct Count {
        next: i64,
        end: i64,
        panics_at: i64,
    }

    impl Rows for Count {
        fn next(&mut self, row: &mut Vec<Value>) -> bool {
            assert!(self.next != self.panics_at, "no more numbers");
            row.clear();
            row.push(self.next.into());
            self.next += 1;
            self.next <= self.end
        }
    }

    fn count(end: i64) -> Count {
        Count { next: 0, end, panics_at: -1 }
    }

    #[test]
    fn rows_come_in_their_order_and_all_of_them() {
        let chunk = CHUNK_ROWS as i64;
        for end in [0, 1, chunk - 1, chunk, chunk + 1, chunk * (CHUNKS_AHEAD as i64 + 3)] {
            let read = ahead(&mut count(end), |rows| {
                let (mut row, mut read) = (Vec::new(), 0);
                while rows.next(&mut row) {
                    assert_eq!(row, [Value::from(read)]);
                    read += 1;
                }
                assert!(!rows.next(&mut row), "a stream that has ended goes on");
                read
            });
            assert_eq!(read, end);
        }
    }

    #[test]
    fn a_reader_that_leaves_early_ends_the_thread() {
        let mut rows = count(i64::MAX);
        ahead(&mut rows, |rows| assert!(rows.next(&mut Vec::new())));
        assert!(
            rows.next <= (CHUNK_ROWS * (CHUNKS_AHEAD + 3)) as i64,
            "{} rows are made for none",
            rows.next
        );
    }

    #[test]
    fn a_thread_that_panics_is_not_taken_for_the_end_of_the_rows() {
        let read = std::panic::catch_unwind(|| {
            let mut rows = Count { panics_at: 5000, ..count(10_000) };
            ahead(&mut rows, |rows| while rows.next(&mut Vec::new()) {});
        });
        assert!(read.is_err());
        // The reader itself, before the scope looks at its thread.
        let (full, taken) = sync_channel(1);
        full.send(Some(vec![vec![Value::from(1)]])).unwrap();
        drop(full);
        let mut reader =
            Ahead { full: taken, empty: channel().0, chunk: Chunk::new(), next: 0, is_over: false };
        assert!(reader.next(&mut Vec::new()));
        let more = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| reader.next(&mut Vec::new())));
        assert!(more.is_err(), "a database would have too few rows");
    }
}
