//! The page of one write-saturation run, in the report's clothes.

use std::fmt::Write;

use measure::saturation::Saturation;

use super::{escape, figures, head, sections};

/// What the page says.
#[derive(Debug, Clone, Copy)]
pub struct SaturationPage<'a> {
    /// Its title.
    pub title: &'a str,
    /// The answer in a sentence.
    pub answer: &'a str,
    /// What was run on what, and what came of it: names and values.
    pub facts: &'a [(String, String)],
    /// The curve.
    pub curve: &'a Saturation,
}

/// The page: one self-contained file.
#[must_use]
pub fn saturation(what: &SaturationPage<'_>) -> String {
    let figure = figures::saturation(what.curve);
    let mut page = String::with_capacity(1 << 17);
    head(&mut page, what.title);
    page.push_str(
        "<nav aria-label=\"Page\"><div class=\"page\"><ul></ul><button type=\"button\" id=\"theme\" hidden \
         aria-label=\"Switch between light and dark\"></button></div></nav>\n<div class=\"page\">\n",
    );
    let _ = writeln!(
        page,
        "<header><p class=\"eyebrow\">flashwright write saturation</p><h1>{}</h1><p class=\"answer\">{}</p></header>",
        escape::text(what.title),
        escape::prose(what.answer)
    );
    page.push_str("<main id=\"main\">\n");
    let figures = [figure];
    sections::figures(&mut page, "curve", "The curve", &figures);
    page.push_str("<section aria-labelledby=\"h-facts\"><h2 id=\"h-facts\">What was run</h2><div class=\"scroll\"><table><tbody>\n");
    for (name, value) in what.facts {
        let (name, value) = (escape::text(name), escape::prose(value));
        let _ = writeln!(page, "<tr><th scope=\"row\">{name}</th><td>{value}</td></tr>");
    }
    page.push_str("</tbody></table></div></section>\n</main>\n</div>\n");
    let _ = writeln!(page, "\n<script>\n{}</script>\n</body>\n</html>", super::SCRIPT);
    page
}
