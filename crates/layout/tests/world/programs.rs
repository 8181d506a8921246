//! The programs that layouts run, and what each does to the machine: mdadm(8), mkfs, mount(8), umount(8) and lvm(8).

use std::fs;
use std::path::PathBuf;

use super::{DRIVES, World};

impl World {
    /// What a program does, or half of it.
    pub(super) fn execute(&self, program: &str, arguments: &[String], half: bool) -> Result<(), String> {
        let is_device = |a: &&String| a.starts_with("/dev/") || a.starts_with("/proc/");
        let devices: Vec<String> = arguments.iter().filter(is_device).cloned().collect();
        let value = |prefix: &str| arguments.iter().find_map(|a| Some(a.strip_prefix(prefix)?.to_owned()));
        let after = |flag: &str| {
            let at = arguments.iter().position(|a| a == flag);
            at.and_then(|at| arguments.get(at + 1)).cloned().unwrap_or_default()
        };
        match program {
            "mdadm" if arguments[0] == "--stop" => {
                self.remove_layer(devices[0].trim_start_matches("/dev/"));
            }
            "mdadm" => {
                let uuid = bytes(&value("--uuid=").expect("a UUID"));
                let (array, members) = devices.split_first().expect("devices");
                for member in members {
                    self.write_at(member, 4096, &[0xfc, 0x4e, 0x2b, 0xa9]);
                    self.write_at(member, 4096 + 16, &uuid);
                    if half {
                        return Ok(());
                    }
                }
                let names: Vec<_> =
                    members.iter().map(|m| fs::read_link(m).expect("a descriptor")).map(name_of).collect();
                let chunk =
                    value("--chunk=").expect("a chunk").trim_end_matches('K').parse::<u64>().expect("KiB")
                        << 10;
                let (disks, chunk) = (names.len().to_string(), chunk.to_string());
                let name = array.trim_start_matches("/dev/");
                let number = format!("9:{}", name.trim_start_matches("md"));
                let files = [("md/level", "raid0"), ("md/chunk_size", &chunk), ("md/raid_disks", &disks)];
                self.add_layer(name, &number, &names, &files);
            }
            "mkfs.xfs" => self.mkfs(&devices[0], (0, b"XFSB"), 32, &after("-m").replace("uuid=", ""), half),
            "mkfs.ext4" => {
                self.mkfs(&devices[0], (1024 + 0x38, &[0x53, 0xef]), 1024 + 0x68, &after("-U"), half)
            }
            "mkfs.btrfs" => {
                for device in &devices {
                    self.mkfs(device, (65536 + 0x40, b"_BHRfS_M"), 65536 + 0x20, &after("-U"), false);
                    if half {
                        return Ok(());
                    }
                }
            }
            "mkfs.f2fs" => {
                for at in [1024, 5120] {
                    self.mkfs(&devices[0], (at, &[0x10, 0x20, 0xf5, 0xf2]), at + 0x6c, &after("-U"), false);
                    if half {
                        return Ok(());
                    }
                }
            }
            "mount" => {
                let (device, point) =
                    (devices.first().expect("a device"), arguments.last().expect("a point"));
                let held = name_of(fs::read_link(device).expect("a descriptor"));
                let name = self.fate.lock().expect("no panic").mounts_other.unwrap_or(&held).to_owned();
                let kind = after("-t");
                if kind == "btrfs" {
                    let members = after("-o");
                    let members = members.split(',').filter_map(|option| option.strip_prefix("device=/dev/"));
                    for member in members.chain([name.as_str()]) {
                        self.file(&format!("sys/fs/btrfs/{}/devices/{member}", self.btrfs_uuid(&name)), "");
                    }
                }
                let number = self.text(&format!("sys/class/block/{name}/dev"));
                let line = format!("9 1 {} / {point} rw - {kind} /dev/{name} rw\n", number.trim());
                let before = self.text("proc/self/mountinfo");
                self.file("proc/self/mountinfo", &(before + &line));
            }
            "umount" => {
                let point = arguments.last().expect("a point");
                let lines = self.text("proc/self/mountinfo");
                let kept: String = lines
                    .lines()
                    .filter(|l| l.split(' ').nth(4) != Some(point))
                    .map(|l| format!("{l}\n"))
                    .collect();
                if kept == lines {
                    return Err(format!("{point}: not mounted"));
                }
                let source =
                    lines.lines().find(|line| !kept.contains(line)).and_then(|line| line.split(' ').nth(8));
                let name = source.expect("a source").trim_start_matches("/dev/").to_owned();
                let _ = fs::remove_dir_all(self.at("sys/fs/btrfs").join(self.btrfs_uuid(&name)));
                self.file("proc/self/mountinfo", &kept);
            }
            "lvm" => self.lvm(arguments, &devices, half)?,
            other => return Err(format!("{other}: not on this machine")),
        }
        Ok(())
    }

