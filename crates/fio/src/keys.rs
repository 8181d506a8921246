//! Every key of fio's job files, and what becomes of it here.
//!
//! A key is *supported* (it changes what runs), *accepted* (with the values listed it changes
//! nothing that is measured here, and the note says why) or *refused*. A key that is in none of the
//! three is unknown. There is no fourth way: nothing is skipped. The row of a supported key reads its value into the
//! [`Draft`](super::draft::Draft). `bench --cmdhelp` prints this table, and a test holds it against the installed fio's own list.

use std::time::Duration;

use super::draft::{
    Apply, acts, commands, conduct, numbers, priorities, protection, steady_writes, tolerance, verify, words,
};
use super::error::Problem;
use super::values::{
    block, boolean, by_direction, bytes, count, fraction, none_if_zero, number, percent, read,
    requests_per_second, short_time, size, switch, text, time, word,
};

/// What becomes of a key.
#[derive(Debug, Clone, Copy)]
pub(super) enum Treatment {
    /// It changes the workload.
    Supported(Apply),
    /// With these values it changes nothing here; with none listed, with any value.
    Accepted(&'static [&'static str]),
    /// It is refused, with this hint.
    Refused(&'static str),
}

/// One key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key {
    pub name: &'static str,
    pub aliases: &'static [&'static str],
    pub treatment: Treatment,
    /// What it does, why it does nothing, or why it is refused.
    pub note: &'static str,
}

const fn takes(
    name: &'static str,
    aliases: &'static [&'static str],
    apply: Apply,
    note: &'static str,
) -> Key {
    Key { name, aliases, treatment: Treatment::Supported(apply), note }
}

const fn accepts(
    name: &'static str,
    aliases: &'static [&'static str],
    values: &'static [&'static str],
    note: &'static str,
) -> Key {
    Key { name, aliases, treatment: Treatment::Accepted(values), note }
}

const fn refuses(
    name: &'static str,
    aliases: &'static [&'static str],
    note: &'static str,
    hint: &'static str,
) -> Key {
    Key { name, aliases, treatment: Treatment::Refused(hint), note }
}

/// Notes a value in a field of the draft.
fn set<T>(field: &mut T, value: Result<T, Problem>) -> Result<(), Problem> {
    *field = value?;
    Ok(())
}

fn milliseconds(number: u32) -> Duration {
    Duration::from_millis(number.into())
}

fn microseconds(number: u32) -> Duration {
    Duration::from_micros(number.into())
}

const ANY: &[&str] = &[];
const OFF: &[&str] = &["0"];
const ON: &[&str] = &["1"];
const LEAVE_OUT: &str = "leave it out";

