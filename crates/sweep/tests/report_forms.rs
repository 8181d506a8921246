//! Every form of the report: complete, escaped, the same each time.

mod report_data;

use std::collections::BTreeMap;

use measure::WarningCode;
use report_data::fourteen;
use sweep::analysis::{Failure, SweepData};
use sweep::report::{Report, Style, csv, html, json, json_schema, markdown, svg, table};
use unicode_width::UnicodeWidthStr;

fn report() -> Report {
    Report::new(&fourteen(6)).unwrap()
}

const HOSTILE: &str =
    "</script><img src=x onerror=alert(1)>\"'`|,\r\n=cmd \u{1b}[31mred <b>$x$</b> &amp; \u{2028}";

/// Every name that comes from outside is hostile.
fn hostile() -> SweepData {
    let mut data = fourteen(6);
    data.meta.name = HOSTILE.to_owned();
    data.meta.space = HOSTILE.to_owned();
    for point in &mut data.points {
        point.settings.insert(format!("name {HOSTILE}"), format!("{} {HOSTILE}", point.id % 2));
        point.target = HOSTILE.to_owned();
        point.workload.name = HOSTILE.to_owned();
    }
    data.targets[0].target = HOSTILE.to_owned();
    data.targets[0].facts.model = Some(HOSTILE.to_owned());
    data.targets[0].facts.path = Some(HOSTILE.to_owned());
    data.targets[0].layout.insert(HOSTILE.to_owned(), HOSTILE.to_owned());
    data.host.as_mut().unwrap().cpu_model = HOSTILE.to_owned();
    data.messages = BTreeMap::from([(WarningCode::Virtual, HOSTILE.to_owned())]);
    data.failures.push(Failure {
        point: 3,
        pass: 2,
        at_unix_ns: report_data::START,
        error: HOSTILE.to_owned(),
    });
    data
}

/// The page without its script elements.
fn markup(page: &str) -> String {
    let mut rest = page;
    let mut markup = String::new();
    while let Some(start) = rest.find("<script") {
        markup.push_str(&rest[..start]);
        let end = rest[start..].find("</script>").expect("a script ends") + start;
        rest = &rest[end + "</script>".len()..];
    }
    markup.push_str(rest);
    markup
}

/// Values of an attribute in the page's own markup.
fn attributes(markup: &str, name: &str) -> Vec<String> {
    let start = format!(" {name}=\"");
    markup.split(&start).skip(1).map(|rest| rest.split('"').next().unwrap().to_owned()).collect()
}

#[test]
fn the_page_fetches_nothing() {
    let page = html(&report());
    let markup = markup(&page);
    assert!(markup.contains("default-src 'none'"));
    for name in ["src", "href", "action", "poster", "data"] {
        for value in attributes(&markup, name) {
            assert!(value.starts_with('#'), "{name}={value}");
        }
    }
    assert!(!markup.contains("http:") && !markup.contains("https:") && !markup.contains("url("));
    assert!(!page.contains("<link") && !page.contains("@import"));
    assert!(!page.contains("<script src") && !page.contains("TeXAtom"));
}

#[test]
fn every_figure_has_its_picture_for_two_widths_and_its_table() {
    let page = html(&report());
    assert!(page.len() < 1 << 20, "{} bytes", page.len());
    let markup = markup(&page);
    let figures = markup.matches("<figure ").count();
    for id in [
        "by-test-type-large",
        "by-test-type-small",
        "depth-streaming",
        "depth-random",
        "cost-streaming",
        "cost-random",
        "effects",
        "passes-reads",
        "passes-writes",
        "variation",
        "control",
        "latency-streaming-reads",
        "latency-streaming-writes",
        "latency-random-reads",
        "latency-random-writes",
    ] {
        let start = format!("<figure id=\"{id}\"");
        let figure =
            page.split(&start).nth(1).unwrap_or_else(|| panic!("no {id}")).split("</figure>").next().unwrap();
        for class in ["broad", "slim"] {
            let picture = figure.split(&format!("<div class=\"{class}\">")).nth(1).unwrap();
            let picture = picture.split("</svg>").next().unwrap();
            assert!(
                picture.contains("<circle")
                    || picture.contains("class=\"bar\"")
                    || picture.contains(" d=\"M"),
                "{id}"
            );
            assert!(picture.matches("<text").count() > 4, "{id}: axes");
        }
    }
    assert_eq!(markup.matches("The figures as a table").count(), figures);
    assert_eq!(markup.matches("<figcaption").count(), figures);
    assert_eq!(markup.matches("<svg").count(), 2 * figures);
}

