//! Engines by name.

crate::words! {
    /// The engine asked for: fio's `ioengine`.
    #[derive(Default)]
    pub enum IoEngine {
        /// The fastest that this kernel allows: io_uring, then libaio, then psync; the record says why. Copying for memory,
        /// NBD for exports of other hosts, and commands for NVMe namespaces by their character devices.
        #[default]
        Auto = "auto",
        /// io_uring(7).
        IoUring = "io_uring" | "iouring",
        /// NVMe commands in a ring, of targets that are namespaces by their character devices (`/dev/ng0n1`).
        IoUringCmd = "io_uring_cmd",
        /// The kernel's native asynchronous I/O, io_submit(2).
        Libaio = "libaio",
        /// pread(2) and pwrite(2) on one thread for each unit of depth.
        Psync = "psync",
        /// The C library's asynchronous I/O, aio_read(3).
        Posixaio = "posixaio",
        /// The target mapped into memory: loads and stores, and msync(2).
        Mmap = "mmap",
        /// NBD: connections to other hosts, of targets that are exports (`nbd://…`).
        Nbd = "nbd",
    }
}
