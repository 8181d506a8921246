//! The section "What limits it".

use std::fmt::Write;

use super::super::{Report, limits};
use super::escape::text;
use super::sections::table;

/// Which limits there are and what to do; then which test meets which.
pub(super) fn section(page: &mut String, report: &Report) {
    if report.limits.is_empty() {
        return;
    }
    page.push_str(
        "<section id=\"limits\" aria-labelledby=\"h-limits\"><h2 id=\"h-limits\">What limits it</h2>\n\
         <p class=\"lede\">For each configuration, which part of the system kept it from being faster: from its own counters, \
         and from the same work on the same drives in other forms and at other depths.</p><div class=\"warnings\">\n",
    );
    for limit in &report.limits {
        let label = report.point(limit.example).map_or("", |p| p.label.as_str());
        let n = limit.points.len();
        let noun = if n == 1 { "configuration" } else { "configurations" };
        let _ = writeln!(
            page,
            "<div class=\"warning\"><div><h3>{}</h3><p class=\"count\">{n} {noun}</p></div><div><p>{}</p>\
             <p><strong>What to do:</strong> {}</p><p class=\"count\">{}: {}</p></div></div>",
            limit.limit.label(),
            text(&limit.meaning),
            text(&limit.remedy),
            text(label),
            text(&limit.evidence),
        );
    }
    page.push_str("</div>\n");
    match limits::by_configuration(report) {
        Some((names, rows)) => grid(page, &names, &rows),
        None => table(page, &limits::matrix(report)),
    }
    page.push_str("</section>\n");
}

/// Tests by configurations, each with its verdict.
fn grid(page: &mut String, names: &[String], rows: &[Vec<String>]) {
    page.push_str(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Limit of each test on each configuration\"><table>\
         <caption>Limit of each test on each configuration</caption><thead><tr><th scope=\"col\">Test</th>",
    );
    for name in names {
        let _ = write!(page, "<th scope=\"col\">{}</th>", text(name));
    }
    page.push_str("</tr></thead><tbody>\n");
    for row in rows {
        page.push_str("<tr>");
        for cell in row {
            let _ = write!(page, "<td>{}</td>", text(cell));
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody></table></div>\n");
}
