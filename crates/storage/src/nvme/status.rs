//! What a drive answered, in words.

/// The status of a command as the kernel hands it on: the status code in bits 7:0, its type in bits 10:8, and in bit 14
/// that trying again is of no use (`linux/nvme.h`, `NVME_SC_*`).
pub(crate) fn words(status: u16) -> String {
    let (code, kind) = ((status & 0xff) as u8, (status >> 8 & 7) as u8);
    let name = match (kind, code) {
        (0, code) => generic(code),
        (1, 0x80) => Some("Conflicting Attributes"),
        (1, 0x81) => Some("Invalid Protection Information"),
        (1, 0x82) => Some("Attempted Write to Read Only Range"),
        (1, 0xb8) => Some("Zone Boundary Error"),
        (1, 0xbc) => Some("Zone Invalid Write"),
        (2, 0x80) => Some("Write Fault"),
        (2, 0x81) => Some("Unrecovered Read Error"),
        (2, 0x82) => Some("End-to-end Guard Check Error"),
        (2, 0x83) => Some("End-to-end Application Tag Check Error"),
        (2, 0x84) => Some("End-to-end Reference Tag Check Error"),
        (2, 0x85) => Some("Compare Failure"),
        (2, 0x86) => Some("Access Denied"),
        (2, 0x87) => Some("Deallocated or Unwritten Logical Block"),
        (3, 0x00) => Some("Internal Path Error"),
        (3, 0x01) => Some("Asymmetric Access Persistent Loss"),
        (3, 0x02) => Some("Asymmetric Access Inaccessible"),
        (3, 0x03) => Some("Asymmetric Access Transition"),
        (3, 0x60) => Some("Controller Pathing Error"),
        (3, 0x70) => Some("Host Pathing Error"),
        (3, 0x71) => Some("Command Aborted By Host"),
        _ => None,
    };
    let of = match kind {
        0 => "generic",
        1 => "command specific",
        2 => "media and data integrity",
        3 => "path related",
        7 => "vendor specific",
        _ => "reserved",
    };
    let name = name.unwrap_or("a status without a name here");
    format!("the drive answered: {name} ({of} status {code:#04x})")
}

fn generic(code: u8) -> Option<&'static str> {
    Some(match code {
        0x01 => "Invalid Command Opcode",
        0x02 => "Invalid Field in Command",
        0x03 => "Command ID Conflict",
        0x04 => "Data Transfer Error",
        0x05 => "Commands Aborted due to Power Loss Notification",
        0x06 => "Internal Error",
        0x07 => "Command Abort Requested",
        0x08 => "Command Aborted due to SQ Deletion",
        0x0b => "Invalid Namespace or Format",
        0x0c => "Command Sequence Error",
        0x13 => "PRP Offset Invalid",
        0x1c => "Sanitize Failed",
        0x1d => "Sanitize In Progress",
        0x20 => "Namespace is Write Protected",
        0x29 => "Flexible Data Placement Disabled",
        0x2a => "Invalid Placement Handle List",
        0x80 => "LBA Out of Range",
        0x81 => "Capacity Exceeded",
        0x82 => "Namespace Not Ready",
        0x83 => "Reservation Conflict",
        0x84 => "Format In Progress",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_named_by_type_and_code_whatever_its_other_bits() {
        for status in [0x0080, 0x4080, 0x6080] {
            assert_eq!(words(status), "the drive answered: LBA Out of Range (generic status 0x80)");
        }
        assert!(words(0x4286).contains("Access Denied (media and data integrity status 0x86)"));
        assert!(words(0x0182).contains("Read Only Range"));
        assert!(words(0x7c5).contains("without a name here (vendor specific status 0xc5)"));
    }
}