/// Options that change the workload, in the order of the documentation. A reader that fits a row stands there (`d` is the draft,
/// `v` the value); one with words, limits or texts of its own is a function of [`draft`](super::draft).
#[rustfmt::skip]
const SUPPORTED: &[Key] = &[
    takes("name", &[], |d, v| set(&mut d.name, read(v, text).map(Some)), "the job's name in the output; files are named after the section"),
    takes("description", &[], |d, v| set(&mut d.description, read(v, text).map(Some)), "`desc` in fio-json"),
    takes("filename", &[], |d, v| set(&mut d.filename, read(v, words::paths).map(Some)), "files or block devices divided by `:`, which the job goes round block by block; `\\:` is a colon"),
    takes("nrfiles", &["nr_files"], |d, v| set(&mut d.nrfiles, count(v, 1, 1 << 20)), "files of `size`/N each, where `filename` is left out; at most 1024 that data is moved to"),
    takes("file_service_type", &[], words::file_service_type, "`roundrobin`, `random`: a sequential job goes round its files, a random one draws them"),
    takes("directory", &[], words::directory, "one directory, put before the file's name"),
    takes("filename_format", &[], words::filename_format, "with `$jobname`, `$jobnum`, `$filenum`"),
    takes("rw", &["readwrite"], words::rw, "all but several requests at one random offset (`randread:8`); `read:8k` skips, `read:-8k` goes backwards"),
    takes("bs", &["blocksize"], |d, v| set(&mut d.bs, by_direction(v, block)), "a comma list has the sizes of reads, writes and trims"),
    takes("bsrange", &["blocksize_range"], numbers::bsrange, "multiples of the lower end, each as often; at most 256 of them"),
    takes("bssplit", &[], |d, v| set(&mut d.bssplit, by_direction(v, numbers::split)), "shares must come to 100 %; sizes must be multiples of the smallest"),
    takes("ba", &["blockalign"], |d, v| set(&mut d.blockalign, by_direction(v, block)), "offsets of random requests are multiples of it; a multiple of the smallest block"),
    takes("iodepth", &[], |d, v| set(&mut d.workload.iodepth, count(v, 1, 32_768)), "1 with a synchronous engine, as in fio"),
    takes("iodepth_batch", &["iodepth_batch_submit"], |d, v| set(&mut d.iodepth_batch, count(v, 0, u32::MAX)), "1 where left out, as in fio; 0 or above `iodepth` means `iodepth`"),
    takes("iodepth_batch_complete_min", &["iodepth_batch_complete"], numbers::iodepth_batch_complete_min, "at least 1; above `iodepth` means `iodepth`"),
    takes("iodepth_batch_complete_max", &[], |_, v| count(v, 0, u32::MAX).map(drop), "checked; all completions that are there are always reaped, which the drive does not see"),
    takes("numjobs", &[], |d, v| set(&mut d.workload.numjobs, count(v, 1, 4096)), "copies share `filename`; without it each has a file of its own"),
    takes("rwmixread", &[], |d, v| set(&mut d.workload.rwmixread, read(v, percent)), "the later of the two wins"),
    takes("rwmixwrite", &[], |d, v| set(&mut d.workload.rwmixread, read(v, percent).map(|writes| 100 - writes)), "the later of the two wins"),
    takes("rate", &[], |d, v| set(&mut d.rate, by_direction(v, bytes)), "in a mix, one rate for each direction in the proportion of the mix"),
    takes("rate_iops", &[], |d, v| set(&mut d.rate_iops, by_direction(v, requests_per_second)), "in a mix, one rate for each direction in the proportion of the mix"),
    takes("rate_min", &["ratemin"], |d, v| set(&mut d.conduct.rate_min, by_direction(v, bytes)), "bytes a second that each copy must reach, over `rate_cycle`, from the third second on; else the run fails"),
    takes("rate_iops_min", &[], |d, v| set(&mut d.conduct.rate_iops_min, by_direction(v, requests_per_second)), "requests a second, likewise"),
    takes("rate_cycle", &["ratecycle"], |d, v| set(&mut d.conduct.rate_cycle, count(v, 0, u32::MAX).map(milliseconds)), "milliseconds over which `rate_min` is judged; 1000 where left out"),
    takes("rate_process", &[], |d, v| set(&mut d.workload.rate_process, word(v, "it is not a process")), "`linear` or `poisson`"),
    takes("runtime", &["timeout"], |d, v| set(&mut d.workload.runtime, read(v, time).map(none_if_zero)), "0 means no limit"),
    takes("time_based", &[], |d, v| set(&mut d.workload.time_based, switch(v)), "needs `runtime`"),
    takes("ramp_time", &[], |d, v| set(&mut d.workload.ramp_time, read(v, time)), ""),
    takes("size", &[], |d, v| set(&mut d.size, read(v, size).map(Some)), "bytes, zones (`8z`), or a percentage of the file or device, of `filesize` where there is none yet"),
    takes("io_size", &["io_limit"], |d, v| set(&mut d.io_size, read(v, size).map(Some)), "what the job moves; nothing with `time_based`, as in fio"),
    takes("loops", &[], |d, v| set(&mut d.workload.loops, count(v, 1, u32::MAX)), "nothing with `time_based`, as in fio"),
    takes("number_ios", &[], |d, v| set(&mut d.workload.number_ios, read(v, bytes).map(none_if_zero)), "of each copy of the job; 0 means no limit"),
    takes("flow", &[], |d, v| set(&mut d.conduct.flow, count(v, 0, 1000)), "the weight of each copy among the requests of all jobs with its `flow_id`; 0 for none; the jobs begin together, without a rate"),
    takes("flow_id", &[], |d, v| set(&mut d.conduct.flow_id, count(v, 0, u32::MAX)), "which flow; 0 where left out"),
    takes("flow_sleep", &[], |d, v| set(&mut d.conduct.flow_sleep, count(v, 0, u32::MAX).map(microseconds)), "microseconds that a copy rests which has got ahead, after its requests are answered"),
    takes("steadystate", &["ss"], conduct::steadystate, "`iops`, `bw`, `lat`, or one with `_slope`, and a limit: the job ends once it is below it; the copies are judged together, and no other job runs beside them"),
    takes("steadystate_duration", &["ss_dur"], |d, v| set(&mut d.conduct.steady_window, read(v, time)), "the window in which it is judged; 0 for not at all, as in fio"),
    takes("steadystate_ramp_time", &["ss_ramp"], |d, v| set(&mut d.conduct.steady_ramp, read(v, time)), "how long figures are not yet judged; it is part of the measured time"),
    takes("steadystate_check_interval", &["ss_interval"], conduct::steadystate_check_interval, "the time between two figures, at least 1s; 1s where left out"),
    takes("latency_target", &[], |d, v| set(&mut d.conduct.latency_target, read(v, short_time)), "the depth is searched, up to `iodepth`, at which requests take no longer; microseconds where bare. It ends the job, and is `latency_depth` in fio-json"),
    takes("latency_window", &[], |d, v| set(&mut d.conduct.latency_window, read(v, short_time)), "how long each depth is tried; microseconds where bare"),
    takes("latency_percentile", &[], conduct::latency_percentile, "how many requests may take no longer; 100 where left out, and then a late one with nothing beside it fails the run"),
    takes("latency_run", &[], |d, v| set(&mut d.conduct.latency_run, boolean(v)), "1: go on at the depth that was found"),
    takes("thinktime", &[], |d, v| set(&mut d.workload.thinktime, read(v, short_time)), "in microseconds where bare; what is in flight is waited for first, as in fio; not with a rate"),
    takes("thinktime_spin", &[], |d, v| set(&mut d.workload.thinktime_spin, read(v, short_time)), "the part of `thinktime` in which the CPU computes"),
    takes("thinktime_blocks", &[], |d, v| set(&mut d.workload.thinktime_blocks, count(v, 1, u32::MAX)), "requests between two rests"),
    takes("fill_device", &["fill_fs"], |d, v| set(&mut d.fill_device, boolean(v)), "a sequential write of the whole device, or of a file that takes 63/64 of what is free"),
    takes("filesize", &[], |d, v| set(&mut d.filesize, read(v, bytes).map(Some)), "how large a file is made, and what percentages are of; a job moves no more than its files hold, whatever `size` says"),
    takes("offset", &["fileoffset"], |d, v| set(&mut d.offset, read(v, size)), "bytes, zones, or a percentage of the file or device"),
    takes("offset_increment", &[], |d, v| set(&mut d.offset_increment, read(v, size)), "bytes, zones or a percentage; 0 where left out, so copies walk the same offsets, as in fio"),
    takes("random_distribution", &[], words::random_distribution, "`random`, `zipf:θ`, `pareto:h`, `zoned:50/5:30/15:20/80`, `sequence:2,0,1`"),
    takes("random_sequence_stride", &[], words::random_sequence_stride, "1: each round of a `sequence` begins so many blocks further as it has"),
    takes("zonemode", &[], words::zonemode, "`none`, `strided`, or `zbd`: the zones of a zoned drive, written at their write pointers; on any other target, zones of `zonesize` that begin empty"),
    takes("zonesize", &[], |d, v| set(&mut d.zonesize, read(v, bytes).map(none_if_zero)), "with `zonemode=strided`: bytes moved in one zone before the next, whole blocks of one size; with `zbd` how large a zone is"),
    takes("zonerange", &[], |d, v| set(&mut d.zonerange, read(v, bytes).map(none_if_zero)), "with `zonemode=strided`: how large a zone is; `zonesize` where left out"),
    takes("zoneskip", &[], |d, v| set(&mut d.zoneskip, read(v, bytes)), "with `zonemode=strided`: bytes between two zones"),
    takes("sprandom", &[], |d, v| set(&mut d.steady_writes.is_on, switch(v)), "1: one pass of `rw=randwrite` that leaves flash in the steady state of random writes: it writes the physical capacity once, and of each region so many blocks again as are invalid in that state"),
    takes("spr_op", &[], steady_writes::over_provisioning, "with `sprandom`: how much larger the physical capacity is, 0.15 where left out"),
    takes("spr_num_regions", &[], steady_writes::regions, "with `sprandom`: regions of the pass, 100 where left out; more need less memory and come closer"),
    takes("spr_cs", &[], steady_writes::cache, "with `sprandom`: the drive's cache; blocks are written again at the end of the next region then, and a region must not be smaller"),
    takes("zonecapacity", &[], |d, v| set(&mut d.workload.zonecapacity, read(v, bytes).map(none_if_zero)), "with `zonemode=zbd` and `zonesize`: how much of a zone can be written; a drive's own counts"),
    takes("read_beyond_wp", &[], |d, v| set(&mut d.workload.read_beyond_wp, boolean(v)), "with `zonemode=zbd`: 1 reads beyond the write pointers"),
    takes("max_open_zones", &[], |d, v| set(&mut d.workload.max_open_zones, count(v, 0, u32::MAX)), "with `zonemode=zbd`: the most zones that all jobs write at a time; 0, or left out, for the drive's limit"),
    takes("job_max_open_zones", &[], |d, v| set(&mut d.workload.job_max_open_zones, count(v, 0, u32::MAX)), "with `zonemode=zbd`: the most zones that each copy has opened at a time"),
    takes("ignore_zone_limits", &[], |d, v| set(&mut d.workload.ignore_zone_limits, switch(v)), "with `zonemode=zbd`: the drive's limit does not count"),
    takes("zone_reset_threshold", &[], |d, v| set(&mut d.workload.zone_reset_threshold, read(v, fraction)), "with `zone_reset_frequency`: the part of the region that must hold data before that counts"),
    takes("zone_reset_frequency", &[], |d, v| set(&mut d.workload.zone_reset_frequency, read(v, fraction)), "with `zonemode=zbd`: resets for each write, from 0 to 1, beside those of full zones"),
    takes("percentage_random", &[], |d, v| set(&mut d.percentage_random, by_direction(v, percent)), "the others follow the request before them; a mix needs one for both directions; nothing in a sequential job, as in fio"),
    takes("random_generator", &[], words::random_generator, "the generator is flashwright's; `lfsr` is accepted where each block is to be visited once"),
    takes("norandommap", &[], |d, v| set(&mut d.workload.norandommap, switch(v)), "set by `zipf` and `pareto`, as in fio"),
    takes("randrepeat", &[], |d, v| set(&mut d.randrepeat, boolean(v)), "with 0 a fresh seed is drawn for each job, and recorded"),
    takes("randseed", &[], |d, v| set(&mut d.randseed, read(v, bytes).map(Some)), "repeats a run; not fio's own sequence of offsets"),
    takes("verify", &[], verify::verify, "`crc32c` and `crc32c-intel`, `crc32`, `crc64`, `md5`, `sha256`, `sha512`, `xxhash` (as XXH3-64): in a header of flashwright's; `meta`: the header alone; `pattern`: no header; 0 for none"),
    takes("do_verify", &[], |d, v| set(&mut d.do_verify, boolean(v)), "0: what is written is not read back; it can be, by a reading job with `verify`"),
    takes("verify_only", &[], |d, v| set(&mut d.verify_only, switch(v)), "a writing job reads in place of writing, and checks"),
    takes("verify_interval", &[], |d, v| set(&mut d.workload.verify_interval, read(v, |text| number(text, 0, 1 << 30)).map(none_if_zero)), "bytes between two headers; divides the block, at least 512"),
    takes("verify_write_sequence", &[], |d, v| set(&mut d.checks_sequence, boolean(v)), "0: what is read back may be of any write, so that copies may write the same blocks; checksum, offset and length are checked all the same"),
    takes("verify_pattern", &[], |d, v| set(&mut d.workload.verify_pattern, verify::pattern(v).map(Some)), "numbers, texts and `%o` as in fio; at most 512 bytes, not from a file. With `meta` and `pattern` the data are compared with it, with the others the checksum covers it"),
    takes("verify_backlog", &[], |d, v| set(&mut d.workload.verify_backlog, count(v, 0, u32::MAX)), "written blocks are read back whenever there are so many, which counts as reads; not with a rate. A block that is written again before that is not checked for its first write"),
    takes("verify_backlog_batch", &[], |d, v| set(&mut d.verify_backlog_batch, count(v, 0, u32::MAX)), "how many are read back at once; `verify_backlog` where left out"),
    takes("buffer_pattern", &[], |d, v| set(&mut d.workload.buffer_pattern, verify::pattern(v).map(Some)), "numbers and texts as for `verify_pattern`, without `%o`; W-REPEATED-DATA says what that makes of the figures"),
    takes("buffer_compress_percentage", &[], |d, v| set(&mut d.workload.buffer_compress_percentage, read(v, percent)), ""),
    takes("dedupe_percentage", &[], |d, v| set(&mut d.workload.dedupe_percentage, read(v, percent)), "each block is made by itself then, whatever its size"),
    takes("dedupe_mode", &[], |d, v| set(&mut d.workload.dedupe_mode, word(v, "it is no way to copy blocks")), "`repeat`, `working_set`"),
    takes("dedupe_working_set_percentage", &[], |d, v| set(&mut d.workload.dedupe_working_set_percentage, count(v, 1, 100).map(|percent| percent as u8)), "of the blocks of each copy's region; 5 where left out"),
    takes("dedupe_global", &[], |d, v| set(&mut d.workload.dedupe_global, boolean(v)), "1: all jobs copy the same blocks"),
    takes("direct", &[], |d, v| set(&mut d.workload.direct, boolean(v)), "0 where left out, as in fio"),
    takes("buffered", &[], |d, v| set(&mut d.workload.direct, boolean(v).map(|on| !on)), "the opposite of `direct`; the later of the two wins"),
    takes("ioengine", &[], words::ioengine, "`io_uring`, `io_uring_cmd`, `libaio`, `posixaio`, `psync`, `mmap`, `nbd`; `sync`, `pvsync`, `pvsync2` run as psync; `null`, `filecreate`, `filestat`, `filedelete`, `dircreate`, `dirstat`, `dirdelete`, `falloc`, `ftruncate` and `cpuio` move no data, `page_fault` none to a drive; psync where left out, as in fio; `auto`, which fio does not have, is the best there is"),
    takes("cpuload", &[], |d, v| set(&mut d.acts.load, count(v, 1, u32::MAX).map(|percent| Some(percent.min(100) as u8))), "with `ioengine=cpuio`: the percentage of its time in which each copy computes"),
    takes("cpuchunks", &[], |d, v| set(&mut d.acts.chunk, count(v, 1, 60_000_000).map(|chunk| Some(microseconds(chunk)))), "with `ioengine=cpuio`: microseconds between two rests; 50000 where left out"),
    takes("cpumode", &[], acts::cpumode, "with `ioengine=cpuio`: `noop` spins, `qsort` sorts"),
    takes("stat_type", &[], acts::stat_type, "with `ioengine=filestat`: `stat`, `lstat`; both are statx(2)"),
    takes("create_on_open", &[], |d, v| set(&mut d.create_on_open, boolean(v)), "1: a file that is missing is made with its length and not written first, so that a job that reads it needs `--allow-unwritten`; the engines that work on names never lay files"),
    takes("uri", &[], words::uri, "with `ioengine=nbd`: the export, in the place of `filename`"),
    takes("hipri", &[], |d, v| set(&mut d.hipri, switch(v)), "with io_uring and io_uring_cmd"),
    takes("cmd_type", &[], commands::cmd_type, "with io_uring_cmd: `nvme`, the default"),
    takes("readfua", &[], commands::readfua, "with io_uring_cmd: a flag of each read, which is then from the medium and not from the drive's cache"),
    takes("writefua", &[], commands::writefua, "with io_uring_cmd: a flag of each write, which is then on the medium when it completes"),
    takes("write_mode", &[], commands::write_mode, "with io_uring_cmd: the commands that write, `write`, `zeroes`, `uncor` and `verify`, one or several with their shares, such as `write/40:zeroes/60`; not with `verify`; or `zone_append` for all writes, with `zonemode=zbd`"),
    takes("fdp", &[], commands::fdp, "with io_uring_cmd: each write names one of the namespace's placement identifiers (Flexible Data Placement)"),
    takes("dataplacement", &["data_placement"], commands::dataplacement, "`none`, or `fdp`, which is `fdp=1`; `streams` is refused"),
    takes("pi_act", &[], protection::pi_act, "with io_uring_cmd, of namespaces whose blocks have metadata: `1`, where left out, has the controller make and check protection information; `0` has it made and checked here"),
    takes("pi_chk", &[], protection::pi_chk, "with io_uring_cmd: which tags of protection information are checked, `GUARD`, `REFTAG` and `APPTAG`, one or several"),
    takes("apptag", &[], protection::apptag, "with io_uring_cmd: the application tag of protection information; 0x1234 where left out"),
    takes("apptag_mask", &[], protection::apptag_mask, "with io_uring_cmd: the bits of `apptag` that are compared; all where left out"),
    takes("md_per_io_size", &[], protection::md_per_io_size, "with io_uring_cmd: bytes of metadata of a request, where it has a buffer of its own; as many as are needed where left out, and fewer are refused"),
    takes("plids", &["fdp_pli"], commands::plids, "with `fdp`: which ones, by their places in the namespace's list, such as `0,2-4`; all where left out"),
    takes("plid_select", &["fdp_pli_select"], commands::plid_select, "with `fdp`: `roundrobin`, where left out, or `random`; `scheme` is refused"),
    takes("num_range", &[], commands::num_range, "with io_uring_cmd and `rw=trim` or `randtrim`: a command has so many ranges, each a request of its own here"),
    takes("cpus_allowed", &[], |d, v| set(&mut d.workload.cpus_allowed, words::numbers(v, "write for instance 0-3,8").map(Some)), "a list such as `0-3,8`, of CPUs that the process may use"),
    takes("cpumask", &[], numbers::cpumask, "the same as a mask; the later of the two wins"),
    takes("cpus_allowed_policy", &[], |d, v| set(&mut d.workload.cpus_allowed_policy, word(v, "it is not a policy")), "`shared` or `split`"),
    takes("numa_cpu_nodes", &[], |d, v| set(&mut d.workload.numa_cpu_nodes, words::numbers(v, "write for instance 0 or 0,1").map(Some)), "a list such as `0,1`; not with `cpus_allowed`; `all` is refused"),
    takes("numa_mem_policy", &[], conduct::numa_mem_policy, "`default`, `local`, `prefer:0`, `bind:0-1`, `interleave:0-1`: set_mempolicy(2) of each thread; `all` is refused"),
    takes("iomem", &["mem"], words::iomem, "`malloc`, `mmap`, `mmapshared` and `shm` are one aligned arena in the largest pages there are; `mmaphuge` and `shmhuge` insist on reserved huge ones, without a file of their own"),
    takes("atomic", &[], |d, v| set(&mut d.atomic, switch(v)), "1: writes are made with RWF_ATOMIC, by io_uring or libaio with `direct=1`; refused before the run where kernel, file system or drive cannot, or `bs` is not among their sizes"),
    takes("sqthread_poll", &[], |d, v| set(&mut d.sqthread_poll, switch(v)), "with io_uring and io_uring_cmd"),
    takes("sqthread_poll_cpu", &[], commands::sqthread_poll_cpu, "with io_uring and io_uring_cmd, and `sqthread_poll`: the CPU that the polling thread is bound to"),
    takes("fixedbufs", &[], commands::always_on, "with io_uring and io_uring_cmd, where it is always on; 0 is refused"),
    takes("registerfiles", &[], commands::always_on, "with io_uring and io_uring_cmd, where it is always on; 0 is refused"),
    takes("prioclass", &[], |d, v| set(&mut d.priorities.class, read(v, priorities::class).map(Some)), "1 (real time), 2 (best effort), 3 (idle): ioprio_set(2) of each thread; it stands in the record"),
    takes("prio", &[], |d, v| set(&mut d.priorities.level, read(v, priorities::level)), "0 (first) to 7 in the class; needs `prioclass`"),
    takes("priohint", &[], |d, v| set(&mut d.priorities.hint, read(v, priorities::hint)), "a hint for the drive; needs `prioclass`"),
    takes("cmdprio_percentage", &[], |d, v| set(&mut d.priorities.percentage, by_direction(v, percent)), "how many requests have a priority of their own; with io_uring and libaio"),
    takes("cmdprio_class", &[], |d, v| set(&mut d.priorities.of_class, by_direction(v, priorities::class)), "its class; 1 where left out"),
    takes("cmdprio", &[], |d, v| set(&mut d.priorities.of_level, by_direction(v, priorities::level)), "its level; 0 where left out"),
    takes("cmdprio_hint", &[], |d, v| set(&mut d.priorities.of_hint, by_direction(v, priorities::hint)), "its hint for the drive"),
    takes("cmdprio_bssplit", &[], |d, v| set(&mut d.priorities.of_sizes, by_direction(v, priorities::entries)), "priorities by size: `64k/25`, `64k/25/1/4`, `64k/25/1/4/2`"),
    takes("fdatasync", &[], |d, v| set(&mut d.workload.fdatasync, count(v, 0, u32::MAX)), ""),
    takes("fsync", &[], |d, v| set(&mut d.workload.fsync, count(v, 0, u32::MAX)), "fsync(2) after so many writes; each copy of the job counts its own"),
    takes("sync", &[], |d, v| set(&mut d.workload.sync, word(v, "it is not a kind of synchronous writes")), "`none`, `dsync` (O_DSYNC), `sync` or 1 (O_SYNC)"),
    takes("end_fsync", &[], |d, v| set(&mut d.workload.end_fsync, boolean(v)), ""),
    takes("allow_file_create", &[], |d, v| set(&mut d.allow_file_create, boolean(v)), "0: a file that is missing is an error, and none is made"),
    takes("overwrite", &[], |d, v| set(&mut d.overwrite, boolean(v)), "a file that is made for a writing job is written in full first"),
    takes("invalidate", &[], |d, v| set(&mut d.invalidate, boolean(v)), "1 where left out, as in fio: the file's pages are dropped from the cache first"),
    takes("continue_on_error", &[], tolerance::continue_on_error, "`read`, `write`, `io`, `verify`, `all`: EIO, and blocks that are wrong, end no job; W-FAILED-REQUESTS tells and counts them, and the exit code is fio's, 0. A flush that fails always ends it"),
    takes("ignore_error", &[], tolerance::ignore_error, "`EIO,ENOSPC:EDQUOT`: the errors of reads, of writes and of blocks that are checked with which the job goes on"),
    takes("unlink", &[], |d, v| set(&mut d.unlink, boolean(v)), "the file is removed after the run, if the run made it"),
    takes("stonewall", &["wait_for_previous"], |d, v| set(&mut d.stonewall, switch(v)), "this job and those after it wait for those before it"),
    takes("startdelay", &[], numbers::startdelay, "one time, in seconds where bare; what begins later is measured by itself"),
    takes("wait_for", &[], |d, v| set(&mut d.wait_for, read(v, text).map(Some)), "the name of an earlier job, all of whose copies are waited for"),
    takes("exitall", &[], |d, v| set(&mut d.exitall, switch(v)), "the job's end ends those that `exit_what` says; their figures are of the time before"),
    takes("exit_what", &[], words::exit_what, "`group` where left out, as in fio; `stonewall`, `all`"),
    takes("new_group", &[], |d, v| set(&mut d.new_group, switch(v)), "a new `groupid`"),
    takes("group_reporting", &[], |d, v| set(&mut d.group_reporting, switch(v)), "the jobs of a group are one entry of fio-json; the copies of a job always are"),
    takes("write_bw_log", &[], |d, v| set(&mut d.conduct.bw_log, Ok(Some(conduct::log_name(v)))), "`NAME_bw.N.log` for each thread, of the measured interval; NAME is the job's where left out. Without `log_avg_msec` every request is a line, and 40 bytes of memory until the end"),
    takes("write_lat_log", &[], |d, v| set(&mut d.conduct.lat_log, Ok(Some(conduct::log_name(v)))), "`NAME_lat.N.log` and `NAME_clat.N.log`, which are the same here; no `NAME_slat.N.log`, for submission is not timed apart"),
    takes("write_iops_log", &[], |d, v| set(&mut d.conduct.iops_log, Ok(Some(conduct::log_name(v)))), "`NAME_iops.N.log`"),
    takes("log_avg_msec", &[], |d, v| set(&mut d.conduct.log.window, count(v, 0, u32::MAX).map(|window| none_if_zero(window).map(milliseconds))), "a line for each direction of a window of this length, in place of one for each request; a last window of less than half of it has a latency only"),
    takes("log_max_value", &["log_window_value"], conduct::log_window_value, "the largest latency of a window in place of the mean; `both` is refused"),
    takes("log_prio", &[], |d, v| set(&mut d.conduct.log.priorities, switch(v)), "priorities in the logs as the kernel's numbers; else 1 for the real-time class"),
    takes("log_offset", &[], |d, v| set(&mut d.conduct.log.offsets, switch(v)), "offsets in the logs"),
    takes("percentile_list", &[], words::percentile_list, "of fio-json"),
    takes("clat_percentiles", &[], |d, v| set(&mut d.reporting.clat_percentiles, boolean(v)), "of fio-json"),
    takes("lat_percentiles", &[], |d, v| set(&mut d.reporting.lat_percentiles, boolean(v)), "of fio-json"),
];

