//! Wrong requests: each is answered in one line and a hint, with exit code 2, and leaves nothing behind.

mod common;

use common::{command, finish, json, names, place, refused, run, works};

#[test]
fn wrong_flags_are_named_with_their_values() {
    let folder = place();
    let cases: [(&[&str], &str); 18] = [
        (
            &["bench", "--bs=4x"],
            "\
error: --bs=4x: 'x' in '4x' is not a unit (expected none, b, k, m, g, t, p)
hint: a size is bytes, or for instance 4k, 1m or 1.5g
",
        ),
        (
            &["bench", "--runtime=5y", "--target", "x"],
            "\
error: --runtime=5y: 'y' in '5y' is not a unit (expected us, ms, s, m, h, d)
hint: a time is seconds, or for instance 500ms, 5s or 2m
",
        ),
        (
            &["bench", "--iodeph=3"],
            "\
error: --iodeph is no flag of flashwright bench
hint: did you mean --iodepth?
",
        ),
        (
            &["bench", "--zzzz"],
            "\
error: --zzzz is no flag of flashwright bench
hint: `flashwright bench --help` lists them
",
        ),
        (
            &["bench", "--group_reporting"],
            "\
error: --group_reporting is no flag of flashwright bench
hint: fio's group_reporting is understood in a job file: flashwright bench JOBFILE.fio
",
        ),
        (
            &["stage", "mv", "--size=1g", "a", "b"],
            "\
error: --size is no flag of flashwright stage mv
hint: `flashwright stage mv --help` lists them
",
        ),
        (
            &["bench", "--rw=ranread"],
            "\
error: --rw=ranread: 'ranread' is not known
hint: did you mean randread? There are read, write, randread, randwrite, rw, randrw, trim, randtrim, trimwrite, randtrimwrite
",
        ),
        (
            &["bench", "--direct=2"],
            "\
error: --direct=2: '2' is neither 0 nor 1
hint: 1 switches it on, 0 off
",
        ),
        (
            &["bench", "--numjobs=many"],
            "\
error: --numjobs=many: 'many' is not a whole number from 0 to 4294967295
hint: a plain number, without a unit
",
        ),
        (
            &["bench", "--iodepth=0", "--target", "x"],
            "\
error: --iodepth=0: must be 1 to 32768
hint: try --iodepth=32
",
        ),
        (
            &["bench", "--rw=read"],
            "\
error: flashwright bench needs --target
hint: name a file, a block device, file:PATH?size=4g or mem:4g: --target SPEC
",
        ),
        (
            &["bench", "--json", "--output-format=fio-json"],
            "\
error: --json and --output-format exclude each other
hint: give one of them
",
        ),
        (
            &["bench", "--bs"],
            "\
error: --bs needs a value
hint: `flashwright bench --help` tells what there is
",
        ),
        (
            &["swep"],
            "\
error: 'swep' is no verb of flashwright
hint: did you mean sweep?
",
        ),
        (
            &["serve"],
            "\
error: 'serve' is no verb of flashwright
hint: did you mean memory serve or stage serve?
",
        ),
        (
            &["sweep", "paln"],
            "\
error: paln: cannot read the space: No such file or directory (os error 2)
hint: did you mean `flashwright sweep plan`?
",
        ),
        (
            &["report", "--format=pdf", "x"],
            "\
error: --format=pdf: is not known
hint: there are html, md, csv, json, svg
",
        ),
        (
            &["sweep", "--protocol=dash", "--passes=1"],
            "\
error: the command line: --passes=1: the first pass is set aside, and none would be left
hint: give 2 or more
",
        ),
    ];
    for (arguments, words) in cases {
        refused(folder.path(), arguments, 2, words);
    }
    assert!(names(folder.path()).is_empty());
}

