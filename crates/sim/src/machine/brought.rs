//! The machine files that the program brings.

/// Name and text of each.
pub const MACHINES: &[(&str, &str)] = &[
    ("cray-disk", include_str!("../../../../machines/cray-disk.toml")),
    ("cray-flash", include_str!("../../../../machines/cray-flash.toml")),
    ("dash-io-node", include_str!("../../../../machines/dash-io-node.toml")),
    ("dash-misaligned", include_str!("../../../../machines/dash-misaligned.toml")),
    ("dash-no-msi", include_str!("../../../../machines/dash-no-msi.toml")),
    ("dash-onboard", include_str!("../../../../machines/dash-onboard.toml")),
    ("dash-one-drive", include_str!("../../../../machines/dash-one-drive.toml")),
    ("dash-raid", include_str!("../../../../machines/dash-raid.toml")),
    ("dash-raid-128k", include_str!("../../../../machines/dash-raid-128k.toml")),
    ("dash-raid-untuned", include_str!("../../../../machines/dash-raid-untuned.toml")),
    ("dash-ram-drive", include_str!("../../../../machines/dash-ram-drive.toml")),
    ("frontier-node", include_str!("../../../../machines/frontier-node.toml")),
    ("gordon-io-node", include_str!("../../../../machines/gordon-io-node.toml")),
    ("mqsim-default", include_str!("../../../../machines/mqsim-default.toml")),
    ("nvme-node-2026", include_str!("../../../../machines/nvme-node-2026.toml")),
];

/// The text of the machine of this name.
#[must_use]
pub fn text(name: &str) -> Option<&'static str> {
    MACHINES.iter().find(|(own, _)| *own == name).map(|(_, text)| *text)
}