#[test]
fn the_picture_is_one_file_with_the_answer_and_figures() {
    let picture = svg(&report());
    assert!(picture.starts_with("<svg xmlns=") && picture.ends_with("</svg>\n"));
    assert_eq!(picture.matches("<svg").count(), 5, "itself and four figures");
    assert!(picture.contains("streaming reads") && !picture.contains("href") && !picture.contains("<script"));
    let hostile = svg(&Report::new(&hostile()).unwrap());
    assert!(!hostile.contains("<img") && !hostile.contains("<script"), "names are no markup");
}

#[test]
fn the_page_is_well_formed_for_those_who_hear_it() {
    let page = html(&report());
    let markup = markup(&page);
    assert!(page.starts_with("<!doctype html>\n<html lang=\"en\">"));
    let mut ids = attributes(&markup, "id");
    let all = ids.len();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), all, "an id stands twice");
    for target in attributes(&markup, "href") {
        assert!(ids.contains(&target[1..].to_owned()), "{target} leads nowhere");
    }
    for name in ["aria-labelledby", "aria-describedby"] {
        for target in attributes(&markup, name) {
            assert!(ids.contains(&target), "{target} names nothing");
        }
    }
    // Headings go down one level at a time.
    let mut level = 0;
    for rest in markup.split("<h").skip(1) {
        let Some(next) = rest.chars().next().and_then(|c| c.to_digit(10)) else { continue };
        assert!(next <= level + 1, "h{level} is followed by h{next}");
        level = next;
    }
    for tag in [
        "section", "table", "thead", "tbody", "tr", "td", "th", "div", "figure", "details", "dl", "ul", "li",
        "p", "small", "b",
    ] {
        let open = markup.matches(&format!("<{tag}>")).count() + markup.matches(&format!("<{tag} ")).count();
        assert_eq!(open, markup.matches(&format!("</{tag}>")).count(), "<{tag}>");
    }
}

#[test]
fn the_recommendation_stands_before_everything_else() {
    let page = markup(&html(&report()));
    let at = |text: &str| page.find(text).unwrap_or_else(|| panic!("no {text}"));
    let order = [
        "class=\"answer\"",
        "id=\"recommendation\"",
        "id=\"figures\"",
        "id=\"latency\"",
        "id=\"warnings\"",
        "id=\"machine\"",
        "id=\"method\"",
        "id=\"runs\"",
    ];
    assert!(order.windows(2).all(|pair| at(pair[0]) < at(pair[1])));
}

#[test]
fn hostile_names_stay_text_in_the_page() {
    let page = html(&Report::new(&hostile()).unwrap());
    let markup = markup(&page);
    assert!(!markup.contains("<img") && !markup.contains("onerror=alert(1)>\""));
    assert!(markup.contains("&lt;img src=x onerror=alert(1)&gt;"));
    assert!(!markup.contains('\u{1b}'));
    // A script element that a name could end would leave more ends than beginnings.
    assert_eq!(page.matches("<script").count(), page.matches("</script").count());
    for data in page.split("<script type=\"application/json\"").skip(1) {
        let text = data.split_once('>').unwrap().1.split("</script>").next().unwrap();
        assert!(!text.contains('<'));
        serde_json::from_str::<serde_json::Value>(text).unwrap();
    }
}

#[test]
fn hostile_names_cannot_become_markup_of_a_picture() {
    let page = html(&Report::new(&hostile()).unwrap());
    let pictures: Vec<&str> =
        page.split("<svg").skip(1).map(|rest| rest.split("</svg>").next().unwrap()).collect();
    assert!(pictures.len() > 4);
    for picture in pictures {
        for tag in picture.split('<').skip(1) {
            let name = tag.trim_start_matches('/').split([' ', '>']).next().unwrap();
            assert!(["g", "path", "text", "rect", "circle", "title"].contains(&name), "<{tag}");
        }
    }
}

