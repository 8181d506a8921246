//! The page's sections, in the order in which they are read.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::recommend::{Gain, Knee, Outcome, Recommendation, words};
use crate::search::SearchSummary;

use super::super::facts::{self, Fact};
use super::super::sheet::{Align, Sheet};
use super::super::{Report, sheets, sides, time};
use super::chart::{self, Size};
use super::escape::{codes, prose, text};
use super::figures::Figure;
use super::runs;

/// The bar that stays on top.
pub(super) fn navigation(
    page: &mut String,
    report: &Report,
    ladders: &[Figure],
    measured: &[Figure],
    latency: &[Figure],
) {
    let present = [
        ("recommendation", "Recommendation", true),
        ("layout", "Layout", report.compromise.is_some()),
        ("recipe", "Recipe", !ladders.is_empty()),
        ("figures", "Figures", !measured.is_empty()),
        ("latency", "Latency", !latency.is_empty()),
        ("limits", "Limits", !report.limits.is_empty()),
        ("configurations", "Configurations", true),
        ("warnings", "Warnings", !report.warnings.is_empty() || !report.failures.is_empty()),
        ("machine", "Machine", report.host.is_some() || !report.targets.is_empty()),
        ("method", "Method", true),
        ("runs", "Runs", true),
    ];
    page.push_str("<a class=\"skip\" href=\"#main\">Skip to the report</a>\n<nav aria-label=\"Sections\"><div class=\"page\"><ul>");
    for (id, name, _) in present.iter().filter(|(_, _, there)| *there) {
        let _ = write!(page, "<li><a href=\"#{id}\">{name}</a></li>");
    }
    page.push_str("</ul><button type=\"button\" id=\"theme\" hidden aria-label=\"Switch between light and dark\"></button></div></nav>\n");
}

/// Title, answer, and what it is about.
pub(super) fn header(page: &mut String, report: &Report) {
    let mut about = Vec::new();
    about.extend(
        [&report.meta.hostname, &report.meta.directory].into_iter().filter(|t| !t.is_empty()).cloned(),
    );
    if let Some(target) = report.targets.first() {
        let t = &target.facts;
        about.extend(t.filesystem.clone());
        about.extend(t.transport.clone());
        about.push(units::bytes(t.size_bytes));
    }
    if let Some(host) = &report.host {
        about.push(format!("Linux {}", host.kernel));
    }
    about.push(format!("{} runs", report.completeness.done));
    about.extend(report.meta.started_unix_ns.map(time::utc));
    let _ = writeln!(
        page,
        "<header><p class=\"eyebrow\">flashwright report</p><h1>{}</h1><p class=\"answer\">{}</p><p class=\"meta\">{}</p></header>",
        text(&report.title()),
        prose(&report.headline),
        text(&about.join(" · "))
    );
}

/// What to use, first of all.
pub(super) fn recommendation(page: &mut String, report: &Report) {
    page.push_str("<section id=\"recommendation\" aria-labelledby=\"h-recommendation\"><h2 id=\"h-recommendation\">Recommendation</h2>\n");
    notices(page, report);
    let sides = sides::sides(report);
    if !sides.rows.is_empty() {
        table(page, &sides);
    }
    page.push_str(
        "<table class=\"reco\"><caption>The best setting for each kind of work. Ranges are 95 % intervals, which hold for all settings of a \
         work together.</caption><thead><tr><th scope=\"col\">Work</th><th scope=\"col\">Use</th>\
         <th scope=\"col\" class=\"n\">Bandwidth</th><th scope=\"col\" class=\"n\">p99 latency</th>\
         <th scope=\"col\" class=\"n\">Against the cheapest</th><th scope=\"col\" class=\"n\">Against the runner-up</th>\
         <th scope=\"col\" class=\"n\">Depth that is enough</th></tr></thead><tbody>\n",
    );
    for r in &report.recommendations {
        reco_row(page, r);
    }
    page.push_str("</tbody></table>\n");
    let caveats = shared_caveats(report);
    if !caveats.is_empty() {
        page.push_str("<h3>What bears on this</h3><ul class=\"plain\">");
        for caveat in caveats {
            let _ = write!(page, "<li>{}</li>", text(&caveat));
        }
        page.push_str("</ul>\n");
    }
    let searched: Vec<String> = report.search.iter().flat_map(SearchSummary::sentences).collect();
    if !searched.is_empty() {
        page.push_str("<h3>What was looked at</h3><ul class=\"plain\">");
        for sentence in searched {
            let _ = write!(page, "<li>{}</li>", text(&sentence));
        }
        page.push_str("</ul>\n");
    }
    page.push_str("</section>\n");
}