#[test]
fn targets_that_are_not_there_are_named() {
    let folder = place();
    let cases: [(&[&str], &str); 6] = [
        (&["bench", "--rw=randread", "--target", "nowhere"], "\
error: nowhere: no such file or device
hint: check the name; to make it: flashwright bench --rw=write --bs=1m --size=1g --time_based=0 --target nowhere
"),
        (&["bench", "--rw=write", "--target", "nowhere"], "\
error: nowhere: no such file or device
hint: check the name; or give --size=1g to have it made with that size
"),
        (&["bench", "--rw=write", "--size=1m", "--target", "/dev/nvme99n9"], "\
error: /dev/nvme99n9: no such file or device
hint: check the name; `flashwright probe` shows the drives of this machine
"),
        (&["bench", "--target", "iscsi://host/export"], "\
error: 'iscsi://host/export': 'iscsi' is not a kind of device known here
hint: understood are PATH, file:PATH?size=4g, mem:4g, nbd://HOST/EXPORT, stripe(chunk=64k):SPEC,SPEC, separate:SPEC,SPEC and volume:SPEC,SPEC; for a file of that name type ./iscsi://host/export
"),
        (&["bench", "--target", "."], "\
error: .: is a directory, not a file or block device
hint: name a file in it: file:./scratch?size=1g
"),
        (&["probe", "/no/such/place"], "\
error: /no/such/place: cannot be surveyed: No such file or directory (os error 2)
hint: name an existing file, directory or block device
"),
    ];
    for (arguments, words) in cases {
        refused(folder.path(), arguments, 2, words);
    }
    for verb in [
        &["report", "gone"][..],
        &["sweep", "status", "gone"],
        &["sweep", "resume", "gone"],
        &["sweep", "diff", "gone", "gone"],
    ] {
        refused(
            folder.path(),
            verb,
            2,
            "\
error: gone: there is no such results file
hint: name the directory that a sweep wrote (its --output), or its results.db
",
        );
    }
    refused(
        folder.path(),
        &["sweep", "--target", "/no/such/file", "--output", "made/here"],
        2,
        "\
error: /no/such: there is no such directory
hint: make it first, or name a file in another one
",
    );
    assert!(names(folder.path()).is_empty());
}

#[test]
fn files_with_mistakes_are_named_with_their_lines() {
    let folder = place();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("writes");
    write("job.fio", "[global]\nbs=4k\n\n[one]\nfilename=x\niodepht=8\n");
    write("work.toml", "target = \"mem:1m\"\nrw = \"randread\"\niodeph = 4\n");
    write("bad.toml", "rw = \"randread\"\niodepth = 4\niodepth_batch = 8\ntarget = \"mem:1m\"\n");
    write("space.toml", "[space]\niodeph = [1, 2]\n");
    refused(
        folder.path(),
        &["bench", "job.fio"],
        2,
        "\
error: job.fio:6: 'iodepht' is not an option
hint: did you mean iodepth?
",
    );
    let came = run(folder.path(), &["bench", "work.toml"]);
    assert_eq!(came.code, 2);
    assert!(
        came.err.starts_with("error: work.toml:3: unknown field `iodeph`; did you mean `iodepth`?\n"),
        "{}",
        came.err
    );
    assert_eq!(came.err.lines().count(), 2, "{}", came.err);
    refused(
        folder.path(),
        &["bench", "bad.toml"],
        2,
        "\
error: bad.toml: iodepth_batch=8: must not exceed iodepth
hint: leave it out, or raise --iodepth
",
    );
    // A mistake in the file is not one of the flags beside it.
    write("nan.toml", "target = \"mem:1m\"\nrandom_distribution = { zipf = nan }\n");
    let came = run(folder.path(), &["bench", "nan.toml", "--iodepth=2"]);
    assert_eq!(came.code, 2);
    assert!(came.err.starts_with("error: nan.toml:2: NaN is not a finite number\n"), "{}", came.err);
    write("one.toml", "target = \"mem:1m\"\nrandom_distribution = { zipf = 1.0 }\n");
    let came = run(folder.path(), &["bench", "one.toml", "--iodepth=2"]);
    assert!(came.err.starts_with("error: one.toml: random_distribution=zipf:1: "), "{}", came.err);
    let came = run(folder.path(), &["sweep", "plan", "space.toml"]);
    assert_eq!(came.code, 2);
    assert!(came.err.starts_with("error: space.toml:2: iodeph"), "{}", came.err);
    write("wrong.fio", "[a]\nfilename=x\nbs=1.5k\nexec_prerun=y\n");
    refused(
        folder.path(),
        &["bench", "wrong.fio", "--iodepth=2"],
        2,
        "\
error: wrong.fio: 2 settings do not run here
  wrong.fio:3: bs=1.5k: fio drops the fraction and its unit: it reads '1.5k' as 1 (write a whole number of a smaller unit)
  wrong.fio:4: exec_prerun=y: commands are not run from job files (run the command yourself, before or after)
hint: flashwright bench --cmdhelp says what becomes of each key
",
    );
    refused(
        folder.path(),
        &["bench", "none.fio"],
        2,
        "\
error: cannot read job file none.fio: No such file or directory (os error 2)
hint: check the path and its permissions
",
    );
}

#[test]
fn an_output_that_cannot_be_written_is_refused_before_the_run() {
    let folder = place();
    refused(
        folder.path(),
        &["bench", "--target", "mem:1m", "--output", "no/such/out.txt"],
        2,
        "\
error: --output=no/such/out.txt: there is no directory no/such
hint: make it first, or name another file
",
    );
    refused(
        folder.path(),
        &["bench", "--target", "mem:1m", "--output", "."],
        2,
        "\
error: --output=.: is a directory
hint: name a file in it
",
    );
}

#[test]
fn help_and_version_are_answers_and_no_verb_is_a_mistake() {
    let folder = place();
    for verb in [
        &["--help"][..],
        &["--version"],
        &["bench", "--help"],
        &["sweep", "plan", "--help"],
        &["probe", "-h"],
    ] {
        let came = works(folder.path(), verb);
        assert!(!came.out.is_empty() && came.err.is_empty() && !came.out.contains('\u{1b}'), "{came:#?}");
    }
    let came = run(folder.path(), &[]);
    assert_eq!((came.code, came.out.as_str()), (2, ""));
    assert!(came.err.contains("error: no verb was given"), "{}", came.err);
}

#[test]
fn every_schema_is_a_schema() {
    let folder = place();
    let all = json(folder.path(), &["schema"]);
    for name in ["run", "probe", "ladder", "bench", "report", "plan", "status", "diff"] {
        let one = json(folder.path(), &["schema", name]);
        assert_eq!(all[name], one);
        jsonschema::validator_for(&one).expect("a schema");
        assert_eq!(one["type"], "object", "{name}");
    }
}

#[test]
fn what_cannot_be_served_or_laid_out_is_refused_before_anything_is_taken() {
    let folder = place();
    std::fs::write(folder.path().join("taken"), "text").expect("writes");
    let serve = |flags: &[&'static str]| [&["memory", "serve", "--size", "1m"], flags].concat();
    let tcp = ["--listen", "127.0.0.1:0", "--insecure"];
    for (arguments, words) in [
        (
            serve(&["--tls-psk", "nosuch"]),
            "error: --tls-psk=nosuch: read nosuch: No such file or directory (os error 2)\n\
             hint: docs/nbd.md says how keys (psktool -u NAME -p FILE) and certificates are made\n",
        ),
        (
            serve(&[&tcp[..], &["--announce", "/nosuch/x"]].concat()),
            "error: --announce=/nosuch/x: there is no directory /nosuch\n\
             hint: make the directory, or name another path\n",
        ),
        (
            serve(&["--announce", "place"]),
            "error: --announce=place: a Unix socket is found on this host only\nhint: add --listen ADDR:PORT\n",
        ),
        (
            serve(&["--socket", "nosuch/x"]),
            "error: --socket=nosuch/x: there is no directory nosuch\n\
             hint: make the directory, or name another path\n",
        ),
        (
            serve(&["--socket", "taken"]),
            "error: --socket=taken: there is a file of that name that is not a socket\nhint: name another path\n",
        ),
        (
            vec!["layout", "survey", "nosuch"],
            "error: nosuch: cannot be surveyed: No such file or directory (os error 2)\n\
             hint: name drives, such as /dev/nvme0n1; lsblk lists those of this host\n",
        ),
        (
            vec!["layout", "survey", "taken"],
            "error: taken: cannot be surveyed: it is not a block device\n\
             hint: name drives, such as /dev/nvme0n1; lsblk lists those of this host\n",
        ),
    ] {
        refused(folder.path(), &arguments, 2, words);
    }
    let mut up = command(folder.path(), &["layout", "up", "stripe:/dev/nosuch1,/dev/nosuch2"]);
    let came = finish(up.env("FLASHWRIGHT_STATE", folder.path().join("state")));
    let words = "error: /dev/nosuch1: is not a block device of this host\n\
                 hint: lsblk lists the block devices of this host\n";
    assert_eq!((came.code, came.err.as_str()), (2, words));
    // The list of a command's verbs is hint enough.
    let came = run(folder.path(), &["memory"]);
    assert!(came.code == 2 && came.err.ends_with("error: no verb was given\n"), "{}", came.err);
    assert!(run(folder.path(), &[]).err.ends_with("or `flashwright probe`\n"));
}

/// A report in the place of what it was to be of would cost the user that.
#[test]
fn what_a_command_reads_is_not_replaced_by_its_output() {
    let folder = place();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("data"), vec![7_u8; 1 << 20]).unwrap();
    std::fs::write(path("workload.toml"), "rw = \"randread\"\n").unwrap();
    let bench = ["bench", "--runtime=100ms", "--target", "data", "--force", "--output"];
    let words =
        |name: &str| format!("error: --output={name}: is what this command reads\nhint: name another file\n");
    refused(folder.path(), &[&bench[..], &["./data"]].concat(), 2, &words("./data"));
    refused(
        folder.path(),
        &[&bench[..], &["workload.toml", "workload.toml"]].concat(),
        2,
        &words("workload.toml"),
    );
    std::fs::write(path("results.db"), b"SQLite format 3\0").unwrap();
    refused(
        folder.path(),
        &[&bench[..], &["results.db"]].concat(),
        3,
        "error: --output=results.db: holds data that is not text, and would be replaced\nhint: name another file, or remove this one\n",
    );
    assert_eq!(std::fs::read(path("data")).unwrap(), vec![7_u8; 1 << 20]);
    assert_eq!(std::fs::read(path("workload.toml")).unwrap(), b"rw = \"randread\"\n");
    assert_eq!(std::fs::read(path("results.db")).unwrap(), b"SQLite format 3\0");
}