/// Markdown without its code spans, whose contents are no markup.
fn without_code(text: &str) -> String {
    let mut outside = String::new();
    for line in text.lines() {
        let mut rest = line.replace("\\`", "");
        while let Some(start) = rest.find('`') {
            let fence: String = rest[start..].chars().take_while(|c| *c == '`').collect();
            let inner = start + fence.len();
            let end = rest[inner..].find(&format!(" {fence}")).expect("code ends on its line") + inner;
            rest.replace_range(start..end + 1 + fence.len(), "");
        }
        outside.push_str(&rest);
        outside.push('\n');
    }
    outside
}

#[test]
fn hostile_names_break_no_markdown_table_and_no_terminal() {
    let report = Report::new(&hostile()).unwrap();
    let text = markdown(&report);
    let outside = without_code(&text);
    assert!(!outside.contains('<') && !text.contains('\u{1b}'), "{outside}");
    let mut columns = None;
    for line in text.lines() {
        let cells = line.replace("\\|", "").matches('|').count();
        if !line.starts_with('|') {
            columns = None;
        } else {
            assert_eq!(*columns.get_or_insert(cells), cells, "{line}");
        }
    }
    for line in table(&report, 100) {
        assert!(line.spans.iter().all(|span| !span.text.chars().any(char::is_control)));
    }
}

#[test]
fn the_json_fits_its_schema_and_reads_back() {
    for data in [fourteen(6), hostile(), SweepData::default()] {
        let report = Report::new(&data).unwrap();
        let text = json(&report);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let schema = json_schema();
        let validator = jsonschema::validator_for(&schema).unwrap();
        let errors: Vec<String> = validator.iter_errors(&value).map(|e| e.to_string()).collect();
        assert!(errors.is_empty(), "{errors:?}");
        let back: Report = serde_json::from_str(&text).unwrap();
        assert_eq!(json(&back), text);
        assert_eq!(value["schema"], "flashwright.report/2");
    }
    // The schema is not so wide that everything fits.
    let validator = jsonschema::validator_for(&json_schema()).unwrap();
    let mut wrong: serde_json::Value = serde_json::from_str(&json(&report())).unwrap();
    wrong["runs"][0]["fate"] = "lucky".into();
    assert!(!validator.is_valid(&wrong));
}

/// Rows of comma-separated values by RFC 4180.
fn parse_csv(text: &str) -> Vec<Vec<String>> {
    let (mut rows, mut row, mut field, mut quoted) = (Vec::new(), Vec::new(), String::new(), false);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, quoted) {
            ('"', true) if chars.peek() == Some(&'"') => field.extend(chars.next()),
            ('"', _) => quoted = !quoted,
            (',', false) => row.push(std::mem::take(&mut field)),
            ('\r', false) if chars.peek() == Some(&'\n') => {
                chars.next();
                row.push(std::mem::take(&mut field));
                rows.push(std::mem::take(&mut row));
            }
            (c, _) => field.push(c),
        }
    }
    rows
}

#[test]
fn comma_separated_values_read_back_to_the_last_digit() {
    for data in [fourteen(6), hostile()] {
        let report = Report::new(&data).unwrap();
        let rows = parse_csv(&csv(&report));
        let (header, rows) = rows.split_first().unwrap();
        assert_eq!(rows.len(), report.runs.len());
        let column = |name: &str| header.iter().position(|h| h == name).unwrap_or_else(|| panic!("{name}"));
        for (row, judged) in rows.iter().zip(&report.runs) {
            assert_eq!(row.len(), header.len());
            let run = &judged.run;
            assert_eq!(
                row[column("bandwidth_bytes_per_s")].parse::<f64>().unwrap(),
                run.bandwidth_bytes_per_s
            );
            assert_eq!(row[column("iops")].parse::<f64>().unwrap(), run.iops);
            assert_eq!(row[column("bytes")].parse::<u64>().unwrap(), run.bytes);
            assert_eq!(row[column("latency_ns_p99_9")].parse::<u64>().unwrap(), run.latency_ns_p99_9);
            assert_eq!(row[column("verdict")], judged.fate.label());
            let point = report.point(run.point).unwrap();
            assert_eq!(row[column("target")], point.target);
            for (name, value) in &point.settings {
                assert_eq!(&row[column(&format!("setting.{name}"))], value);
            }
        }
    }
}

