//! Journals of layouts are read for ever: the fixture of `formats/`.

#[path = "../../../formats/fixture.rs"]
mod fixture;

use fixture::fixture;
use layout::change::{Change, Owner};

/// Every kind of entry and of change, as docs/formats.md describes them.
fn journal() -> Vec<u8> {
    let drive = |n: u32| format!(r#"{{"name":"nvme{n}n1","serial":"SN{n}","size_bytes":402653184}}"#);
    let drives = format!("[{},{}]", drive(0), drive(1));
    let array = "11111111:22222222:33333333:44444444";
    let entries = [
        r#"{"head":{"format":"flashwright.layout-journal/1","process":4711,"boot":"8a3c0f6e-0000-4000-8000-000000000000"}}"#.to_owned(),
        format!(
            r#"{{"change":{{"number":1,"change":{{"settings":{{"of":{{"drive":{}}},"old":[["queue/scheduler","mq-deadline"]]}}}}}}}}"#,
            drive(0)
        ),
        format!(r#"{{"change":{{"number":2,"change":{{"array":{{"uuid":"{array}","members":{drives}}}}}}}}}"#),
        format!(
            r#"{{"change":{{"number":3,"change":{{"filesystem":{{"kind":"xfs","uuid":"00000000-0000-4000-8000-000000000001","on":[{{"array":{{"uuid":"{array}","members":{drives}}}}}]}}}}}}}}"#
        ),
        r#"{"change":{"number":4,"change":{"mount":{"point":"/var/lib/flashwright/mount"}}}}"#.to_owned(),
        format!(
            r#"{{"change":{{"number":5,"change":{{"volume":{{"group":"flashwright-0","uuids":["abc","def"],"members":{drives}}}}}}}}}"#
        ),
        r#"{"undone":{"number":5}}"#.to_owned(),
        r#"{"stands":{"spec":"md-raid0(filesystem=xfs):/dev/nvme0n1,/dev/nvme1n1","device_spec":"file:/var/lib/flashwright/mount/data?size=1g","by_hand":true}}"#.to_owned(),
    ];
    entries
        .iter()
        .map(|json| format!("{:08x} {json}\n", crc32c::crc32c(json.as_bytes())))
        .collect::<String>()
        .into()
}

#[test]
fn a_journal_of_format_1_is_read() {
    let state = tempfile::tempdir().unwrap();
    std::fs::write(state.path().join("layout.journal"), fixture("layout-journal-1.txt", journal)).unwrap();
    let standing = layout::standing(state.path()).unwrap().expect("something stands");
    assert_eq!(standing.spec.as_deref(), Some("md-raid0(filesystem=xfs):/dev/nvme0n1,/dev/nvme1n1"));
    assert!(standing.by_hand && standing.process == 4711);
    let Change::Settings { of: Owner::Drive(drive), old } = &standing.changes[0] else {
        panic!("{:?}", standing.changes[0]);
    };
    assert_eq!((drive.serial.as_deref(), drive.size_bytes), (Some("SN0"), 384 << 20));
    assert_eq!(old[0].1, "mq-deadline");
    let shown: Vec<String> = standing.changes[1..].iter().map(ToString::to_string).collect();
    assert_eq!(shown.len(), 3, "what is undone is left out: {shown:?}");
    assert!(
        shown[0].starts_with("md array 11111111:22222222:33333333:44444444 on nvme0n1, nvme1n1"),
        "{shown:?}"
    );
    assert!(shown[1].starts_with("xfs 00000000-0000-4000-8000-000000000001 on "), "{shown:?}");
}

/// Its sum says that it was written whole, so what it announces was begun: it is not taken for a torn line, even at the end.
#[test]
fn an_entry_of_a_later_version_ends_the_reading() {
    let state = tempfile::tempdir().unwrap();
    let mut journal = fixture("layout-journal-1.txt", journal);
    let later = r#"{"change":{"number":6,"change":{"cache":{"of":"nvme0n1"}}}}"#;
    journal.extend(format!("{:08x} {later}\n", crc32c::crc32c(later.as_bytes())).into_bytes());
    std::fs::write(state.path().join("layout.journal"), journal).unwrap();
    let error = layout::standing(state.path()).unwrap_err();
    assert!(error.to_string().contains("line 9 is whole and not known: unknown variant `cache`"), "{error}");
    assert!(error.hint().unwrap().contains("later version"));
}