/// What must be known before any figure is believed.
fn notices(page: &mut String, report: &Report) {
    let c = &report.completeness;
    if !c.is_complete() {
        let _ = write!(
            page,
            "<div class=\"notice\" role=\"note\"><p><strong>Incomplete:</strong> {} of {} planned runs {} missing. Nothing is recommended for \
             work whose configurations are not all there. <code>flashwright sweep resume</code> makes the missing runs.</p>",
            c.planned - c.done,
            c.planned,
            if c.planned - c.done == 1 { "is" } else { "are" }
        );
        details(page, "Which runs are missing", &sheets::missing(report));
        page.push_str("</div>\n");
    }
    let void = report.cleaning.runs.void;
    if void > 0 {
        let _ = writeln!(
            page,
            "<div class=\"notice\" role=\"note\"><p><strong>{void} void:</strong> runs that do not measure what was asked take no part in any \
             conclusion. They stand in the <a href=\"#runs\">table of runs</a>, and the <a href=\"#warnings\">warnings</a> say why.</p></div>"
        );
    }
    if report.drift.as_ref().is_some_and(|d| d.moved) {
        page.push_str(
            "<div class=\"notice\" role=\"note\"><p><strong>Drift:</strong> the control point moved during the sweep, so part of a difference may \
             be a difference in time; see <a href=\"#control\">the control point</a>.</p></div>\n",
        );
    }
}

fn reco_row(page: &mut String, r: &Recommendation) {
    let class = match r.outcome {
        Outcome::Better => "clear",
        Outcome::Incomplete | Outcome::NoFigure => "none",
        _ => "",
    };
    let _ = write!(
        page,
        "<tr><th scope=\"row\">{}<small class=\"{class}\">{}</small></th>",
        text(&r.work.label()),
        text(&sheets::verdict(r))
    );
    match (&r.setting, &r.flags) {
        (Some(setting), Some(flags)) => {
            let _ = write!(page, "<td><strong>{}</strong><code>{}</code></td>", text(setting), text(flags));
        }
        _ => page.push_str("<td>nothing recommended</td>"),
    }
    let bandwidth = r.bandwidth.map(|b| {
        let iops =
            r.iops.map_or_else(String::new, |iops| format!("<small>{}</small>", figure(&units::iops(iops))));
        let range = b.interval.map_or_else(String::new, |i| {
            let half = (i.high - i.low) / 2.0 / b.mean;
            format!("<small>± {}</small>", figure(&units::percent(half)))
        });
        format!("<b>{}</b>{range}{iops}", figure(&units::bandwidth(b.mean)))
    });
    cell(page, "Bandwidth", bandwidth);
    cell(
        page,
        "p99 latency",
        r.latency_ns_p99.map(|ns| format!("<b>{}</b>", figure(&units::nanoseconds(ns)))),
    );
    cell(page, "Against the cheapest", r.over_cheapest.as_ref().map(gain));
    let over = |g: &Option<Gain>| g.as_ref().map(|gain| gain.over);
    let runner_up = if over(&r.over_runner_up).is_some() && over(&r.over_runner_up) == over(&r.over_cheapest)
    {
        Some("<small>the same</small>".to_owned())
    } else {
        r.over_runner_up.as_ref().map(gain)
    };
    cell(page, "Against the runner-up", runner_up);
    cell(page, "Depth that is enough", r.knee.as_ref().map(knee));
    page.push_str("</tr>\n");
}