    /// The UUID of the btrfs on a drive, or what lies in its place.
    fn btrfs_uuid(&self, name: &str) -> String {
        let bytes = fs::read(self.at(format!("dev/{name}"))).expect("reads");
        let digits: String = bytes[65568..65584].iter().map(|byte| format!("{byte:02x}")).collect();
        let ends = [0, 8, 12, 16, 20, 32];
        ends.windows(2).map(|pair| &digits[pair[0]..pair[1]]).collect::<Vec<_>>().join("-")
    }

    fn mkfs(&self, device: &str, magic: (u64, &[u8]), uuid_at: u64, uuid: &str, half: bool) {
        self.write_at(device, magic.0, magic.1);
        // The real ones write a block at once, so that half of it is none of it, or all.
        if !half {
            self.write_at(device, uuid_at, &bytes(uuid));
        } else {
            self.write_at(device, magic.0, &vec![0; magic.1.len()]);
        }
    }

    fn lvm(&self, arguments: &[String], devices: &[String], half: bool) -> Result<(), String> {
        let group = || arguments.iter().find(|a| a.starts_with("flashwright_")).cloned().expect("a group");
        match arguments[0].as_str() {
            "pvcreate" if !half => {
                let at = arguments.iter().position(|a| a == "--uuid").expect("a UUID");
                self.write_at(&devices[0], 512, b"LABELONE");
                self.write_at(&devices[0], 544, arguments[at + 1].replace('-', "").as_bytes());
            }
            "lvcreate" if !half => {
                let members: Vec<_> = DRIVES
                    .iter()
                    .filter(|n| {
                        fs::read(self.at(format!("dev/{n}"))).is_ok_and(|b| &b[512..520] == b"LABELONE")
                    })
                    .map(ToString::to_string)
                    .collect();
                let name = format!("{}-data", group());
                self.add_layer("dm-0", "253:0", &members, &[("dm/name", &name), ("dm/uuid", "LVM-x")]);
            }
            "vgremove" => {
                let prefix = format!("{}-", group());
                let mine =
                    |name: &String| self.text(&format!("sys/block/{name}/dm/name")).starts_with(&prefix);
                let found: Vec<_> = self.disks("dm-").into_iter().filter(mine).collect();
                if found.is_empty() {
                    return Err("Volume group not found".to_owned());
                }
                for name in found {
                    self.remove_layer(&name);
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// The name of a node, also of one that was replaced since it was opened.
pub(super) fn name_of(path: PathBuf) -> String {
    let name = path.file_name().expect("a name").to_string_lossy().into_owned();
    name.trim_end_matches(" (deleted)").to_owned()
}

fn bytes(uuid: &str) -> Vec<u8> {
    let digits: Vec<u8> = uuid.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|two| u8::from_str_radix(std::str::from_utf8(two).expect("hex"), 16).expect("hex"))
        .collect()
}