/// Options that change nothing here.
#[rustfmt::skip]
const ACCEPTED: &[Key] = &[
    accepts("log_entries", &[], ANY, "how much memory logs begin with"),
    accepts("per_job_logs", &[], ON, "each thread has a log of its own"),
    accepts("log_issue_time", &[], OFF, "logs have the times of completions"),
    accepts("log_compression", &[], OFF, "logs are kept as they are"),
    accepts("log_unix_epoch", &["log_alternate_epoch"], OFF, "the times of logs count from the beginning of the measured interval"),
    accepts("thread", &["threads"], ANY, "every job is a thread"),
    accepts("comm", &[], ANY, "the name of a process"),
    accepts("refill_buffers", &[], ANY, "every block written is unique and random"),
    accepts("scramble_buffers", &[], ANY, "every block written is unique and random"),
    accepts("softrandommap", &[], ANY, "no random map is allocated"),
    accepts("allrandrepeat", &[], ANY, "all random choices come from the one seed"),
    accepts("gtod_reduce", &[], ANY, "the clock is read once a batch, so there is no cost to save"),
    accepts("clocksource", &[], ANY, "the clock is flashwright's; the record names it"),
    accepts("disable_lat", &[], ANY, "latency is measured without a cost to save"),
    accepts("disable_clat", &[], ANY, "latency is measured without a cost to save"),
    accepts("disable_slat", &[], ANY, "submission latency is not measured apart"),
    accepts("disable_bw_measurement", &["disable_bw"], ANY, "bandwidth is sampled without a cost to save"),
    accepts("disk_util", &[], ANY, "the drives below are always reported"),
    accepts("significant_figures", &[], ANY, "of fio's text output"),
    accepts("create_serialize", &[], ANY, "files are laid before anything is measured"),
    accepts("create_fsync", &[], ANY, "files are laid, and durable, before anything is measured"),
    accepts("fallocate", &[], ANY, "files are laid by writing them in full, never by allocating"),
    accepts("offset_align", &[], ANY, "it applies to percentages only"),
    accepts("userspace_reap", &[], ANY, "how completions are collected is the engine's business"),
    accepts("verify_fatal", &[], ANY, "a wrong block always fails the run"),
    accepts("verify_dump", &[], ANY, "the error says what is wrong with a block; its data are not written to files"),
    accepts("verify_async", &[], ANY, "each job verifies its own blocks"),
    accepts("verify_async_cpus", &[], ANY, "each job verifies its own blocks"),
    accepts("verify_header_seed", &[], ANY, "the header has no seed"),
    accepts("experimental_verify", &[], ANY, "what was written is known without a log of it"),
    accepts("error_dump", &[], ANY, "the first error of each kind is told in full"),
    accepts("exitall_on_error", &[], ANY, "a failed job always ends the run"),
    accepts("io_submit_mode", &[], &["inline", "offload"], "a job with a rate submits what is due whatever is in flight, which `offload` is for; without one the queue is full"),
    accepts("rw_sequencer", &[], &["sequential"], "it applies to `rw=…:N` only"),
    accepts("thinktime_blocks_type", &[], &["issue"], "requests are counted as they are issued"),
    accepts("thinktime_iotime", &[], OFF, "rests are counted in requests; say `thinktime_blocks`"),
    accepts("rate_ignore_thinktime", &[], OFF, "a job has a rate or rests, not both"),
    accepts("openfiles", &[], ANY, "all files of a job are open throughout"),
    accepts("stats", &[], ON, "a job without figures is no measurement"),
    accepts("nonvectored", &[], ON, "requests are never vectored"),
    accepts("libaio_vectored", &[], OFF, "requests are never vectored"),
    accepts("bwavgtime", &[], &["500"], "samples in fio-json are of 500 ms, fio's default"),
    accepts("iopsavgtime", &[], &["500"], "samples in fio-json are of 500 ms, fio's default"),
    accepts("kb_base", &[], &["1024"], "sizes are read in fio's default way only"),
    accepts("unified_rw_reporting", &[], &["none", "0"], "reads and writes are reported apart"),
    accepts("lockfile", &[], &["none"], "files are not locked"),
    accepts("write_hint", &[], &["none"], "lifetime hints are not supported"),
    accepts("filetype", &[], &["none"], "what a path is, is looked up"),
    accepts("fadvise_hint", &[], OFF, "no read-ahead hint is given; fio gives one to buffered jobs unless told not to"),
    accepts("write_barrier", &[], OFF, "say `fsync`"),
    accepts("fsync_on_close", &[], OFF, "say `end_fsync=1`, which is inside the measured time"),
    accepts("end_syncfs", &[], OFF, "say `end_fsync=1`"),
    accepts("verify_state_save", &[], OFF, "no verify state is saved; fio saves one unless told not to"),
    accepts("verify_state_load", &[], OFF, "no verify state is saved"),
    accepts("serialize_overlap", &[], OFF, "overlapping requests are not held back"),
    accepts("bs_is_seq_rand", &[], OFF, "a block size is chosen by direction"),
    accepts("file_append", &[], OFF, "a file's size does not change"),
    accepts("create_only", &[], OFF, "files are laid before anything is measured"),
    accepts("pre_read", &[], OFF, "read the file in a section before `stonewall`, with `invalidate=0` after it"),
    accepts("unlink_each_loop", &[], OFF, "a job runs once"),
    accepts("allow_mounted_write", &[], OFF, "a mounted device is never written"),
    accepts("zero_buffers", &[], OFF, "zeros make figures lie; say `buffer_compress_percentage`"),
    accepts("thinkcycles", &[], OFF, "say `rate_iops` for pauses between requests"),
    accepts("ramp_size", &[], OFF, "say `ramp_time`"),
    accepts("nice", &[], OFF, "priorities are the caller's: nice(1)"),
    accepts("trim_percentage", &[], OFF, "trims are not mixed into a verified job"),
    accepts("slat_percentiles", &[], OFF, "submission latency is not measured apart"),
    accepts("block_error_percentiles", &[], OFF, "a failed request fails the run"),
    accepts("nowait", &[], OFF, "a request that may block is allowed to"),
    accepts("uncached", &[], OFF, "say `direct=1`"),
    accepts("force_async", &[], OFF, "the kernel decides when to punt"),
];