fn knee(knee: &Knee) -> String {
    let there = figure(&units::nanoseconds(knee.at.latency_ns_p99));
    let part = figure(&units::percent(knee.of_best));
    let mut html = format!("<b>{}</b><small>{part} of the best</small><small>p99 {there}", knee.at.iodepth);
    if knee.best.iodepth > knee.at.iodepth {
        let best = figure(&units::nanoseconds(knee.best.latency_ns_p99));
        let _ = write!(html, ", not {best} as at {}", knee.best.iodepth);
    }
    html + "</small>"
}

/// A figure that is not broken from its unit.
fn figure(plain: &str) -> String {
    text(plain).replace(' ', "\u{a0}")
}

fn gain(gain: &Gain) -> String {
    let range = gain.interval.map_or_else(String::new, |i| {
        format!("<small>{} to {}</small>", words::times(i.low), words::times(i.high))
    });
    let noise = if gain.beyond_noise { "" } else { ", not told apart" };
    format!("<b>{}</b>{range}<small>{}{noise}</small>", words::times(gain.ratio), text(&gain.setting))
}

/// A cell of figures; `content` is HTML.
fn cell(page: &mut String, label: &str, content: Option<String>) {
    let _ = match content {
        Some(html) => write!(page, "<td class=\"n\" data-label=\"{label}\"><div>{html}</div></td>"),
        None => write!(page, "<td class=\"n empty\" data-label=\"{label}\">–</td>"),
    };
}

/// Each caveat once, with the work it bears on where that is not all of it.
fn shared_caveats(report: &Report) -> Vec<String> {
    let mut works: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut order: Vec<&str> = Vec::new();
    for r in &report.recommendations {
        for caveat in &r.caveats {
            let of = works.entry(caveat).or_default();
            if of.is_empty() {
                order.push(caveat);
            }
            of.push(r.work.label());
        }
    }
    order
        .into_iter()
        .map(|caveat| {
            let of = &works[caveat];
            if of.len() == report.recommendations.len() {
                caveat.to_owned()
            } else {
                format!("{}: {caveat}", words::list(of))
            }
        })
        .collect()
}

/// The one layout for all kinds of work, and what each setting of it gives.
pub(super) fn compromise(page: &mut String, report: &Report) {
    let Some(compromise) = &report.compromise else { return };
    let _ = writeln!(
        page,
        "<section id=\"layout\" aria-labelledby=\"h-layout\"><h2 id=\"h-layout\">One layout for all</h2>\n<p class=\"lede\">{}</p>",
        prose(&compromise.sentence)
    );
    table(page, &sheets::settings(compromise));
    table(page, &sheets::shares(compromise));
    page.push_str(
        "<p class=\"lede\"><code>flashwright tune show</code> prints these settings, <code>tune apply</code> sets what can be set on a \
         running machine and <code>tune export</code> writes files for the rest.</p></section>\n",
    );
}

/// A section of figures; nothing where there are none.
pub(super) fn figures(page: &mut String, id: &str, title: &str, figures: &[Figure]) {
    if figures.is_empty() {
        return;
    }
    let _ = writeln!(
        page,
        "<section id=\"{id}\" aria-labelledby=\"h-{id}\"><h2 id=\"h-{id}\">{title}</h2>\n\
         <div class=\"figures\">"
    );
    for figure in figures {
        let mut class = String::new();
        if figure.wide {
            class.push_str("wide");
        }
        if figure.height.is_some() {
            class.push_str(" tall");
        }
        let picture = picture(figure);
        let papers = figure.papers.map_or_else(String::new, |p| format!(" <span class=\"of\">– {p}</span>"));
        let (fid, title) = (&figure.id, text(&figure.title));
        let caption = prose(&figure.caption);
        let _ = write!(
            page,
            "<figure id=\"{fid}\" class=\"{class}\"><h3 id=\"t-{fid}\">{title}{papers}</h3>\
             <div class=\"plot\" role=\"img\" aria-labelledby=\"t-{fid}\" aria-describedby=\"c-{fid}\">{picture}</div>\
             <figcaption id=\"c-{fid}\">{caption}</figcaption>"
        );
        details(page, "The figures as a table", &figure.sheet);
        page.push_str("</figure>\n");
    }
    page.push_str("</div></section>\n");
}

