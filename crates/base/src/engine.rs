//! Engines by name.

crate::words! {
    /// The engine asked for: fio's `ioengine`.
    #[derive(Default)]
    pub enum IoEngine {
        /// The fastest that this kernel allows: io_uring, then libaio, then psync; the record says why. Copying for memory,
        /// and NBD for exports of other hosts.
        #[default]
        Auto = "auto",
        /// io_uring(7).
        IoUring = "io_uring" | "iouring",
        /// The kernel's native asynchronous I/O, io_submit(2).
        Libaio = "libaio",
        /// pread(2) and pwrite(2) on one thread for each unit of depth.
        Psync = "psync",
        /// NBD: connections to other hosts, of targets that are exports (`nbd://…`).
        Nbd = "nbd",
    }
}
