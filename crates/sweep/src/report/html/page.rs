//! A page of an answer, charts and tables, in the report's clothes.

use std::fmt::Write;

use super::super::sheet::{Column, Sheet};
use super::{escape, figures, head, sections};

/// What the page says.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// The verb that made it; also its title.
    pub title: String,
    /// The answer in a sentence.
    pub answer: String,
    /// The tables, in order.
    pub tables: Vec<PageTable>,
    /// The charts, in order.
    pub charts: Vec<PageChart>,
    /// What bears on the figures.
    pub notes: Vec<String>,
    /// What was computed how: what it gives, the formula, its source.
    pub formulas: Vec<[&'static str; 3]>,
}

/// A table. A title that begins with `>` is of a column of figures, with `~` of sentences.
#[derive(Debug, Clone)]
pub struct PageTable {
    /// What it shows.
    pub caption: String,
    /// Titles of the columns.
    pub titles: Vec<String>,
    /// Cells, one for each column.
    pub rows: Vec<Vec<String>>,
}

impl PageTable {
    /// As every form writes it.
    pub(in super::super) fn sheet(&self) -> Sheet {
        let columns = self.titles.iter().map(|title| Column::new(title.clone().into())).collect();
        Sheet { caption: self.caption.clone(), columns, rows: self.rows.clone() }
    }
}

/// A chart: bars by name, or a curve over a logarithmic axis.
#[derive(Debug, Clone)]
pub struct PageChart {
    /// Its title.
    pub title: String,
    /// The horizontal axis of a curve; None for bars.
    pub x: Option<&'static str>,
    /// What the heights are.
    pub y: &'static str,
    /// Whether heights are shown as logarithms.
    pub is_logarithmic: bool,
    /// The marks, in order.
    pub marks: Vec<PageMark>,
}

/// One mark of a chart.
#[derive(Debug, Clone)]
pub struct PageMark {
    /// Its name, or its place on the axis in words.
    pub label: String,
    /// Its place on the axis of a curve.
    pub x: f64,
    /// Its height.
    pub y: f64,
    /// Its height in words.
    pub words: String,
}

/// The page: one self-contained file.
#[must_use]
pub fn page(what: &Page) -> String {
    let figures: Vec<_> = what.charts.iter().enumerate().map(|(n, chart)| figures::page(n, chart)).collect();
    let mut page = String::with_capacity(1 << 17);
    head(&mut page, &what.title);
    page.push_str(
        "<nav aria-label=\"Page\"><div class=\"page\"><ul></ul><button type=\"button\" id=\"theme\" hidden \
         aria-label=\"Switch between light and dark\"></button></div></nav>\n<div class=\"page\">\n",
    );
    let _ = writeln!(
        page,
        "<header><p class=\"eyebrow\">flashwright</p><h1>{}</h1><p class=\"answer\">{}</p></header>\n<main id=\"main\">",
        escape::text(&what.title),
        escape::prose(&what.answer)
    );
    sections::figures(&mut page, "chart", "At a glance", &figures);
    page.push_str("<section id=\"tables\" aria-labelledby=\"h-tables\"><h2 id=\"h-tables\">Figures</h2>\n");
    for table in &what.tables {
        sections::table(&mut page, &table.sheet());
    }
    list(&mut page, what);
    page.push_str("</main>\n</div>\n");
    let _ = writeln!(page, "\n<script>\n{}</script>\n</body>\n</html>", super::SCRIPT);
    page
}

/// Notes and formulas.
fn list(page: &mut String, what: &Page) {
    if !what.notes.is_empty() {
        page.push_str("<ul class=\"plain\">");
        for note in &what.notes {
            let _ = write!(page, "<li>{}</li>", escape::prose(note));
        }
        page.push_str("</ul>");
    }
    page.push_str(
        "</section>\n<section aria-labelledby=\"h-formulas\"><h2 id=\"h-formulas\">Formulas</h2><div class=\"scroll\">\
         <table><tbody>\n",
    );
    for [gives, formula, source] in &what.formulas {
        let [gives, formula, source] = [gives, formula, source].map(|raw| escape::text(raw));
        let _ = writeln!(page, "<tr><th scope=\"row\">{gives}</th><td>{formula}</td><td>{source}</td></tr>");
    }
    page.push_str("</tbody></table></div></section>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_from_files_cannot_become_markup() {
        let table = PageTable {
            caption: "<b>".to_owned(),
            titles: vec!["Product".to_owned(), ">IOPS/<i>".to_owned()],
            rows: vec![vec!["<script>".to_owned(), "1".to_owned()]],
        };
        let mark = PageMark { label: "<u>".to_owned(), x: 0.0, y: 1.0, words: "1".to_owned() };
        let chart =
            PageChart { title: "t".to_owned(), x: None, y: "y", is_logarithmic: false, marks: vec![mark] };
        let what = Page {
            title: "plan".to_owned(),
            answer: "<em>".to_owned(),
            tables: vec![table],
            charts: vec![chart],
            notes: vec!["<p>note".to_owned()],
            formulas: vec![["a", "b < c", "d"]],
        };
        let text = page(&what);
        for markup in ["<b>", "IOPS/<i>", "<td><script>", "<em>", "<p>note", "b < c"] {
            assert!(!text.contains(markup), "{markup}");
        }
        assert!(text.contains("b &lt; c") && text.contains("<figure id=\"page-0\""));
    }
}