const LOGS: &str = "--json has the samples; leave it out";
const HOOKS: &str = "run the command yourself, before or after";
const OTHER_ENGINE: &str = "it belongs to an engine that flashwright does not have; `flashwright bench --help` names those of ioengine";

/// Options that change what runs in a way that flashwright does not have.
#[rustfmt::skip]
const REFUSED: &[Key] = &[
    refuses("exec_prerun", &[], "commands are not run from job files", HOOKS),
    refuses("exec_postrun", &[], "commands are not run from job files", HOOKS),
    refuses("opendir", &[], "a job works on one file", "write filename="),
    refuses("unique_filename", &[], "it belongs to jobs with several directories", LEAVE_OUT),
    refuses("bs_unaligned", &["blocksize_unaligned"], "sizes between the ends of a range are not drawn", "write bssplit"),
    refuses("iodepth_low", &[], "the queue is kept full", LEAVE_OUT),
    refuses("percentage_sequential", &[], "fio itself no longer has it", LEAVE_OUT),
    refuses("sync_file_range", &[], "it makes nothing durable", "write fsync or fdatasync"),
    refuses("max_latency", &[], "a run is not failed for being slow", "read the percentiles"),
    refuses("flow_watermark", &[], "jobs are not coupled", LEAVE_OUT),
    refuses("gtod_cpu", &[], "no CPU is set aside for the clock", LEAVE_OUT),
    refuses("uid", &[], "flashwright does not change its user", "start it as that user"),
    refuses("gid", &[], "flashwright does not change its group", "start it as that group"),
    refuses("cgroup", &[], "flashwright does not change its cgroup", "start it under systemd-run"),
    refuses("cgroup_nodelete", &[], "flashwright does not change its cgroup", LEAVE_OUT),
    refuses("cgroup_weight", &[], "flashwright does not change its cgroup", LEAVE_OUT),
    refuses("ioscheduler", &[], "a device's settings are not changed from a job file", "set queue/scheduler before the run"),
    refuses("lockmem", &[], "memory is not taken away from the page cache", "use a size well above the memory"),
    refuses("hugepage-size", &[], "the size of huge pages is the kernel's", LEAVE_OUT),
    refuses("iomem_align", &["mem_align"], "buffers are aligned as the device asks", LEAVE_OUT),
    refuses("unit_base", &[], "output is in bytes", LEAVE_OUT),
    refuses("profile", &[], "a profile is code of fio's", "write the options themselves"),
    refuses("buffer_compress_chunk", &[], "the size of the compressible part is flashwright's", LEAVE_OUT),
    refuses("verify_policy", &[], "all blocks are verified", LEAVE_OUT),
    refuses("verifysort", &[], "fio itself no longer has it", LEAVE_OUT),
    refuses("verifysort_nr", &[], "fio itself no longer has it", LEAVE_OUT),
    refuses("rwmixcycle", &[], "fio itself no longer has it", LEAVE_OUT),
    refuses("verify_offset", &[], "the header begins the block, or the interval", LEAVE_OUT),
    refuses("verify_pattern_interval", &[], "a pattern begins anew in each block", LEAVE_OUT),
    refuses("trim_verify_zero", &[], "trims are not mixed into a verified job", LEAVE_OUT),
    refuses("trim_backlog", &[], "trims are not mixed into a verified job", LEAVE_OUT),
    refuses("trim_backlog_batch", &[], "trims are not mixed into a verified job", LEAVE_OUT),
    refuses("write_iolog", &[], "requests are not logged", LEAVE_OUT),
    refuses("read_iolog", &[], "logs are not replayed", "write the workload as rw, bs and iodepth"),
    refuses("read_iolog_chunked", &[], "logs are not replayed", LEAVE_OUT),
    refuses("replay_no_stall", &[], "logs are not replayed", LEAVE_OUT),
    refuses("replay_redirect", &[], "logs are not replayed", LEAVE_OUT),
    refuses("replay_scale", &[], "logs are not replayed", LEAVE_OUT),
    refuses("replay_align", &[], "logs are not replayed", LEAVE_OUT),
    refuses("replay_time_scale", &[], "logs are not replayed", LEAVE_OUT),
    refuses("replay_skip", &[], "logs are not replayed", LEAVE_OUT),
    refuses("merge_blktrace_file", &[], "logs are not replayed", LEAVE_OUT),
    refuses("merge_blktrace_scalars", &[], "logs are not replayed", LEAVE_OUT),
    refuses("merge_blktrace_iters", &[], "logs are not replayed", LEAVE_OUT),
    refuses("write_hist_log", &[], "logs of this kind are not written", LOGS),
    refuses("log_hist_msec", &[], "logs of this kind are not written", LOGS),
    refuses("log_hist_coarseness", &[], "logs of this kind are not written", LOGS),
    refuses("log_compression_cpus", &[], "logs of this kind are not written", LOGS),
    refuses("log_store_compressed", &[], "logs of this kind are not written", LOGS),
    refuses("log_alternate_epoch_clock_id", &[], "logs of this kind are not written", LOGS),
    refuses("job_start_clock_id", &[], "`job_start` in fio-json is of the wall clock", LEAVE_OUT),
    refuses("recover_zbd_write_error", &[], "a failed write of a zone is made no second time; with continue_on_error the zone goes on where the drive says", "write continue_on_error=write, or leave it out"),
    refuses("write_zone_remainder", &[], "what is left of a zone and less than a block is not written: the zone is finished", LEAVE_OUT),
    refuses("dp_scheme", &[], "data are placed in turn or at random", "write plid_select=random"),
    refuses("hipri_percentage", &[], "polling is for all requests or for none", "write hipri with ioengine=io_uring"),
    refuses("gpu_dev_id", &[], "buffers are in the machine's memory", LEAVE_OUT),
    refuses("gpu_dev_ids", &[], "buffers are in the machine's memory", LEAVE_OUT),
    refuses("read_mode", &[], "commands to the drive are not built by hand", OTHER_ENGINE),
    refuses("verify_mode", &[], "commands to the drive are not built by hand", OTHER_ENGINE),
    refuses("sg_write_mode", &[], "commands to the drive are not built by hand", OTHER_ENGINE),
    refuses("exit_on_io_done", &[], "a job ends with its runtime", "write runtime, or exitall in a job that does I/O"),
    refuses("hostname", &[], "a job works on this machine", OTHER_ENGINE),
    refuses("port", &[], "a job works on this machine", OTHER_ENGINE),
    refuses("protocol", &[], "a job works on this machine", OTHER_ENGINE),
    refuses("listen", &[], "a job works on this machine", OTHER_ENGINE),
    refuses("nfs_url", &[], "a job works on this machine", OTHER_ENGINE),
    refuses("pool", &[], "a job works on this machine", OTHER_ENGINE),
    refuses("rbdname", &[], "a job works on this machine", OTHER_ENGINE),
    refuses("clientname", &[], "a job works on this machine", OTHER_ENGINE),
    refuses("http_host", &[], "a job works on this machine", OTHER_ENGINE),
    refuses("donorname", &[], "a job does I/O", OTHER_ENGINE),
];

/// All keys, in the order of the documentation.
pub(super) fn all() -> impl Iterator<Item = &'static Key> {
    SUPPORTED.iter().chain(ACCEPTED).chain(REFUSED)
}

/// The key of this name or alias.
pub(super) fn find(name: &str) -> Option<&'static Key> {
    all().find(|key| key.name == name || key.aliases.contains(&name))
}

/// Whether a hint is that of a key of an engine that is not here.
pub(super) fn is_of_other_engine(hint: &str) -> bool {
    hint == OTHER_ENGINE
}

/// What to write instead of a key that does not exist.
pub(super) fn nearest(name: &str) -> String {
    if name == "include" || name.starts_with("include ") {
        return "write: include FILE".to_owned();
    }
    if let Some(bare) = name.strip_prefix("--") {
        return format!("in a job file options are written without dashes: {bare}");
    }
    let spellings = all().flat_map(|key| std::iter::once(&key.name).chain(key.aliases));
    match base::nearest(name, spellings.copied()) {
        Some(known) => format!("did you mean {known}?"),
        None => "flashwright bench --cmdhelp lists all that are known".to_owned(),
    }
}
