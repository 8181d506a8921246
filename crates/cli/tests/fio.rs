//! fio's job files against fio itself, and engines that move no data.

mod common;

use std::fs;
use std::path::Path;

use common::{names, place, run, skipped, tool, works};
use serde_json::Value;

fn job_file(folder: &Path, text: &str) {
    fs::write(folder.join("j.fio"), text).expect("writes");
}

/// What `bench j.fio --json` prints beside its notes.
fn document(folder: &Path) -> Value {
    let came = run(folder, &["bench", "j.fio", "--json"]);
    assert_eq!(came.code, 0, "{}", came.err);
    serde_json::from_str(&came.out).expect("a document")
}

/// Fails unless the job file is refused with these words.
fn is_refused(folder: &Path, code: i32, words: &str) {
    let came = run(folder, &["bench", "j.fio"]);
    let error = came.err.lines().find(|line| line.starts_with("error: ")).unwrap_or_default();
    assert!(
        came.code == code && error.contains(words) && came.err.contains("hint: "),
        "{}: {}",
        came.code,
        came.err
    );
}

#[test]
fn what_fio_and_flashwright_say_of_the_same_job_files_is_the_same() {
    for needed in ["fio", "python3"] {
        if tool(needed, &["--version"]).is_none() {
            return skipped(&format!("{needed} is not installed"));
        }
    }
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).parent().and_then(Path::parent).expect("a tree");
    let script = tree.join("tools/fio-compare").display().to_string();
    let came = tool(
        &script,
        &["jobs", "--flashwright", env!("CARGO_BIN_EXE_flashwright"), "--place", env!("CARGO_TARGET_TMPDIR")],
    );
    let table = came.expect("python3 is there, and finds no difference");
    let page = fs::read_to_string(tree.join("docs/fio.md")).expect("reads");
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| `")).collect();
    assert!(rows.len() >= 8, "{table}");
    if page.contains(tool("fio", &["--version"]).expect("is there").trim()) {
        for row in rows {
            assert!(page.contains(row), "docs/fio.md lacks what `make fio-compare` prints:\n{row}");
        }
    }
}

#[test]
fn requests_that_move_nothing_are_counted_and_nothing_is_said_of_a_drive() {
    let folder = place();
    job_file(folder.path(), "[a]\nioengine=null\nsize=4m\nrw=randrw\niodepth=8\niodepth_batch=4\n");
    let document = document(folder.path());
    let record = &document["record"];
    assert_eq!(
        (&record["engine"]["used"], &record["target"]["kind"]),
        (&"null".into(), &"operations".into())
    );
    assert_eq!(record["total"]["ios"], 1024);
    assert!(record["verdict"].is_null() && record["drives"].as_array().is_none_or(Vec::is_empty), "{record}");
    assert_eq!(names(folder.path()), ["j.fio"], "no file was made");
    let text = works(folder.path(), &["bench", "j.fio"]);
    assert!(text.err.contains("ioengine=null moves no data"), "{}", text.err);
    for option in ["fsync=1", "sync=dsync", "end_fsync=1"] {
        job_file(folder.path(), &format!("[a]\nioengine=null\nsize=1m\nrw=write\n{option}\n"));
        is_refused(folder.path(), 2, "nothing that could be made durable");
    }
}

#[test]
fn files_that_somebody_else_has_put_there_are_neither_made_nor_removed() {
    let folder = place();
    let mine = folder.path().join("a.0.3");
    fs::write(&mine, "mine").expect("writes");
    for engine in ["filecreate", "filedelete", "dircreate", "dirdelete"] {
        job_file(folder.path(), &format!("[a]\nioengine={engine}\nnrfiles=8\nfilesize=4k\n"));
        is_refused(folder.path(), 3, "is there already");
        assert_eq!(names(folder.path()), ["a.0.3", "j.fio"], "{engine}");
    }
    assert_eq!(fs::read_to_string(&mine).expect("is there"), "mine");
    job_file(folder.path(), "[a]\nioengine=filestat\nnrfiles=8\nfilesize=4k\nallow_file_create=0\n");
    is_refused(folder.path(), 2, "is missing");
}

#[test]
fn directories_are_made_looked_up_and_removed() {
    let folder = place();
    let text = "[global]\nnrfiles=5\nfilesize=4k\nnumjobs=2\n[make]\nioengine=dircreate\ncreate_on_open=1\n\
                [look]\nstonewall\nioengine=dirstat\n[remove]\nstonewall\nioengine=dirdelete\n";
    job_file(folder.path(), text);
    let dry = works(folder.path(), &["bench", "j.fio", "--dry-run"]).out;
    assert!(dry.contains("make.0.0 … make.0.4 (5 names), which must not be there"), "{dry}");
    assert_eq!(names(folder.path()), ["j.fio"]);
    let document = document(folder.path());
    let jobs = document["jobs"].as_array().expect("jobs");
    assert_eq!(jobs.len(), 6);
    for job in jobs {
        assert_eq!(job["record"]["total"]["ios"], 5, "{job}");
    }
    let left = names(folder.path());
    assert_eq!(left.iter().filter(|name| name.starts_with("make.")).count(), 10, "{left:?}");
    assert_eq!(left.iter().filter(|name| name.starts_with("look.")).count(), 10, "{left:?}");
    assert!(!left.iter().any(|name| name.starts_with("remove.")), "{left:?}");
}

#[test]
fn a_file_that_is_there_keeps_its_length_unless_it_is_given_up() {
    let folder = place();
    let data = folder.path().join("data");
    fs::write(&data, "somebody's work\n".repeat(4096)).expect("writes");
    job_file(folder.path(), "[a]\nioengine=ftruncate\nfilename=data\nsize=64k\nbs=4k\nrw=write\n");
    is_refused(folder.path(), 3, "data");
    assert_eq!(fs::metadata(&data).expect("is there").len(), 65536);
    works(folder.path(), &["bench", "j.fio", "--destroy", "data"]);
    assert_eq!(fs::metadata(&data).expect("is there").len(), 61440, "the offset of the last request");
    for (engine, rw) in
        [("falloc", "read"), ("falloc", "randrw"), ("ftruncate", "read"), ("ftruncate", "trim")]
    {
        job_file(folder.path(), &format!("[a]\nioengine={engine}\nfilename=data\nbs=4k\nrw={rw}\n"));
        is_refused(folder.path(), 2, "rw");
    }
}

#[test]
fn a_job_may_compute_beside_one_that_does_io() {
    let folder = place();
    job_file(
        folder.path(),
        "[burn]\nioengine=cpuio\ncpuload=30\ncpuchunks=5000\nruntime=1\n[io]\nioengine=null\nsize=1g\nrate_iops=200\nnumber_ios=40\n",
    );
    let document = document(folder.path());
    let jobs = document["jobs"].as_array().expect("jobs");
    let total = |place: usize| jobs[place]["record"]["total"]["ios"].clone();
    assert_eq!((total(0), total(1)), (0.into(), 40.into()));
    assert!(jobs[0]["record"]["jobs"][0]["user_ns"].as_u64().is_some_and(|ns| ns > 0), "{}", jobs[0]);
    job_file(folder.path(), "[burn]\nioengine=cpuio\ncpuload=30\n");
    is_refused(folder.path(), 2, "no end without a runtime");
}
