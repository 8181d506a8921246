//! The report as Markdown (GitHub's dialect, for its tables).

use crate::search::SearchSummary;

use super::sheet::{Align, Sheet};
use super::{Page, Report, facts, limits, papers, sheets, sides};

/// A page without its charts: the answer, tables, notes and formulas.
#[must_use]
pub fn page_markdown(page: &Page) -> String {
    let mut text = head(&page.title, &page.answer);
    for table in &page.tables {
        text += &format!("\n## {}\n\n", escape(&table.caption));
        rows(&mut text, &table.sheet());
    }
    if !page.notes.is_empty() {
        text += "\n## Notes\n\n";
    }
    page.notes.iter().for_each(|note| text += &format!("- {}\n", escape(note)));
    text += "\n## Formulas\n\n";
    for [gives, formula, source] in page.formulas.iter().map(|of| of.map(escape)) {
        text += &format!("- {gives}: {formula} ({source})\n");
    }
    text
}

/// Title, mark and answer: what every form in Markdown begins with.
fn head(title: &str, answer: &str) -> String {
    format!("# {}\n\n[//]: # (flashwright report)\n\n**{}**\n", escape(title), escape(answer))
}

/// The report without figures: recommendation, tables, warnings, machine and method.
#[must_use]
pub fn markdown(report: &Report) -> String {
    let mut text = head(&report.title(), &report.headline);
    section(&mut text, "A against B", &sides::sides(report));
    section(&mut text, "Recommendation", &sheets::recommendations(report));
    for r in &report.recommendations {
        text += &format!("\n- {}", escape(&r.sentence));
        if let Some(flags) = &r.flags {
            text += &format!(" {}", code(flags));
        }
        for caveat in &r.caveats {
            text += &format!("\n  - {}", escape(caveat));
        }
    }
    for sentence in report.search.iter().flat_map(SearchSummary::sentences) {
        text += &format!("\n- {}", escape(&sentence));
    }
    text.push('\n');
    if let Some(compromise) = &report.compromise {
        section(&mut text, "One layout for all", &sheets::settings(compromise));
        text += &format!("\n{}\n", escape(&compromise.sentence));
        section(&mut text, "What each kind of work gets from it", &sheets::shares(compromise));
    }
    for ladder in report.ladders.iter().filter(|ladder| !ladder.rungs.is_empty()) {
        let title = format!("From the baseline to the best: {}", ladder.work.label());
        section(&mut text, &title, &sheets::ladder(ladder).without_empty_columns());
        text += &format!("\n{}\n", escape(&ladder.sentence));
    }
    section(&mut text, "Missing runs", &sheets::missing(report));
    section(&mut text, "Where more depth stops paying", &sheets::knees(report));
    section(&mut text, "What limits it", &limits::found(report));
    section(&mut text, "Limits by test", &limits::matrix(report));
    section(&mut text, "Configurations", &sheets::points(report).without_empty_columns());
    // Where the papers have a figure helps only whoever compares with the papers.
    let named = |title: &str, papers: Option<&str>| match papers.filter(|_| report.is_papers()) {
        Some(papers) => format!("{title} ({papers})"),
        None => title.to_owned(),
    };
    for figure in papers::in_order(&report.by_setting) {
        let title = named(&papers::title(&figure.setting), papers::of_setting(&figure.setting));
        section(&mut text, &title, &sheets::by_setting(figure));
    }
    for scaling in &report.scaling {
        let title = format!("{} over the number of drives", scaling.work.label());
        let title = named(&title, papers::of_scaling(&scaling.work));
        section(&mut text, &title, &sheets::scaling(scaling).without_empty_columns());
    }
    section(&mut text, &named("Passes", Some(papers::PASSES)), &sheets::passes(report));
    let variation = named("Variation before and after cleaning", Some(papers::VARIATION));
    section(&mut text, &variation, &sheets::variation(report));
    section(&mut text, &named("Queue depth", Some(papers::DEPTH)), &sheets::depth(&report.depth));
    section(&mut text, "Effects", &sheets::effects(report));
    section(&mut text, "Settings that depend on each other", &sheets::interactions(report));
    section(&mut text, "Latency", &sheets::latency(report, |_| true));
    section(&mut text, "Warnings", &sheets::warnings(report).without_empty_columns());
    section(&mut text, "Failures", &sheets::failures(report));
    pairs(&mut text, "Machine", &facts::machine(report));
    for target in &report.targets {
        pairs(&mut text, &format!("Target: {}", target.target), &facts::target(target));
    }
    pairs(&mut text, "Method", &facts::method(report));
    for paragraph in facts::cleaning(&report.cleaning) {
        text += &format!("\n{}\n", escape(&paragraph));
    }
    text
}

fn section(text: &mut String, title: &str, sheet: &Sheet) {
    if sheet.rows.is_empty() {
        return;
    }
    *text += &format!("\n## {}\n\n{}.\n\n", escape(title), escape(&sheet.caption));
    rows(text, sheet);
}

fn rows(text: &mut String, sheet: &Sheet) {
    text.push('|');
    for column in &sheet.columns {
        *text += &format!(" {} |", escape(&column.title));
    }
    text.push_str("\n|");
    for column in &sheet.columns {
        text.push_str(if column.align == Align::Right { " ---: |" } else { " --- |" });
    }
    for row in &sheet.rows {
        text.push_str("\n|");
        for cell in row {
            *text += &format!(" {} |", escape(cell));
        }
    }
    text.push('\n');
}

fn pairs(text: &mut String, title: &str, facts: &[facts::Fact]) {
    if facts.is_empty() {
        return;
    }
    *text += &format!("\n## {}\n\n", escape(title));
    for (name, value) in facts {
        *text += &format!("- {name}: {}\n", escape(value));
    }
}

/// Text in which nothing is markup. A line break would end a table's row.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '|' | '#' | '~' | '!' => {
                escaped.push('\\');
                escaped.push(c);
            }
            c if c.is_control() => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}

/// Text as code, with a fence longer than any run of back-quotes in it.
fn code(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    let clean: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    format!("{fence} {clean} {fence}")
}