#[test]
fn the_same_data_give_the_same_bytes() {
    let (a, b) = (report(), report());
    assert_eq!(html(&a), html(&b));
    assert_eq!(markdown(&a), markdown(&b));
}

#[test]
fn the_terminal_table_keeps_to_the_width_and_says_the_essential_at_any() {
    let mut data = fourteen(6);
    data.meta.name = "宽度 a very long name without any sense ".repeat(4);
    data.runs[3].warnings.push(WarningCode::Steal);
    let report = Report::new(&data).unwrap();
    for width in [40, 60, 80, 100, 132, 200] {
        let lines = table(&report, width);
        for line in &lines {
            assert!(line.plain().width() <= width, "{} > {width}: {}", line.plain().width(), line.plain());
        }
        let text: String = lines.iter().map(|l| l.plain() + "\n").collect();
        let flat = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(
            flat.contains("use depth 128") && flat.contains("W-STEAL") && text.contains("Bandwidth"),
            "{text}"
        );
        assert!(lines.iter().flat_map(|l| &l.spans).any(|span| span.style == Style::Good));
    }
}

#[test]
fn what_a_warning_means_stands_once_however_many_recommendations_carry_it() {
    let mut data = fourteen(6);
    data.runs.iter_mut().for_each(|run| run.warnings.push(WarningCode::Steal));
    let report = Report::new(&data).unwrap();
    let flat = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let terminal = flat(table(&report, 120).iter().map(|line| line.plain() + "\n").collect());
    let explanation = WarningCode::Steal.explain();
    for text in [terminal, flat(markdown(&report))] {
        assert_eq!(text.matches(explanation.meaning).count(), 1, "{text}");
        assert_eq!(text.matches("Warnings on its runs: W-STEAL.").count(), 4, "{text}");
    }
}

/// `INSTA_UPDATE=always cargo test -p flashwright-sweep --test report_forms` takes what is said now.
#[test]
fn the_report_of_a_small_sweep_is_as_it_was_agreed() {
    let report = Report::new(&fourteen(6)).unwrap();
    let lines: Vec<String> = table(&report, 100).iter().map(|line| line.plain()).collect();
    insta::assert_snapshot!("terminal", lines.join("\n"));
    insta::assert_snapshot!("markdown", markdown(&report));
}

#[test]
fn an_empty_sweep_has_a_report_in_every_form() {
    let report = Report::new(&SweepData::default()).unwrap();
    let page = html(&report);
    assert!(page.contains("No run has finished") && !page.contains("<svg"));
    assert!(markdown(&report).contains("No run has finished"));
    assert_eq!(parse_csv(&csv(&report)).len(), 1);
    assert!(table(&report, 80).iter().any(|l| l.plain().contains("No run has finished")));
}

#[test]
fn an_incomplete_sweep_names_the_missing_runs_on_the_page() {
    let mut data = fourteen(6);
    data.runs.retain(|r| (r.point, r.pass) != (8, 3));
    let page = markup(&html(&Report::new(&data).unwrap()));
    assert!(page.contains("<strong>Incomplete:</strong> 1 of 84"));
    assert!(page.contains("4 KiB random read, depth 32</td><td>3</td>"));
}

#[test]
fn many_runs_are_paged_and_grow_the_page_by_their_own_size_only() {
    let sizes: Vec<usize> = [100u32, 300]
        .map(|passes| {
            let page = html(&Report::new(&fourteen(passes)).unwrap());
            let rows = page.split("<tbody>").last().unwrap().split("</tbody>").next().unwrap();
            assert_eq!(rows.matches("<tr").count(), 100, "only the first page is laid out");
            page.len()
        })
        .to_vec();
    let per_run = (sizes[1] - sizes[0]) as f64 / (200.0 * 14.0);
    assert!(per_run < 350.0, "{per_run} bytes a run");
}
