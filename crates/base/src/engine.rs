//! Engines by name, and what is asked of them elsewhere.
//!
//! Every question is a match without `_`, so that a new engine does not compile before each is answered.

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

impl IoEngine {
    /// The words of the engines of which this holds, as a sentence names them: `io_uring and libaio`.
    #[must_use]
    pub fn words_with(question: fn(Self) -> bool) -> String {
        let engines = Self::ALL.into_iter().filter(|engine| question(*engine));
        engines.map(Self::word).collect::<Vec<_>>().join(" and ")
    }

    /// Whether requests go through a ring of io_uring(7), which can poll, have its queue read by a kernel thread, and has
    /// buffers registered.
    #[must_use]
    pub const fn is_ring(self) -> bool {
        match self {
            Self::IoUring | Self::IoUringCmd => true,
            Self::Auto | Self::Libaio | Self::Psync | Self::Posixaio | Self::Mmap | Self::Nbd => false,
        }
    }

    /// Whether each request can have flags of its own (RWF_ATOMIC) and a priority of its own.
    #[must_use]
    pub const fn has_request_flags(self) -> bool {
        match self {
            Self::IoUring | Self::Libaio => true,
            Self::Auto | Self::IoUringCmd | Self::Psync | Self::Posixaio | Self::Mmap | Self::Nbd => false,
        }
    }

    /// Whether it sends NVMe commands past the block layer, and nothing else.
    #[must_use]
    pub const fn sends_commands(self) -> bool {
        match self {
            Self::IoUringCmd => true,
            Self::Auto
            | Self::IoUring
            | Self::Libaio
            | Self::Psync
            | Self::Posixaio
            | Self::Mmap
            | Self::Nbd => false,
        }
    }

    /// Whether a thread hands over one request and waits until it is done.
    #[must_use]
    pub const fn is_synchronous(self) -> bool {
        match self {
            Self::Psync | Self::Mmap => true,
            Self::Auto | Self::IoUring | Self::IoUringCmd | Self::Libaio | Self::Posixaio | Self::Nbd => {
                false
            }
        }
    }

    /// Whether it makes the plain calls of a device, so that one which verifies what it reads, or performs requests itself,
    /// does so.
    #[must_use]
    pub const fn calls_device(self) -> bool {
        match self {
            Self::Psync => true,
            Self::Auto
            | Self::IoUring
            | Self::IoUringCmd
            | Self::Libaio
            | Self::Posixaio
            | Self::Mmap
            | Self::Nbd => false,
        }
    }

    /// Whether it loads from and stores to a mapping, which is the page cache: never direct, never at a depth above 1, and
    /// durable after an msync(2) only.
    #[must_use]
    pub const fn is_mapping(self) -> bool {
        match self {
            Self::Mmap => true,
            Self::Auto
            | Self::IoUring
            | Self::IoUringCmd
            | Self::Libaio
            | Self::Psync
            | Self::Posixaio
            | Self::Nbd => false,
        }
    }
}