/// A figure for a wide page and for a narrow one; the style sheet shows one of them.
fn picture(figure: &Figure) -> String {
    let plot = figure.plot.json();
    let width = if figure.wide { 1104.0 } else { 540.0 };
    let height = figure.height.map(|pixels| pixels as f64);
    let wide =
        Size { width, height: height.unwrap_or(if figure.wide { 400.0 } else { 350.0 }), has_titles: true };
    // On a touch screen nothing hovers.
    let narrow = Size { width: 350.0, height: height.unwrap_or(320.0), has_titles: false };
    let of = |class: &str, size: Size| format!("<div class=\"{class}\">{}</div>", chart::svg(&plot, size));
    of("broad", wide) + &of("slim", narrow)
}

/// A table that is folded away.
fn details(page: &mut String, summary: &str, sheet: &Sheet) {
    let _ = write!(page, "<details><summary>{}</summary>", text(summary));
    table(page, sheet);
    page.push_str("</details>");
}

/// Rows of a folded table that are still of use to a reader; beyond, there is the CSV.
const ROWS: usize = 500;

/// A table whose figures stay on one line, and whose prose does not.
pub(super) fn table(page: &mut String, sheet: &Sheet) {
    let _ = write!(
        page,
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{0}\"><table class=\"fixed\"><caption>{0}{1}</caption><thead><tr>",
        text(&sheet.caption),
        if sheet.rows.len() > ROWS {
            format!("; the first {ROWS} of {}", sheet.rows.len())
        } else {
            String::new()
        }
    );
    let class = |i: usize| match sheet.columns[i].align {
        Align::Left => "",
        Align::Right => " class=\"n\"",
        Align::Prose => " class=\"w\"",
        Align::Codes => " class=\"codes\"",
    };
    for (i, column) in sheet.columns.iter().enumerate() {
        let _ = write!(page, "<th scope=\"col\"{}>{}</th>", class(i), text(&column.title));
    }
    page.push_str("</tr></thead><tbody>\n");
    for row in sheet.rows.iter().take(ROWS) {
        page.push_str("<tr>");
        for (i, cell) in row.iter().enumerate() {
            let cell = if sheet.columns[i].align == Align::Codes { codes(cell) } else { text(cell) };
            let _ = write!(page, "<td{}>{cell}</td>", class(i));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody></table></div>");
}

/// Every configuration with its figures.
pub(super) fn configurations(page: &mut String, report: &Report) {
    page.push_str("<section id=\"configurations\" aria-labelledby=\"h-configurations\"><h2 id=\"h-configurations\">Configurations</h2>\n");
    table(page, &sheets::points(report).without_empty_columns());
    page.push_str("</section>\n");
}

/// What the runs warn of, and what failed.
pub(super) fn warnings(page: &mut String, report: &Report) {
    if report.warnings.is_empty() && report.failures.is_empty() {
        return;
    }
    page.push_str(
        "<section id=\"warnings\" aria-labelledby=\"h-warnings\"><h2 id=\"h-warnings\">Warnings</h2>\n",
    );
    if !report.warnings.is_empty() {
        page.push_str("<p class=\"lede\">Ways in which these figures may mislead, as seen during the runs, and what to do.</p><div class=\"warnings\">\n");
    }
    for w in &report.warnings {
        let (word, class) = severity(w.severity);
        let (runs, points) =
            (units::counted(w.runs, "run"), units::counted(w.points.len() as u64, "configuration"));
        let _ = write!(
            page,
            "<div class=\"warning\"><div><h3>{}</h3><p class=\"count\"><span class=\"tag {class}\">{word}</span> {runs} in {points}</p></div><div><p>{}</p><p><strong>What to do:</strong> {}</p>",
            w.code,
            text(&w.meaning),
            text(&w.remedy)
        );
        if let Some(example) = &w.example {
            let _ = write!(page, "<p class=\"count\">For instance: {}</p>", text(example));
        }
        page.push_str("</div></div>\n");
    }
    if !report.warnings.is_empty() {
        page.push_str("</div>\n");
    }
    if !report.failures.is_empty() {
        page.push_str("<h3>Runs that failed</h3>");
        table(page, &sheets::failures(report));
    }
    page.push_str("</section>\n");
}

/// A severity's word and its class.
pub(super) fn severity(severity: measure::warning::Severity) -> (&'static str, &'static str) {
    match severity {
        measure::warning::Severity::Note => ("note", "note"),
        measure::warning::Severity::Warning => ("warning", "warn"),
        measure::warning::Severity::Void => ("void", "void"),
    }
}

/// The machine and the targets.
pub(super) fn machine(page: &mut String, report: &Report) {
    if report.host.is_none() && report.targets.is_empty() {
        return;
    }
    page.push_str("<section id=\"machine\" aria-labelledby=\"h-machine\"><h2 id=\"h-machine\">Machine and target</h2><div class=\"facts\">\n");
    let machine = facts::machine(report);
    if !machine.is_empty() {
        pairs(page, "Machine", &machine);
    }
    for target in &report.targets {
        pairs(page, &format!("Target: {}", target.target), &facts::target(target));
    }
    page.push_str("</div></section>\n");
}

/// How it was measured, and what cleaning could and could not say.
pub(super) fn method(page: &mut String, report: &Report) {
    page.push_str("<section id=\"method\" aria-labelledby=\"h-method\"><h2 id=\"h-method\">How it was measured</h2><div class=\"facts\">\n");
    pairs(page, "The sweep", &facts::method(report));
    page.push_str("<div><h3>Cleaning</h3>");
    for paragraph in facts::cleaning(&report.cleaning) {
        let _ = write!(page, "<p>{}</p>", prose(&paragraph));
    }
    page.push_str("</div></div>\n");
    if !report.meta.space.is_empty() {
        let _ = write!(
            page,
            "<details><summary>The space as it was written</summary><pre>{}</pre></details>",
            text(&report.meta.space)
        );
    }
    page.push_str("</section>\n");
}

fn pairs(page: &mut String, title: &str, facts: &[Fact]) {
    let _ = write!(page, "<div><h3>{}</h3><dl>", text(title));
    for (name, value) in facts {
        let _ = write!(page, "<dt>{name}</dt><dd>{}</dd>", prose(value));
    }
    page.push_str("</dl></div>\n");
}

/// Every run.
pub(super) fn all_runs(page: &mut String, report: &Report) {
    page.push_str("<section id=\"runs\" aria-labelledby=\"h-runs\"><h2 id=\"h-runs\">All runs</h2>\n");
    page.push_str(&runs::table(report));
    page.push_str("</section>\n");
}

/// What this file is.
pub(super) fn footer(page: &mut String, report: &Report) {
    let _ = writeln!(
        page,
        "<footer>{} · this file needs no network · “DASH-IO” is He, Bennett and Snavely, <cite>DASH-IO: an Empirical Study of \
         Flash-based IO for HPC</cite>, TeraGrid 2010; “DASH” is He et al., <cite>DASH: a Recipe for a \
         Flash-based Data Intensive Supercomputer</cite>, SC 2010.</footer>",
        text(&report.schema)
    );
}
