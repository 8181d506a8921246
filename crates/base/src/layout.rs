//! Layouts and file systems by name: what drives can be made into, and what can be put on them.

crate::words! {
    /// How drives are made into one target.
    #[derive(PartialOrd, Ord)]
    pub enum LayoutKind {
        /// One drive.
        Single = "single",
        /// The drives one by one, the load spread over them.
        Separate = "separate",
        /// Striped in user space.
        Stripe = "stripe",
        /// Striped by the kernel's md driver (md(4)).
        MdRaid0 = "md-raid0",
        /// One btrfs over the drives, data and metadata striped (mkfs.btrfs(8)).
        BtrfsRaid0 = "btrfs-raid0",
        /// A striped logical volume (lvmraid(7), lvcreate(8)).
        LvmStripe = "lvm-stripe",
    }
}

impl LayoutKind {
    /// Whether a drive holds a chunk before the next one's turn comes.
    #[must_use]
    pub fn has_chunk(self) -> bool {
        !matches!(self, Self::Single | Self::Separate)
    }

    /// The chunk where none is named, bytes: 64 KiB, but mdadm's own default of 512 KiB for md.
    #[must_use]
    pub fn default_chunk(self) -> u64 {
        match self {
            Self::MdRaid0 => 512 << 10,
            _ => 64 << 10,
        }
    }

    /// The file system that the layout itself is; None where any can be put on it, or none.
    #[must_use]
    pub const fn filesystem(self) -> Option<Filesystem> {
        match self {
            Self::BtrfsRaid0 => Some(Filesystem::Btrfs),
            Self::Single | Self::Separate | Self::Stripe | Self::MdRaid0 | Self::LvmStripe => None,
        }
    }
}

crate::words! {
    /// A file system that a layout can have.
    #[derive(PartialOrd, Ord)]
    pub enum Filesystem {
        /// XFS.
        Xfs = "xfs",
        /// ext4.
        Ext4 = "ext4",
        /// btrfs.
        Btrfs = "btrfs",
        /// F2FS.
        F2fs = "f2fs",
    }
}

impl Filesystem {
    /// The value of `filesystem` for a layout without one.
    pub const RAW: &'static str = "raw";

    /// All values of the setting `filesystem`: [`Self::RAW`], then the file systems.
    pub const SETTINGS: [&'static str; Self::WORDS.len() + 1] = {
        let mut settings = [Self::RAW; Self::WORDS.len() + 1];
        let mut next = 0;
        while next < Self::WORDS.len() {
            settings[next + 1] = Self::WORDS[next];
            next += 1;
        }
        settings
    };

    /// Whether its files are read ahead by a setting of its own (`/sys/fs/NAME/UUID/bdi/read_ahead_kb`), not by that of the
    /// device below.
    #[must_use]
    pub const fn has_own_read_ahead(self) -> bool {
        match self {
            Self::Btrfs => true,
            Self::Xfs | Self::Ext4 | Self::F2fs => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_the_setting_begin_with_raw() {
        assert_eq!(Filesystem::SETTINGS, ["raw", "xfs", "ext4", "btrfs", "f2fs"]);
    }
}
