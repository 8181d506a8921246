//! Options of commands that are built for a drive, fio's engine `io_uring_cmd`, and of the thread that submits for a ring.

use super::super::error::Problem;
use super::super::values;
use super::Draft;

/// To whom commands are sent: NVMe namespaces. fio has SCSI devices as well (`bsg`).
pub fn cmd_type(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.commands.get_or_insert("cmd_type");
    match values::required(value)? {
        "nvme" => Ok(()),
        _ => Err(Problem::new("commands are sent to NVMe namespaces only", "write nvme")),
    }
}

/// Which command writes.
pub fn write_mode(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.commands.get_or_insert("write_mode");
    match values::required(value)? {
        "write" => Ok(()),
        _ => Err(Problem::new(
            "a write writes its data: zones are not appended to, and no blocks are marked bad, zeroed or only verified",
            "write write_mode=write, or leave it out",
        )),
    }
}

pub fn readfua(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.conduct.ring.read_fua = values::switch(value)?;
    if draft.conduct.ring.read_fua {
        draft.commands.get_or_insert("readfua");
    }
    Ok(())
}

pub fn writefua(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    draft.write_fua = values::switch(value)?;
    if draft.write_fua {
        draft.commands.get_or_insert("writefua");
    }
    Ok(())
}

pub fn sqthread_poll_cpu(draft: &mut Draft, value: Option<&str>) -> Result<(), Problem> {
    let cpu = values::required(value)?.parse::<u32>();
    draft.conduct.ring.sqthread_poll_cpu =
        Some(cpu.map_err(|_| Problem::new("it is not the number of a CPU", "write for instance 0"))?);
    Ok(())
}
