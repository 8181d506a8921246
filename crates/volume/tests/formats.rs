//! Labels of every format are read for ever: the fixtures of `formats/`.

#[path = "../../../formats/fixture.rs"]
mod fixture;

use fixture::fixture;
use volume::{Epoch, Found, Label, LabelPosition, State, SumsLayout, Uuid};

fn label(sums: Option<SumsLayout>) -> Label {
    let uuid = |last: u8| Uuid([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, last]);
    Label {
        state: State::Open,
        generation: 7,
        epoch: Epoch { number: 3, id: uuid(3) },
        next: Epoch { number: 4, id: uuid(4) },
        volume: uuid(1),
        member: uuid(2),
        position: 1,
        width: 4,
        chunk: 64 << 10,
        data_start: 1 << 20,
        data_bytes: 63 << 20,
        member_bytes: 65 << 20,
        created: 1_750_000_000,
        name: "scratch".to_owned(),
        sums,
    }
}

#[test]
fn labels_of_formats_2_and_3_are_read() {
    for (name, label) in [("label-2.bin", label(None)), ("label-3.bin", label(Some(SumsLayout::default())))] {
        let block = fixture(name, || label.encode(LabelPosition::Head));
        assert_eq!(block.len(), 4096);
        assert_eq!(Label::decode(&block, LabelPosition::Head), Found::Whole(label.clone()), "{name}");
        // What is written today is the same, byte for byte.
        assert_eq!(label.encode(LabelPosition::Head), block, "{name}");
    }
}
