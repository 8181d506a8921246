//! What a figure is made of, in words that `super::chart` draws: traces, and a layout with two axes.
//!
//! The words and their JSON keys are plotly's, because they are documented and known. There are only those that are drawn.

use serde::Serialize;
use serde_json::Value;

/// A figure's marks and what stands around them.
#[derive(Debug, Default, Serialize)]
pub(in super::super) struct Plot {
    data: Vec<Trace>,
    layout: Layout,
}

impl Plot {
    pub(super) fn add_trace(&mut self, trace: Trace) {
        self.data.push(trace);
    }

    pub(super) fn set_layout(&mut self, layout: Layout) {
        self.layout = layout;
    }

    /// As `chart::svg` reads it.
    pub(in super::super) fn json(&self) -> Value {
        serde_json::to_value(self).expect("texts and numbers")
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum TraceKind {
    Scatter,
    Bar,
}

/// What is drawn at each place of a trace.
#[derive(Debug, Serialize)]
pub(super) enum Mode {
    #[serde(rename = "lines")]
    Lines,
    #[serde(rename = "markers")]
    Markers,
    #[serde(rename = "lines+markers")]
    LinesMarkers,
    #[serde(rename = "lines+text")]
    LinesText,
    #[serde(rename = "lines+markers+text")]
    LinesMarkersText,
}

#[derive(Debug, Serialize)]
enum Orientation {
    #[serde(rename = "h")]
    Horizontal,
}

#[derive(Debug, Serialize)]
enum TextPosition {
    #[serde(rename = "top left")]
    TopLeft,
}

/// Marks of one kind, and the name that the legend gives them.
#[derive(Debug, Serialize)]
pub(super) struct Trace {
    #[serde(rename = "type")]
    kind: TraceKind,
    x: Vec<Value>,
    y: Vec<Value>,
    name: Option<String>,
    #[serde(rename = "showlegend")]
    is_in_legend: Option<bool>,
    mode: Option<Mode>,
    orientation: Option<Orientation>,
    opacity: Option<f64>,
    line: Option<Line>,
    marker: Option<Marker>,
    error_x: Option<Whiskers>,
    error_y: Option<Whiskers>,
    text: Option<Vec<String>>,
    #[serde(rename = "textposition")]
    text_position: Option<TextPosition>,
    #[serde(rename = "hovertext")]
    hover: Option<Vec<String>>,
}

impl Trace {
    /// Places, or a line through them.
    pub(super) fn scatter<X: Into<Value>, Y: Into<Value>>(
        x: impl IntoIterator<Item = X>,
        y: impl IntoIterator<Item = Y>,
        mode: Mode,
    ) -> Self {
        Self { mode: Some(mode), ..Self::new(TraceKind::Scatter, x, y) }
    }

    /// Bars that stand on names.
    pub(super) fn bars<X: Into<Value>>(
        names: impl IntoIterator<Item = X>,
        values: impl IntoIterator<Item = f64>,
    ) -> Self {
        Self::new(TraceKind::Bar, names, values)
    }

    /// Bars that lie beside names, the first one lowest. The legend does not name them.
    pub(super) fn lying_bars(
        values: impl IntoIterator<Item = f64>,
        names: impl IntoIterator<Item = String>,
    ) -> Self {
        let orientation = Some(Orientation::Horizontal);
        Self { orientation, ..Self::new(TraceKind::Bar, values, names) }.without_legend()
    }

    fn new<X: Into<Value>, Y: Into<Value>>(
        kind: TraceKind,
        x: impl IntoIterator<Item = X>,
        y: impl IntoIterator<Item = Y>,
    ) -> Self {
        Self {
            kind,
            x: x.into_iter().map(Into::into).collect(),
            y: y.into_iter().map(Into::into).collect(),
            name: None,
            is_in_legend: None,
            mode: None,
            orientation: None,
            opacity: None,
            line: None,
            marker: None,
            error_x: None,
            error_y: None,
            text: None,
            text_position: None,
            hover: None,
        }
    }

    pub(super) fn name(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    pub(super) fn without_legend(self) -> Self {
        Self { is_in_legend: Some(false), ..self }
    }

    pub(super) fn opacity(self, opacity: f64) -> Self {
        Self { opacity: Some(opacity), ..self }
    }

    pub(super) fn line(self, line: Line) -> Self {
        Self { line: Some(line), ..self }
    }

    pub(super) fn marker(self, marker: Marker) -> Self {
        Self { marker: Some(marker), ..self }
    }

    /// Whiskers to the left and right.
    pub(super) fn error_x(self, whiskers: Whiskers) -> Self {
        Self { error_x: Some(whiskers), ..self }
    }

    /// Whiskers up and down.
    pub(super) fn error_y(self, whiskers: Whiskers) -> Self {
        Self { error_y: Some(whiskers), ..self }
    }

    /// What stands beside each mark.
    pub(super) fn text(self, text: impl IntoIterator<Item = String>) -> Self {
        Self { text: Some(text.into_iter().collect()), ..self }
    }

    /// The text to the left of its mark, and not over it.
    pub(super) fn text_to_the_left(self) -> Self {
        Self { text_position: Some(TextPosition::TopLeft), ..self }
    }

    /// What each mark stands for.
    pub(super) fn hover(self, hover: impl IntoIterator<Item = String>) -> Self {
        Self { hover: Some(hover.into_iter().collect()), ..self }
    }
}

#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum DashType {
    Solid,
    Dash,
    Dot,
    DashDot,
    LongDash,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum LineShape {
    Hv,
}

/// How a line looks.
#[derive(Debug, Serialize)]
pub(super) struct Line {
    color: &'static str,
    width: f64,
    dash: DashType,
    shape: Option<LineShape>,
}

impl Line {
    pub(super) fn new(color: &'static str, width: f64) -> Self {
        Self { color, width, dash: DashType::Solid, shape: None }
    }

    pub(super) fn dash(self, dash: DashType) -> Self {
        Self { dash, ..self }
    }

    /// Level until the next place, and then upright.
    pub(super) fn in_steps(self) -> Self {
        Self { shape: Some(LineShape::Hv), ..self }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Symbol {
    Circle,
    CircleOpen,
    Square,
    Diamond,
    DiamondOpen,
    TriangleUp,
    Cross,
    X,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Fill {
    One(&'static str),
    Each(Vec<&'static str>),
}

/// How marks look.
#[derive(Debug, Serialize)]
pub(super) struct Marker {
    color: Fill,
    symbol: Option<Symbol>,
    size: Option<u32>,
}

impl Marker {
    pub(super) fn new(color: &'static str) -> Self {
        Self { color: Fill::One(color), symbol: None, size: None }
    }

    /// A colour for each mark.
    pub(super) fn of_each(colors: Vec<&'static str>) -> Self {
        Self { color: Fill::Each(colors), symbol: None, size: None }
    }

    pub(super) fn symbol(self, symbol: Symbol) -> Self {
        Self { symbol: Some(symbol), ..self }
    }

    pub(super) fn size(self, size: u32) -> Self {
        Self { size: Some(size), ..self }
    }
}

/// How far each mark's interval reaches.
#[derive(Debug, Serialize)]
pub(super) struct Whiskers {
    array: Vec<f64>,
    #[serde(rename = "arrayminus")]
    array_minus: Vec<f64>,
    color: &'static str,
}

impl Whiskers {
    /// They reach `up` above and `down` below their marks.
    pub(super) fn new(up: Vec<f64>, down: Vec<f64>, color: &'static str) -> Self {
        Self { array: up, array_minus: down, color }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum AxisType {
    Log,
    Category,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum RangeMode {
    ToZero,
}

#[derive(Debug, Default, Serialize)]
struct Title {
    text: String,
}

/// An axis: linear, unless it is told otherwise.
#[derive(Debug, Default, Serialize)]
pub(super) struct Axis {
    title: Title,
    #[serde(rename = "type")]
    kind: Option<AxisType>,
    range: Option<[f64; 2]>,
    #[serde(rename = "rangemode")]
    range_mode: Option<RangeMode>,
    #[serde(rename = "tickvals")]
    tick_values: Option<Vec<f64>>,
    #[serde(rename = "ticktext")]
    tick_text: Option<Vec<String>>,
    #[serde(rename = "categoryarray")]
    names: Option<Vec<String>>,
}

impl Axis {
    pub(super) fn new(title: &str) -> Self {
        Self { title: Title { text: title.to_owned() }, ..Self::default() }
    }

    pub(super) fn logarithmic(self) -> Self {
        Self { kind: Some(AxisType::Log), ..self }
    }

    /// Of names, in the order in which traces have them.
    pub(super) fn of_names(self) -> Self {
        Self { kind: Some(AxisType::Category), ..self }
    }

    /// Of these names first.
    pub(super) fn of_names_in_order(self, names: Vec<String>) -> Self {
        Self { names: Some(names), ..self.of_names() }
    }

    pub(super) fn beginning_at_zero(self) -> Self {
        Self { range_mode: Some(RangeMode::ToZero), ..self }
    }

    /// Its ends, as logarithms on a logarithmic axis.
    pub(super) fn range(self, low: f64, high: f64) -> Self {
        Self { range: Some([low, high]), ..self }
    }

    /// Where its ticks are, and what each says.
    pub(super) fn ticks(self, values: Vec<f64>, text: Vec<String>) -> Self {
        Self { tick_values: Some(values), tick_text: Some(text), ..self }
    }
}

/// An upright line over the whole figure.
#[derive(Debug, Serialize)]
struct Upright {
    x0: f64,
}

/// What stands around the marks.
#[derive(Debug, Default, Serialize)]
pub(super) struct Layout {
    #[serde(rename = "xaxis")]
    x: Axis,
    #[serde(rename = "yaxis")]
    y: Axis,
    #[serde(rename = "showlegend")]
    has_legend: Option<bool>,
    #[serde(rename = "bargap")]
    bar_gap: Option<f64>,
    shapes: Vec<Upright>,
}

impl Layout {
    /// With a legend where several traces have names.
    pub(super) fn new(x: Axis, y: Axis) -> Self {
        Self { x, y, ..Self::default() }
    }

    pub(super) fn legend(self, has_legend: bool) -> Self {
        Self { has_legend: Some(has_legend), ..self }
    }

    /// The part of a name's place that its bars leave free.
    pub(super) fn bar_gap(self, part: f64) -> Self {
        Self { bar_gap: Some(part), ..self }
    }

    pub(super) fn upright_line(mut self, x: f64) -> Self {
        self.shapes.push(Upright { x0: x });
        self
    }
}
